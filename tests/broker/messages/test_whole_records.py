"""Whole records become runs of one, which are those records again; what is none is refused alone, or with all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.messages.whole_records import in_places, runs_of
from penstock.errors import InvalidMessage, InvalidRequest
from penstock.protocol.message import BODY_AT, Message, encode_message, encode_record
from penstock.protocol.requests.messages import Refused


@given(
    st.lists(
        st.tuples(st.binary(max_size=50), st.integers(0, 15), st.integers(0, 1 << 40), st.integers(0, 9)), max_size=6
    )
)
def test_each_record_is_a_run_of_one(fields: list[tuple[bytes, int, int, int]]) -> None:
    records = [
        encode_record(b"t", body, b"a\x01b", queue_id=queue_id, flag=flag, born_ms=born_ms)
        for body, flag, born_ms, queue_id in fields
    ]
    runs, places, refused = runs_of(memoryview(b"".join(records)), len(records))
    assert [(run.bodies, run.flag, run.born_ms, run.queue_id) for run in runs] == [
        ([body], flag, born_ms, queue_id) for body, flag, born_ms, queue_id in fields
    ]
    assert [run.tail for run in runs] == [b"\x00\x01t\x00\x03a\x01b"] * len(records)
    assert (places, refused) == (list(range(len(records))), [])


def test_what_is_wrong_in_itself_is_refused_by_its_place_and_the_others_are_good() -> None:
    good, bad = encode_message(Message("t", b"good")), bytearray(encode_message(Message("t", b"body")))
    bad[BODY_AT] ^= 1
    runs, places, refused = runs_of(good + bad + good + bad, 4)
    assert [run.bodies for run in runs] == [[b"good"], [b"good"]]
    assert places == [0, 2]
    assert [(one.at, one.code) for one in refused] == [(at, InvalidMessage.code) for at in (1, 3)]
    assert in_places(places, [Refused(1, 9, "no")]) == [Refused(2, 9, "no")]


def test_a_body_longer_than_its_record_is_refused_by_its_place() -> None:
    good = encode_message(Message("t", b"good"))
    bad = good[: BODY_AT - 4] + (1 << 31).to_bytes(4, "big") + good[BODY_AT:]
    assert [one.at for one in runs_of(bad + good, 2).refused] == [0]


RECORD = encode_message(Message("t", b"x"))


@pytest.mark.parametrize("wrong", [b"\x00\x00\x00\x01", RECORD[:-1], RECORD + b"x", bytes(200), b""])
def test_what_is_not_so_many_records_is_refused_whole(wrong: bytes) -> None:
    with pytest.raises(InvalidRequest, match="nothing was stored"):
        runs_of(RECORD + wrong, 2)
