"""ARCHITECTURE.md: rooms are the folders, walks name few files that exist, and every place that it names is there."""

from __future__ import annotations

import re

import pytest
from sources import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
WALK_FILES_MAX = 20
WALK_STEPS_MIN = 5


def section(title: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    level = len(title) - len(title.lstrip("#"))
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"ARCHITECTURE.md has no section {title!r}"
    return found[1]


def places(row: str) -> list[str]:
    """The files and folders that a row names, a bare name in the folder of the one before it."""
    folder, found = "", list[str]()
    for name in re.findall(r"`([\w./]+(?:\.py|\.md|\.yml|/))`", row):
        path = name if "/" in name else f"{folder}/{name}"
        folder = path.rpartition("/")[0] or folder
        found.append(path)
    return found


def missing(row: str) -> list[str]:
    return [place for place in places(row) if not (ROOT / place).exists()]


@pytest.mark.parametrize("service", ["gateway", "broker", "penstock", "console"])
def test_it_names_the_rooms_of_a_service(service: str) -> None:
    """A row for every folder, and none for a folder that is not there; what else a row begins with is a module."""
    table = PAGE.partition(f"| where in `{service}/` |")[2].partition("\n\n")[0]
    named = " ".join(re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)).replace("`", "").split()
    folders = {path.name for path in (ROOT / service).iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert {name.strip("/") for name in named if name.endswith("/")} == folders
    modules = {name for name in named if not name.endswith("/")}
    assert [name for name in sorted(modules) if not (ROOT / service / f"{name}.py").exists()] == []


def test_modules_to_begin_with_in_the_smaller_services_are_there() -> None:
    table = PAGE.partition("| service | modules to begin with |")[2].partition("\n\n")[0]
    for service, cell in re.findall(r"^\| `(\w+)/` \| (.*) \|$", table, re.MULTILINE):
        names = " ".join(re.findall(r"`([^`]+)`", cell)).split()
        assert [name for name in names if not (ROOT / service / f"{name}.py").exists()] == [], service


WALKS = re.findall(r"^(### .+)$", section("## Walks"), re.MULTILINE)


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_numbered_steps_over_few_files_that_exist(walk: str) -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section(walk), re.MULTILINE)
    assert [number for number, _ in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert len(rows) >= WALK_STEPS_MIN
    assert [place for _, row in rows for place in missing(row)] == []
    assert len({place for _, row in rows for place in places(row)}) <= WALK_FILES_MAX
    assert [row for _, row in rows if not places(row)] == []


def test_the_walks_of_a_message_and_of_a_connection_are_there() -> None:
    assert set(WALKS) >= {
        "### A PUBLISH with QoS 1",
        "### A CONNECT",
        "### A send",
        "### A pull",
        "### A session is saved",
    }


def test_every_place_where_something_lives_exists() -> None:
    rows = re.findall(r"^\| (.+? \|.*) \|$", section("## Where does X live?"), re.MULTILINE)[1:]
    assert len(rows) >= 20
    assert [place for row in rows for place in missing(row)] == []


def test_a_newcomers_questions_have_a_row() -> None:
    things = re.findall(r"^\| ([^|]+) \|", section("## Where does X live?"), re.MULTILINE)
    asked = (
        "broker request",
        "MQTT property",
        "fold",
        "setting",
        "metric",
        "console page",
        "RocketMQ command",
        "target",
    )
    assert [one for one in asked if not any(one in thing for thing in things)] == []
