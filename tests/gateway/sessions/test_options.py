"""What CONNECT and SUBSCRIBE ask for in their user properties."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sessions.options import PLAIN, InvalidOption, Options, Start, asks_for_level, read_options


@pytest.mark.parametrize(
    ("said", "start"),
    [
        (["beginning"], Start("beginning")),
        (["last=10"], Start("last", 10)),
        (["last=4096"], Start("last", 4096)),
        (["time=1700000000000"], Start("time", 1_700_000_000_000)),
        (["time=2023-11-14T22:13:20Z"], Start("time", 1_700_000_000_000)),
        (["time=2023-11-14T22:13:20"], Start("time", 1_700_000_000_000)),
        (["time=2023-11-14T23:13:20.5+01:00"], Start("time", 1_700_000_000_500)),
        (["time=1960-01-01"], Start("time", 0)),
        (["offset=7"], Start("offset", offsets=((-1, 7),))),
        (["offset=0:7", "offset=3:0"], Start("offset", offsets=((0, 7), (3, 0)))),
        (["named=billing"], Start("now", name="billing")),
        (["named=a=b"], Start("now", name="a=b")),
        (["named=billing", "beginning"], Start("beginning", name="billing")),
        (["last=5", "named=billing"], Start("last", 5, name="billing")),
    ],
)
def test_each_way_to_begin(said: list[str], start: Start) -> None:
    assert read_options([("penstock-start", one) for one in said]) == Options(start)


@pytest.mark.parametrize(
    "said",
    [
        [""],
        ["end"],
        ["beginning=1"],
        ["last"],
        ["last="],
        ["last=-1"],
        ["last=4097"],
        ["last=٣"],
        ["last=99999999999999999999"],
        ["time=yesterday"],
        ["time=²"],
        ["offset=x"],
        ["offset=1:"],
        ["offset=:1"],
        ["named="],
        ["named=" + "x" * 256],
        ["named=a\x07"],
        ["named=a", "named=b"],
        ["beginning", "last=1"],
        ["offset=1", "beginning"],
        ["beginning", "offset=1"],
    ],
)
def test_anything_else_is_refused(said: list[str]) -> None:
    with pytest.raises(InvalidOption):
        read_options([("penstock-start", one) for one in said])


def test_places_are_shown_where_they_are_asked_for() -> None:
    assert read_options([("penstock-place", "true")]) == Options(None, True)
    assert read_options([("penstock-place", "false")]) == PLAIN
    with pytest.raises(InvalidOption, match="true or false"):
        read_options([("penstock-place", "yes")])


def test_a_slip_of_the_pen_is_told_and_other_peoples_properties_are_left_alone() -> None:
    with pytest.raises(InvalidOption, match="no option penstock-begin"):
        read_options([("penstock-begin", "beginning")])
    assert read_options([("trace", "1"), ("start", "x")]) == PLAIN


def test_a_connect_asks_for_the_level_or_does_not() -> None:
    assert asks_for_level([("penstock-level", "true")])
    assert not asks_for_level([("penstock-level", "false"), ("level", "true")])
    with pytest.raises(InvalidOption, match="penstock-level is true or false, not 'disk'"):
        asks_for_level([("penstock-level", "disk")])
    with pytest.raises(InvalidOption, match="a CONNECT has no option penstock-place"):
        asks_for_level([("penstock-place", "true")])


def test_what_is_refused_is_quoted_as_far_as_it_helps() -> None:
    for refused in (
        ("penstock-place", "\u0600" * 11_000),
        ("penstock-start", "x" * 60_000),
        ("penstock-" + "x" * 60_000, ""),
    ):
        with pytest.raises(InvalidOption) as caught:
            read_options([refused])
        assert len(str(caught.value)) < 600


@given(st.text(max_size=40))
def test_any_text_is_an_option_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidOption):
        assert read_options([("penstock-start", text)]).start is not None
