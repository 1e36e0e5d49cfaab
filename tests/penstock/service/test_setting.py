"""Settings that are declared once: their bounds, their choices, and what operators may set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from penstock.errors import InvalidConfig
from penstock.service.config import load_table
from penstock.service.setting import check_bounds, constant, declared, port_setting, settable, setting


@dataclass(frozen=True, slots=True)
class Settings:
    FORMER: ClassVar[Mapping[str, str]] = {"queues_max": "it is called topics_max now"}

    port: int = port_setting(-1, "where it listens", least=-1)
    topics_max: int = setting(10, "topics", above=0)
    wait_s: float = setting(1.0, "how long", least=0)
    share: float = setting(0.5, "a part", above=0, most=1)
    mode: str = setting("wait", "how", choices=("wait", "close"))
    versions: tuple[str, ...] = setting(("3",), "which", choices=("3", "5"))
    chunk_bytes: int = constant(1024, above=0)

    def __post_init__(self) -> None:
        check_bounds(self)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("port", 65_536, "port is 65536 (it is from -1 to 65535)"),
        ("topics_max", 0, "topics_max is 0 (it is more than 0)"),
        ("wait_s", -0.1, "wait_s is -0.1 (it is at least 0)"),
        ("share", 1.5, "share is 1.5 (it is more than 0 and at most 1)"),
        ("mode", "cut", "mode is 'cut' (it is one of wait, close)"),
        ("versions", ("3", "4"), "versions is ['3', '4'] (it is one of 3, 5)"),
        ("chunk_bytes", 0, "chunk_bytes is 0 (it is more than 0)"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_with_them(name: str, value: object, told: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Settings(**{name: value})  # type: ignore[arg-type]
    assert refused.value.told == told


def test_values_at_their_bounds_are_taken() -> None:
    taken = Settings(port=65_535, topics_max=1, wait_s=0, share=1, mode="close", versions=("5", "3"))
    assert (taken.port, taken.share) == (65_535, 1)


def test_a_declaration_says_what_the_page_has_of_it() -> None:
    assert declared(Settings)["topics_max"].meaning == "topics"
    assert settable(Settings) == ["port", "topics_max", "wait_s", "share", "mode", "versions"]


@pytest.mark.parametrize("where", ["file", "environment"])
def test_what_penstock_chooses_itself_no_file_and_no_variable_sets(where: str) -> None:
    table = {"chunk_bytes": 5} if where == "file" else {}
    environ = {"P_CHUNK_BYTES": "5"} if where == "environment" else {}
    with pytest.raises(InvalidConfig, match="leave it out: Penstock chooses it now"):
        load_table(Settings, table, environ, "P")
    assert load_table(Settings, {}, {}, "P", {"chunk_bytes": 5}).chunk_bytes == 5


@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_setting_of_an_earlier_version_is_refused_with_what_there_is_in_its_place(where: str) -> None:
    table = {"queues_max": 5} if where == "file" else {}
    environ = {"P_QUEUES_MAX": "5"} if where == "environment" else {}
    with pytest.raises(InvalidConfig, match=r"no setting") as refused:
        load_table(Settings, table, environ, "P")
    assert refused.value.hint == "it is called topics_max now"
