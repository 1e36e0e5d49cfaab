from __future__ import annotations

import json
import zipfile
from pathlib import Path

from click.testing import CliRunner

from penstock.cli.root import root


def test_package_writes_one_archive_and_says_what_else_is_needed(tmp_path: Path) -> None:
    archive = tmp_path / "penstock.zip"
    said = CliRunner().invoke(root, ["spark", "package", str(archive), "--json"])
    assert said.exit_code == 0, said.output
    told = json.loads(said.output)
    assert told["bytes"] == archive.stat().st_size
    assert told["modules"] == len(zipfile.ZipFile(archive).namelist())
    assert {"numpy", "pyarrow"} <= set(told["executors"]) < set(told["driver"])
    plain = CliRunner().invoke(root, ["spark", "package", str(archive)])
    assert "executors need msgpack, numpy, orjson, pyarrow" in plain.output


def test_package_says_in_one_sentence_where_it_cannot_write(tmp_path: Path) -> None:
    said = CliRunner().invoke(root, ["spark", "package", str(tmp_path / "none" / "p.zip")])
    assert said.exit_code == 2
    assert "cannot be written: No such file or directory" in said.output
