"""``penstock context`` and ``penstock login``."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from penstock.cli.root import root
from tests.penstock.native_access import access_files, servers


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the contexts are."""
    path = tmp_path / "own" / "contexts.toml"
    monkeypatch.setenv("PENSTOCK_CONTEXTS_FILE", str(path))
    return path


def run(*arguments: str, stdin: str | None = None, status: int = 0) -> Result:
    result = CliRunner().invoke(root, arguments, input=stdin)
    assert result.exit_code == status, result.output
    return result


def test_contexts_are_kept_listed_chosen_and_removed(file: Path) -> None:
    run("context", "add", "prod", "--server", "names-1:9876", "--tls", "1")
    run("context", "add", "test.1", "--server", "names-2:9876", "--user", 'a"da', "--password-file", "x")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run("context", "use", "test.1")
    listed = run("context", "ls").stdout.splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [["prod", "-", "names-1:9876"], ["test.1", "*", "names-2:9876"]]
    assert "password_file" in listed[2]
    run("context", "rm", "test.1", stdin="n\n", status=2)
    run("context", "rm", "test.1", "--yes")
    assert "test.1" not in file.read_text()
    assert "there is no context 'test.1'" in run("context", "use", "test.1", status=2).stderr
    assert "is no name" in run("context", "add", "a/b", status=2).stderr
    assert "a token, not both" in run("context", "add", "b", "--user", "a", "--token-file", "t", status=2).stderr


def test_the_options_of_every_command_count_for_it_alone(file: Path, tmp_path: Path) -> None:
    run("context", "add", "prod", "--server", "127.0.0.1:1")
    before = dict(os.environ)
    for words in (("--context", "prod"), (), ("--server", "127.0.0.1:2", "--context", "prod")):
        where = "127.0.0.1:2" if "--server" in words else "127.0.0.1:1"
        assert f"no server at {where}" in run(*words, "topic", "list", status=1).stderr
    said = run("--user", "ada", "--password-file", str(tmp_path / "none"), "topic", "list", status=2).stderr
    assert "cannot read" in said
    assert os.environ == before


@pytest.mark.endtoend
async def test_a_login_is_kept_where_the_server_accepts_it_and_never_shown(file: Path, tmp_path: Path) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at:

        def by_hand() -> None:
            wrong = run("--server", at.namesrv, "login", "ada", stdin="wrong\n", status=4)
            assert "did not accept this login" in wrong.stderr
            assert not file.exists()
            told = run("--server", at.namesrv, "login", "ada", stdin="lovelace\n")
            assert "lovelace" not in told.output + run("context", "ls").output
            run("topic", "create", "orders-1")
            run("context", "add", "billing", "--server", at.namesrv)
            run("--context", "billing", "login", "billing", stdin="pencil\n")
            refused = run("--context", "billing", "topic", "delete", "orders-1", "--yes", status=4)
            assert "'billing' may not" in refused.stderr
            (tmp_path / "secret").write_text("ledger\n")
            run("--user", "auditor", "--password-file", str(tmp_path / "secret"), "topic", "list")
            assert "lovelace" not in " ".join(os.environ.values())

        await trio.to_thread.run_sync(by_hand)
