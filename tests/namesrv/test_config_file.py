from __future__ import annotations

from pathlib import Path

import pytest

from namesrv.config_file import keep_config, read_config
from penstock.errors import InvalidConfig, PenstockError


def test_what_was_kept_is_there_at_the_next_start_and_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    store = read_config(str(file))
    store.put("n", "k", "v")
    keep_config(store, str(file))
    keep_config(store, "")
    assert read_config(str(file)).as_json() == store.as_json()
    assert [one.name for one in tmp_path.iterdir()] == ["config.json"]
    assert read_config("").as_json() == "{}\n"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "config.json"
    bad.write_text("[]")
    with pytest.raises(InvalidConfig, match=r"config_file .* cannot be used"):
        read_config(str(bad))
    with pytest.raises(PenstockError, match="cannot be written"):
        keep_config(read_config(""), str(tmp_path / "none" / "config.json"))
