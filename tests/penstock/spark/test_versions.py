from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.versions import FIRST, UNTRIED, check_pyspark, check_release, check_server, installed_release

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize("release", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev1"])
def test_releases_that_were_tried_are_taken(release: str) -> None:
    check_release(release)


@pytest.mark.parametrize(
    ("release", "why"),
    [
        ("3.5.9", "cannot bound its batches before 4.2"),
        ("4.0.5", "cannot bound its batches before 4.2"),
        ("4.1.4", "cannot bound its batches before 4.2"),
        ("4.4.0", "it was not tried"),
        ("5.0.0", "it was not tried"),
        ("nonsense", "it was not tried"),
    ],
)
def test_others_are_refused_with_a_sentence_that_says_why_and_what_to_install(release: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=f"pyspark {release} is installed, and Penstock runs on .*{why}") as raised:
        check_release(release)
    assert ">=4.2,<4.4" in raised.value.hint


def test_a_server_of_another_release_is_refused_by_its_own_sentence() -> None:
    check_server("4.2.1")
    told = r"the Spark Connect server runs Spark 4\.1\.4, and Penstock runs on .* bound its batches before 4\.2"
    with pytest.raises(InvalidConfig, match=told):
        check_server("4.1.4")


def test_the_bounds_are_those_of_the_extra_and_what_is_installed_is_within_them() -> None:
    extra = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["spark"]
    assert f"pyspark>={FIRST[0]}.{FIRST[1]},<{UNTRIED[0]}.{UNTRIED[1]}" in extra
    check_pyspark()
    check_release(installed_release())
