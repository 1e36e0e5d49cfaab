"""`penstock user`: the file it writes, what it asks for, and what it refuses."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.access.passwords import parse_passwords, verify
from penstock.access.scram import derive_keys
from penstock.cli.user import user
from penstock.errors import InvalidConfig
from tests.patience import PATIENCE_S


def run(*words: str, password: str = "") -> Result:
    return CliRunner().invoke(user, list(words), input=password + "\n" if password else None)


def test_a_user_is_added_listed_changed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    for name, password in (("bob", "b"), ("alice", "first")):
        assert run("add", name, "--file", str(file), password=password).exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("list", "--file", str(file)).output == "alice\nbob\n"
    assert run("passwd", "alice", "--file", str(file), password="second").exit_code == 0
    users = parse_passwords(file.read_text()).by_name
    assert verify(users["alice"], b"second")
    assert verify(users["bob"], b"b")
    assert run("remove", "alice", "--file", str(file)).exit_code == 0
    assert list(parse_passwords(file.read_text()).by_name) == ["bob"]
    assert [one.name for one in tmp_path.iterdir()] == ["passwords"], "nothing is left beside it"


def adding(file: Path, name: str) -> subprocess.Popen[bytes]:
    """The command as a process, which waits for the password."""
    words = ["-c", "from penstock.cli.root import root; root()", "user", "add", name, "--file", str(file)]
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def test_users_who_are_added_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    file, names = tmp_path / "passwords", [f"u{number}" for number in range(5)]
    running = [adding(file, name) for name in names]
    for one in running:
        one.communicate(b"secret\n", timeout=PATIENCE_S)
    assert [one.returncode for one in running] == [0] * len(names)
    assert sorted(parse_passwords(file.read_text()).by_name) == names
    assert [one.name for one in tmp_path.iterdir()] == ["passwords"]


def test_a_link_stays_one_and_the_file_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "passwords", tmp_path / "link"
    run("add", "alice", "--file", str(file), password="x")
    file.chmod(0o640)
    link.symlink_to(file)
    assert run("add", "bob", "--file", str(link), password="x").exit_code == 0
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(parse_passwords(file.read_text()).by_name) == ["alice", "bob"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    run("add", "alice", "--file", str(file), password="x")
    os.chown(file, 65534, 65533)
    run("remove", "alice", "--file", str(file))
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65533)


def test_a_password_has_no_more_bytes_than_a_login_carries(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    assert isinstance(run("add", "long", "--file", str(file), password="x" * 65_536).exception, InvalidConfig)
    assert not file.exists()
    assert run("add", "long", "--file", str(file), password="x" * 65_535).exit_code == 0


def test_the_end_of_a_line_from_windows_is_no_part_of_the_password(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    adding(file, "alice").communicate(b"one\r\n", timeout=PATIENCE_S)
    assert verify(parse_passwords(file.read_text()).by_name["alice"], b"one")


def test_a_file_that_is_not_there_has_no_list_of_users(tmp_path: Path) -> None:
    result = run("list", "--file", str(tmp_path / "nothing"))
    assert isinstance(result.exception, InvalidConfig)
    assert "nothing: No such file" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "password"),
    [(("add", "alice"), "x"), (("passwd", "nobody"), "x"), (("remove", "nobody"), ""), (("add", "a:b"), "x")],
)
def test_what_cannot_be_changes_nothing(tmp_path: Path, words: tuple[str, ...], password: str) -> None:
    file = tmp_path / "passwords"
    run("add", "alice", "--file", str(file), password="x")
    before = file.read_bytes()
    result = run(*words, "--file", str(file), password=password)
    assert isinstance(result.exception, InvalidConfig)
    assert file.read_bytes() == before


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(user, ["add", "alice", "--file", str(tmp_path / "p")], input="\n")
    assert isinstance(result.exception, InvalidConfig)
    assert not (tmp_path / "p").exists()


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("damaged\n")
    result = run("add", "alice", "--file", str(file), password="x")
    assert isinstance(result.exception, InvalidConfig)
    assert file.read_text() == "damaged\n"


def test_users_as_json(tmp_path: Path) -> None:
    file = str(tmp_path / "p")
    run("add", "alice", "--file", file, password="x")
    assert run("list", "--json", "--file", file).output.strip() == '{"user":"alice","scram":true,"key":false}'


def test_a_user_gets_a_secret_key_which_a_new_password_leaves_and_loses_it(tmp_path: Path) -> None:
    file = str(tmp_path / "p")

    def kept() -> bytes:
        return parse_passwords(Path(file).read_text()).by_name["alice"].signing

    run("add", "alice", "--file", file, password="x")
    made = run("key", "alice", "--file", file).output.strip()
    assert len(made) == 40
    assert kept() == made.encode()
    run("passwd", "alice", "--file", file, password="y")
    assert kept() == made.encode()
    assert run("key", "alice", "--own", "--file", file, password="chosen by me").exit_code == 0
    assert kept() == b"chosen by me"
    assert isinstance(run("key", "alice", "--own", "--file", file, password="short").exception, InvalidConfig)
    run("key", "alice", "--revoke", "--file", file)
    assert kept() == b""


def test_what_scram_needs_is_kept_unless_it_is_not_wanted_and_the_secret_stays(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    run("add", "alice", "--file", str(file), password="a")
    first = parse_passwords(file.read_text())
    alice = first.by_name["alice"].scram
    assert alice == derive_keys(b"a", alice.salt if alice else b"", 32_768)
    run("add", "bob", "--iterations", "4096", "--file", str(file), password="b")
    run("passwd", "alice", "--no-scram", "--file", str(file), password="c")
    users = parse_passwords(file.read_text())
    assert users.by_name["alice"].scram is None
    bob = users.by_name["bob"].scram
    assert bob == derive_keys(b"b", bob.salt if bob else b"", 4096)
    assert len(users.secret) == 32
    assert users.secret == first.secret
    assert run("add", "carol", "--iterations", "4095", "--file", str(file), password="x").exit_code == 2


def test_a_file_from_before_scram_works_on(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("old:$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$E5kg4KnbPNve/PDwGBnM5EQ2G3ZVJ8jOseMl7HPs9KU\n")
    run("add", "new", "--file", str(file), password="x")
    users = parse_passwords(file.read_text())
    assert verify(users.by_name["old"], b"wonderland")
    assert users.by_name["old"].scram is None
    assert users.by_name["new"].scram is not None


def test_a_password_with_a_nul_is_refused(tmp_path: Path) -> None:
    for password in ("right\0", "\0", "ri\0ght"):
        result = run("add", "alice", "--file", str(tmp_path / "p"), password=password)
        assert isinstance(result.exception, InvalidConfig)
        assert "NUL" in str(result.exception)


def test_no_scram_keys_are_kept_of_a_password_that_hmac_replaces_by_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    for name, password, is_kept in (("a", "x" * 64, True), ("b", "x" * 65, False), ("c", "\ufdfa" * 3, False)):
        result = run("add", name, "--file", str(file), password=password)
        hashed = parse_passwords(file.read_text()).by_name[name]
        assert (result.exit_code, hashed.scram is not None) == (0, is_kept)
        assert ("too long for SCRAM" in result.stderr) is not is_kept
        assert verify(hashed, password.encode())
