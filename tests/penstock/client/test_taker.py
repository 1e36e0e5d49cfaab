"""What a consumer that pops asks for, and what it asks again when a request failed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.leasing import RANGES_MAX, Popping
from penstock.client.taker import PopTerms, Taker
from penstock.errors import InvalidFilter, InvalidRequest, QueueNotFound, Unavailable
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import AckPopped, Range
from penstock.world import RealClock, new_rng

pytestmark = pytest.mark.interpreted

QUEUE = MessageQueue("b", "t", 0)
TERMS = PopTerms("g", "t", "earliest", "a", "x > 1", 60.0, 16, None, 500)


class StillClock(RealClock):
    """A clock that stands."""

    def monotonic(self) -> float:
        return 100.0


def taker(**given: Any) -> Taker:
    made = Taker(TERMS._replace(**given), StillClock(), new_rng())
    made.queues[QUEUE] = Popping(QUEUE, begun=3)
    return made


def message(offset: int, queue: MessageQueue = QUEUE) -> ReceivedMessage:
    return ReceivedMessage(queue, offset, b"", b"", b"")


def test_a_pop_asks_with_the_terms_of_the_group_and_its_lease_counts_from_then() -> None:
    one = taker()
    popping = one.popping_of(QUEUE)
    asked = one.pull(popping, 1)
    assert (asked.group, asked.queue, asked.begin, asked.invisible_s) == ("g", "t:0", 3, 60.0)
    assert (asked.tags, asked.filter, asked.attempts_max, popping.leased_until) == (("a",), "x > 1", 16, 160.0)


def test_what_is_finished_is_told_once_and_again_where_that_failed() -> None:
    one = taker()
    one.finish([message(4), message(5), message(7)])
    [(popping, request)] = one.acknowledgements()
    assert request == AckPopped("g", "t:0", (Range(4, 6), Range(7, 8)))
    assert list(one.acknowledgements()) == []
    assert one.not_told(popping, request, QueueNotFound("deleted")) is None
    assert list(one.acknowledgements()) == []
    lost = Unavailable("lost")
    assert one.not_told(popping, request, lost) is lost
    assert [asked for _, asked in one.acknowledgements()] == [request]
    one.finish([message(2 * at) for at in range(RANGES_MAX + 1)])
    assert [len(asked.ranges) for _, asked in one.acknowledgements()] == [RANGES_MAX, 1]


def test_leases_are_extended_of_what_waits_and_in_a_handler_of_what_is_in_hand() -> None:
    one = taker()
    popping = one.popping_of(QUEUE)
    popping.in_hand.take([1, 2], 3)
    assert one.renewals([], in_hand=False) == []
    [(_, [asked])] = one.renewals([[message(8)]], in_hand=True)
    assert (asked.ranges, asked.invisible_s, popping.leased_until) == ((Range(8, 9), Range(1, 3)), 60.0, 160.0)
    [(_, [back])] = one.returned()
    assert (back.ranges, back.invisible_s, one.returned()) == ((Range(1, 3),), 0.0, [])


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"invisible_s": 0}, "invisible_s is more than 0"),
        ({"invisible_s": 43_201}, "invisible_s is at most 43_200"),
        ({"group": ["t"]}, "the group comes first"),
        ({"batch_max": 0}, "batch_max"),
        ({"tags": 5}, "tags are a str or several"),
    ],
)
def test_wrong_terms_are_refused(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        taker(**wrong)
    with pytest.raises(InvalidFilter):
        taker(filter="x >")
    with pytest.raises(QueueNotFound):
        taker().finish(message(1, QUEUE._replace(number=1)))
