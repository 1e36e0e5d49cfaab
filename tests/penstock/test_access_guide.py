"""The tasks of docs/guide/access.md, tried as they are printed, from one file of settings to the next."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio
import trustme
from click.testing import CliRunner

from node.settings import load
from penstock.cli.root import root
from tests.penstock.native_access import servers

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "access.md").read_text()
SECRET = "a secret of more than thirty-two bytes"


def blocks(task: str) -> list[tuple[str, str]]:
    """The blocks of a task, each with its language."""
    text = PAGE.partition(f"## {task}\n")[2].partition("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


def run_commands(text: str) -> None:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "penstock"
        result = CliRunner().invoke(root, words[1:], input="pencil\n")
        assert result.exit_code == 0, (line, result.output, result.exception)


def settings_of(text: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file of settings says of access, and of the broker alone."""
    (folder / "penstock.toml").write_text(text)
    node = load(folder / "penstock.toml", {}, {}).node  # `penstock up` takes it
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in tomllib.loads(text).items()}
    own = {name: given.pop(name) for name in ("peers_tls_ca",) if name in given}
    assert node.asks
    return given, own


@pytest.mark.endtoend
@pytest.mark.parametrize("task", ["Require passwords", "Put TLS in front", "Give a service a token"])
async def test_the_task_works_as_it_is_printed(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path("server.pem")
    (tmp_path / "token.key").write_text(SECRET)
    (tmp_path / "token").write_text(jwt.encode({"sub": "billing", "aud": "penstock", "exp": 1 << 33}, SECRET, "HS256"))
    access: dict[str, Any] = {}
    own: dict[str, Any] = {}
    programs = []
    contexts = ""
    told = blocks(task)
    if task != "Require passwords":  # its first step
        told = [blocks("Require passwords")[0], *told]
    for language, text in told:
        if language == "sh" and text.startswith("penstock context"):
            contexts = text
        elif language == "sh":
            run_commands(text)
        elif language == "rules":
            (tmp_path / "rules").write_text(text)
        elif language == "toml":
            access, own = settings_of(text, tmp_path)
        else:
            programs.append(text)
    assert programs
    async with servers(tmp_path, access, **own) as at:
        monkeypatch.setenv("PENSTOCK_CONTEXTS_FILE", str(tmp_path / "contexts.toml"))
        here = contexts.replace("names-1:9876,names-2:9876 --tls /etc/penstock/ca.pem", at.namesrv)
        await trio.to_thread.run_sync(run_commands, here)
        monkeypatch.setenv("PENSTOCK_SERVER", at.namesrv)
        for program in programs:
            await trio.to_thread.run_sync(exec, compile(program, "docs/guide/access.md", "exec"), {})
