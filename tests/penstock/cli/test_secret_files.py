"""Secrets are read from standard input, and their files are replaced whole. Prompts: ``test_user.py``."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest

from penstock.cli.secret_files import ask_secret, replace_file
from penstock.errors import InvalidConfig


@pytest.mark.parametrize("line", ["pencil\n", "pencil\r\n", "pencil"])
def test_the_first_line_of_standard_input_is_the_secret_without_its_end(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    assert ask_secret("Password", twice=True) == "pencil"


def test_a_file_is_its_owners_alone_or_has_the_mode_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    replace_file(file, "é\n", encoding="utf-8")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == ("é\n".encode(), 0o600)
    file.chmod(0o640)
    replace_file(file, "2\n", file.stat())
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("2\n", 0o640)
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_replaced_is_an_error_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(InvalidConfig, match="folder cannot be written"):
        replace_file(folder, "text")
    assert list(tmp_path.iterdir()) == [folder]
