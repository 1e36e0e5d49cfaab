"""What the Makefile says of Spark's tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_make_names_all_tests_of_spark() -> None:
    match = re.search(r"^SPARK_TESTS := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert match is not None
    named = [ROOT / one for one in match[1].replace("\\", "").split()]
    assert [one for one in named if not one.exists()] == []
    marked = [
        one for one in (ROOT / "tests").rglob("*.py") if "mark.spark" in one.read_text() and one != Path(__file__)
    ]
    assert marked
    assert [one for one in marked if not any(one == part or part in one.parents for part in named)] == []
