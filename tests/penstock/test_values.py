from __future__ import annotations

import copy
import pickle
from dataclasses import field, fields, replace

from penstock.values import value


@value
class Point:
    """A point with a note, which makes it no other point."""

    x: int
    y: int = 0
    note: str = field(default="", compare=False, repr=False)


@value
class Other:
    x: int
    y: int = 0


@value
class Named(Point):
    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"


@value
class Nothing:
    pass


def test_values_are_equal_if_what_they_compare_by_is() -> None:
    assert Point(1, 2) == Point(1, 2, "here")
    assert Point(1, 2) != Point(1, 3)
    assert Point(1) != Other(1)
    assert Named(1, name="a") != Named(1, name="b")
    assert Nothing() == Nothing()
    assert Point(1) != (1, 0)


def test_equal_values_are_one_in_a_set() -> None:
    assert len({Point(1, 2), Point(1, 2, "here"), Point(1), Other(1), Nothing(), Nothing()}) == 4


def test_a_value_shows_itself_by_its_fields_or_as_it_says_itself() -> None:
    assert repr(Point(1, note="secret")) == "Point(x=1, y=0)"
    assert repr(Nothing()) == "Nothing()"
    assert repr(Named(1, name="a")) == "<a>"


def test_a_value_is_a_dataclass_without_a_dictionary() -> None:
    assert [one.name for one in fields(Named)] == ["x", "y", "note", "name"]  # type: ignore[arg-type]
    assert not hasattr(Point(1), "__dict__")
    assert replace(Point(1, 2), y=3) == Point(1, 3)  # type: ignore[type-var]


def test_a_value_can_be_copied_and_sent_to_another_process() -> None:
    for made in (copy.deepcopy(Point(1, 2, "here")), pickle.loads(pickle.dumps(Point(1, 2, "here")))):
        assert made == Point(1, 2)
        assert made.note == "here"
