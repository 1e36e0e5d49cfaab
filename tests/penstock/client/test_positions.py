"""Positions and batches."""

from __future__ import annotations

import pytest

from penstock.client.positions import BATCHES_MAX, PULL_WAIT_S, Position, PullLimits, chosen_tags, place_offset
from penstock.errors import InvalidRequest, OffsetOutOfRange
from penstock.protocol.message import ENTRY, FRAME_HEAD_BYTES, Message, encode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.topics import Bounds

AT = MessageQueue("b", "t", 0)


def pulled(offsets: list[int], after: int) -> Pulled:
    frames = [bytes(FRAME_HEAD_BYTES) + encode_message(Message("t", str(at).encode())) for at in offsets]
    entries = [ENTRY.pack(at, 0, len(frame), 0) for at, frame in zip(offsets, frames, strict=True)]
    return Pulled(len(offsets), after, 0, 100, b"".join(entries + frames))


def begun(offset: int, stop_at: int = -1) -> Position:
    position = Position(AT, stop_at=stop_at)
    position.begin(offset)
    return position


def test_reading_advances_and_handing_out_follows() -> None:
    position = begun(5)
    (batch,) = position.advance(pulled([5, 6], 7), 10)
    assert (position.offset, position.handed_out, position.uncommitted) == (7, 5, False)
    assert [message.body for message in batch.hand_out()] == [b"5", b"6"]
    assert (position.handed_out, position.uncommitted) == (7, True)
    position.committed = 7
    assert not position.uncommitted


def test_what_is_left_out_counts_as_handed_out_only_if_nothing_before_is_open() -> None:
    position = begun(0)
    assert position.advance(pulled([], 4), 10) == []
    assert position.handed_out == 4
    assert len(position.advance(pulled([4], 5), 10)) == 1
    assert position.advance(pulled([], 9), 10) == []
    assert position.handed_out == 4


def test_nothing_at_or_after_the_stop_is_given() -> None:
    position = begun(0, stop_at=2)
    (batch,) = position.advance(pulled([0, 1, 2, 3], 4), 10)
    assert ([message.offset for message in batch.messages], batch.after, position.finished) == ([0, 1], 2, True)


def test_a_pull_is_handed_out_in_batches() -> None:
    position = begun(0)
    batches = position.advance(pulled([0, 1, 3, 4, 5], 8), 2)
    assert [[message.offset for message in batch.messages] for batch in batches] == [[0, 1], [3, 4], [5]]
    assert [batch.is_first for batch in batches] == [True, False, False]
    for batch, handed_out in zip(batches, [2, 5, 8], strict=True):
        batch.hand_out()
        assert position.handed_out == handed_out


def test_a_batch_is_void_after_a_seek_and_after_the_queue_was_given_up() -> None:
    position = begun(0)
    (first,) = position.advance(pulled([0], 1), 10)
    position.begin(0)
    (second,) = position.advance(pulled([0], 1), 10)
    assert (first.void, second.void) == (True, False)
    position.live = False
    assert second.void


def test_a_gap_is_passed_and_counted_and_an_offset_beyond_the_end_is_an_error() -> None:
    position = begun(3)
    assert position.pass_gap(Bounds("t:0", 10, 20)) == 7
    assert (position.offset, position.handed_out) == (10, 10)
    assert position.pass_gap(Bounds("t:0", 0, 20)) == 0
    with pytest.raises(OffsetOutOfRange):
        begun(21).pass_gap(Bounds("t:0", 0, 20))


def test_a_pull_shares_the_read_ahead_and_waits_only_without_an_end() -> None:
    limits = PullLimits(batch_max=7, prefetch_bytes=1_000_000, tags=("a",))
    pull = limits.pull(begun(3), queues=4)
    assert (pull.offset, pull.bytes_max, pull.count_max) == (3, 125_000, 7 * BATCHES_MAX)
    assert (pull.wait_s, pull.tags) == (PULL_WAIT_S, ("a",))
    assert limits.pull(begun(3), queues=1000).bytes_max == 65_536
    assert limits.pull(begun(3, stop_at=9), queues=1).wait_s == 0


@pytest.mark.parametrize(("place", "offset"), [("earliest", 2), ("latest", 9), (5, 5), (9, 9)])
def test_a_place_is_a_name_or_an_offset_in_range(place: int, offset: int) -> None:
    assert place_offset(Bounds("t:0", 2, 9), place) == offset


def test_other_places_are_refused() -> None:
    for place in (1, 10):
        with pytest.raises(OffsetOutOfRange, match="2 to 9"):
            place_offset(Bounds("t:0", 2, 9), place)
    with pytest.raises(InvalidRequest):
        place_offset(Bounds("t:0", 2, 9), "middle")  # type: ignore[arg-type]


def test_a_text_is_one_tag() -> None:
    assert chosen_tags("paid") == chosen_tags(["paid"]) == ("paid",)
    assert chosen_tags(("a", "b")) == ("a", "b")
    assert chosen_tags("") == chosen_tags([]) == ()
    for wrong in (5, [5], None):
        with pytest.raises(InvalidRequest, match="tags are a str or several, not"):
            chosen_tags(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"no message has the tag \*"):
        chosen_tags(["paid", "*"])


def test_a_position_that_is_handed_over_passes_what_is_finished() -> None:
    position = begun(5)
    [batch] = position.advance(pulled([5, 7, 8], 10), 500)
    unfinished = batch.hand_over()
    assert (position.handed_out, position.passed) == (10, 5)
    unfinished.finish(7)
    assert position.passed == 5
    unfinished.finish(5)
    assert position.passed == 8
    position.leave_off()
    assert (position.offset, position.passed, position.unfinished) == (8, 8, None)
