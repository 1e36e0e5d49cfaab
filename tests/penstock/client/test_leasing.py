"""What is in hand of a popped queue."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.leasing import InHand, Popping, by_queue, ranges_of
from penstock.protocol.message import ENTRY, FRAME_HEAD_BYTES, Message, encode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import Popped, Range

QUEUE = MessageQueue("b", "t", 0)


@given(st.sets(st.integers(0, 40)))
def test_ranges_are_the_offsets_with_neighbours_together(offsets: set[int]) -> None:
    ranges = ranges_of(offsets)
    assert [offset for first, end in ranges for offset in range(first, end)] == sorted(offsets)
    assert all(one.end < other.first for one, other in pairwise(ranges))


def test_what_is_finished_is_told_once_unless_it_failed_and_the_rest_is_in_hand() -> None:
    hand = InHand()
    hand.take([3, 4, 5], 6)
    hand.take([1], 2)
    for offset in (4, 1, 5):
        hand.finish(offset)
    assert (len(hand), hand.open(), hand.span) == (1, (Range(3, 4),), 0)
    told = hand.take_done()
    assert (told, hand.take_done()) == ((Range(1, 2), Range(4, 6)), ())
    hand.not_told(told)
    hand.drop([3])
    assert (hand.take_done(), len(hand)) == (told, 0)


def test_attempts_are_those_of_the_record_and_the_deliveries_beside() -> None:
    record = encode_message(Message("t", b"x"))
    body = ENTRY.pack(7, 0, FRAME_HEAD_BYTES + len(record), 0) + bytes(FRAME_HEAD_BYTES) + record
    popping = Popping(QUEUE)
    [message] = popping.advance(Popped(1, 2, 8, 9, body), 500)[0].messages
    assert (message.attempts, message.offset, message.body) == (2, 7, b"x")
    popping.advance(Popped(1, 0, 8, 9, body), 500)[0].hand_over()
    popping.leave_off()
    assert popping.in_hand.open() == (Range(7, 8),)


def test_messages_are_sorted_out_by_their_queues() -> None:
    other = MessageQueue("b", "t", 1)
    messages = [ReceivedMessage(queue, at, b"", b"", b"") for at, queue in enumerate([QUEUE, other, QUEUE])]
    assert by_queue(messages) == {QUEUE: [0, 2], other: [1]}
