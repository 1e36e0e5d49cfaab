"""Popped queues: leases that end, acknowledgements that stay, attempts that are counted, over restarts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from broker.shares.pops import PopRequests
from penstock.errors import Fenced, GroupNotFound, InvalidFilter, InvalidRequest, PenstockError, QueueNotFound
from penstock.protocol.batches import decode_queue
from penstock.protocol.message import Message
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.groups import (
    Assignment,
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupLag,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    QueueOffset,
)
from penstock.protocol.requests.pops import AckPopped, ExtendPopped, LeavePopped, Pop, Popped, Range, SendPoppedBack
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.retries import SentBack
from penstock.protocol.requests.shares import ListShares, SettleShared, TakeShared
from penstock.protocol.requests.topics import CreateTopic, DeleteTopic
from tests.broker.broker_rig import Rig, append
from tests.broker.groups.test_retries import messages, pass_s

QUEUE = "orders:0"


def rig_with(count: int, **settings: Any) -> Rig:
    rig = Rig(retry_delays_s=(1.0, 5.0), **settings)
    rig.ask(CreateTopic("orders", 1, "disk"))
    put(rig, count)
    return rig


ODD = "odd = 'yes'"


def put(rig: Rig, count: int, start: int = 0) -> None:
    """Every third one is of tag ``a``, every second one is odd."""
    if count:
        numbers = range(start, start + count)
        rig.ask(append(*[Message("orders", b"%d" % at, tag="abc"[at % 3], properties=oddness(at)) for at in numbers]))


def oddness(number: int) -> dict[str, str]:
    return {"odd": "yes" if number % 2 else "no"}


def pop(rig: Rig, taker: str = "a", **given: Any) -> Popped:
    given = {"invisible_s": 10.0, "begin": 0, "queue": QUEUE} | given
    answer = rig.ask(Pop("g", taker=taker, **given))
    assert isinstance(answer, Popped)
    return answer


def received(popped: Popped) -> list[ReceivedMessage]:
    return decode_queue(popped.count, popped.body, MessageQueue("b", "orders", 0), popped.checksum)


def offsets(popped: Popped) -> list[int]:
    return [one.offset for one in received(popped)]


def acknowledge(rig: Rig, *ranges: tuple[int, int]) -> None:
    assert rig.ask(AckPopped("g", QUEUE, tuple(Range(*one) for one in ranges))) == Done()


def refused(rig: Rig, request: Any) -> PenstockError:
    [error] = rig.submit(request)
    assert isinstance(error, PenstockError)
    return error


def test_takers_share_one_queue_and_what_is_not_acknowledged_in_time_goes_out_again() -> None:
    rig = rig_with(10)
    assert offsets(pop(rig, "a", count_max=4)) == [0, 1, 2, 3]
    assert offsets(pop(rig, "b", count_max=4)) == [4, 5, 6, 7]
    acknowledge(rig, (1, 2), (4, 7))
    pass_s(rig, 9.0)
    assert offsets(pop(rig, "b")) == [8, 9]
    assert pop(rig, "b").count == 0
    pass_s(rig, 1.0)
    again = [pop(rig, "b") for _ in range(3)]
    assert [(offsets(one), one.deliveries) for one in again] == [([0], 1), ([2, 3], 1), ([7], 1)]
    acknowledge(rig, (0, 1), (2, 4), (7, 10))
    pass_s(rig, 100.0)
    assert pop(rig).count == 0
    assert rig.theme(PopRequests).counts("$pop/g/orders:0") == (0, 0)


def test_an_acknowledgement_is_answered_when_it_is_durable_and_stays_over_restarts() -> None:
    rig = rig_with(6)
    pop(rig)
    answers = rig.submit(AckPopped("g", QUEUE, (Range(0, 2), Range(4, 5))))
    assert answers == []
    rig.sync()
    assert answers == [Done()]
    again = rig.restarted()
    assert [offsets(pop(again)) for _ in range(3)] == [[2, 3], [5], []]
    assert again.ask(AckPopped("g", QUEUE, (Range(0, 6),))) == Done()  # whoever was given it before
    pass_s(again, 100.0)
    assert pop(again).count == 0


def test_no_message_goes_out_before_the_group_is_known_to_pop_durably() -> None:
    rig = rig_with(3)
    answers = [rig.submit(Pop("g", QUEUE, taker, 0, 10.0, count_max=1)) for taker in "ab"]
    assert answers == [[], []]
    rig.disk.lose_power()
    again = rig.restarted()
    assert "pops nothing" in refused(again, AckPopped("g", QUEUE, (Range(0, 1),))).message
    answers = [again.submit(Pop("g", QUEUE, taker, 0, 10.0, count_max=1)) for taker in "ab"]
    again.sync()
    assert [offsets(one) for some in answers for one in some if isinstance(one, Popped)] == [[0], [1]]
    assert [one.count for one in again.submit(Pop("g", QUEUE, "a", 0)) if isinstance(one, Popped)] == [1]


def test_a_lease_is_extended_or_given_back_by_its_taker_alone() -> None:
    rig = rig_with(4)
    pop(rig, "a")
    rig.ask(ExtendPopped("g", QUEUE, "a", (Range(0, 2),), 30.0))
    rig.ask(ExtendPopped("g", QUEUE, "b", (Range(0, 4),), 99.0))
    pass_s(rig, 10.0)
    back = pop(rig, "b")
    assert (offsets(back), back.deliveries) == ([2, 3], 1)
    rig.ask(ExtendPopped("g", QUEUE, "b", (Range(3, 4),), 0.0))
    untried = pop(rig, "c")
    assert (offsets(untried), untried.deliveries) == ([3], 1)
    pass_s(rig, 20.0)
    assert [(offsets(one), one.deliveries) for one in (pop(rig), pop(rig))] == [([0, 1], 1), ([2, 3], 2)]


def test_what_is_given_back_comes_again_in_the_retry_topic_with_its_attempts() -> None:
    rig = rig_with(3)
    pop(rig, "a")
    pass_s(rig, 10.0)
    assert pop(rig, "a").deliveries == 1
    answers = rig.submit(SendPoppedBack("g", QUEUE, "a", 1, reason="no"))
    assert answers == []
    rig.sync()
    assert answers == [SentBack(2, rig.times.wall_ms() + 5000)]
    pass_s(rig, 5.0)
    retried = pop(rig, "a", queue="%RETRY%g:0")
    [message] = decode_queue(1, retried.body, MessageQueue("b", "%RETRY%g", 0), retried.checksum)
    assert (message.topic, message.body, message.attempts) == ("orders", b"1", 2)
    assert isinstance(refused(rig, SendPoppedBack("g", QUEUE, "a", 1)), Fenced)
    assert isinstance(refused(rig, SendPoppedBack("g", QUEUE, "b", 2)), Fenced)
    assert rig.ask(SendPoppedBack("g", "%RETRY%g:0", "a", 0, attempts_max=3)) == SentBack(3, 0)
    pass_s(rig, 100.0)
    assert offsets(pop(rig)) == [0]
    assert offsets(pop(rig)) == [2]
    assert [one.body for one in messages(rig, "%DLQ%g:0")] == [b"1"]


def test_what_is_never_acknowledged_is_a_dead_letter_in_the_append_that_settles_it() -> None:
    rig = rig_with(3)
    for deliveries in range(3):
        popped = pop(rig, attempts_max=3)
        assert (offsets(popped), popped.deliveries) == ([0, 1, 2], deliveries)
        pass_s(rig, 10.0)
    rig.ask(AckPopped("g", QUEUE, (Range(1, 2),)))
    assert pop(rig, attempts_max=3).count == 0
    rig.sync()
    letters = messages(rig, "%DLQ%g:0")
    assert [(one.body, one.properties["REASON"]) for one in letters] == [
        (b"0", "it was not acknowledged in time"),
        (b"2", "it was not acknowledged in time"),
    ]
    again = rig.restarted()
    assert pop(again).count == 0


def test_a_waiting_taker_hears_of_new_messages_and_of_leases_that_are_over() -> None:
    rig = rig_with(0)
    waiting = rig.submit(Pop("g", QUEUE, "a", 0, 10.0, wait_s=60.0))
    put(rig, 2)
    assert [offsets(one) for one in waiting if isinstance(one, Popped)] == [[0, 1]]
    later = rig.submit(Pop("g", QUEUE, "b", 0, 10.0, wait_s=60.0))
    rig.clock.now += 10.0
    rig.dispatch.tick()
    assert [(offsets(one), one.deliveries) for one in later if isinstance(one, Popped)] == [([0, 1], 1)]


def test_what_a_taker_that_left_has_and_waits_for_goes_to_others() -> None:
    rig = rig_with(3)
    pop(rig, "a")
    parked = rig.submit(Pop("g", QUEUE, "a", 0, 10.0, wait_s=60.0))
    assert rig.ask(LeavePopped("g", "a")) == Done()
    assert [one.count for one in parked if isinstance(one, Popped)] == [0]
    back = pop(rig, "b")
    assert (offsets(back), back.deliveries) == ([0, 1, 2], 0)


def test_a_group_begins_where_it_has_come_with_members_and_not_while_it_has_some() -> None:
    rig = rig_with(5)
    joined = rig.ask(JoinGroup("g", "m", ("orders",), 60.0))
    rig.ask(CommitOffsets("g", "m", joined.generation, (QueueOffset(QUEUE, 3),)))
    assert "has members" in refused(rig, Pop("g", QUEUE, "a", 0)).message
    pass_s(rig, 61.0)
    assert offsets(pop(rig)) == [3, 4]


def test_members_go_on_where_a_group_was_popped_to_and_pops_where_its_members_were() -> None:
    rig = rig_with(9)
    pop(rig, "a")
    acknowledge(rig, (0, 3), (5, 6))
    rig.ask(LeavePopped("g", "a"))
    for more in (3, 7):
        rig = rig.restarted()
        joined = rig.ask(JoinGroup("g", "m", ("orders",), 60.0))
        assert joined.queues == (QueueOffset(QUEUE, more),)
        rig.ask(CommitOffsets("g", "m", joined.generation, (QueueOffset(QUEUE, more + 2),)))
        rig.ask(LeaveGroup("g", "m"))
        assert offsets(pop(rig, "b", count_max=2)) == [*range(more + 2, min(more + 4, 9))]
        acknowledge(rig, (more + 2, more + 4))
        rig.ask(LeavePopped("g", "b"))
    assert rig.ask(DescribeGroup("g")).lags == (GroupLag(QUEUE, 9, 9),)


def test_a_group_that_is_popped_takes_no_members_and_is_neither_reset_nor_deleted() -> None:
    rig = rig_with(5)
    changes = CommitOffsets("g", "", 0, (QueueOffset(QUEUE, 2),)), DeleteGroup("g")

    def is_popped() -> bool:
        found = refused(rig, JoinGroup("g", "m", ("orders",), 60.0))
        assert isinstance(found, InvalidRequest)
        assert "group g is popped by a, so m cannot be its member" in found.message
        assert rig.ask(DescribeGroup("g")).takers == ("a",)
        return all("group g is popped by a" in refused(rig, one).message for one in changes)

    pop(rig, "a")
    assert is_popped(), "it has messages"
    acknowledge(rig, (0, 5))
    rig.submit(Pop("g", QUEUE, "a", 0, wait_s=20.0))
    pass_s(rig, 21.0)
    assert is_popped(), "it waits for some"
    rig.ask(LeavePopped("g", "a"))
    assert [one.group for one in rig.ask(ListGroups()).groups] == ["g"]
    assert rig.ask(DescribeGroup("g")).lags == (GroupLag(QUEUE, 5, 5),)
    assert rig.ask(changes[0]) == Done()
    assert rig.ask(FetchOffsets("g", (QUEUE,))).offsets == (QueueOffset(QUEUE, 2),)
    again = rig.restarted()
    assert offsets(pop(again, "b", count_max=1)) == [2]
    pass_s(again, 11.0)
    assert rig_joins(again)


def rig_joins(rig: Rig) -> bool:
    return isinstance(rig.ask(JoinGroup("g", "m", ("orders",), 60.0)), Assignment)


def test_a_taker_that_fell_silent_does_not_keep_members_out() -> None:
    rig = rig_with(0)
    rig.submit(Pop("g", QUEUE, "a", 0, wait_s=20.0))
    pass_s(rig, 26.0)
    assert rig_joins(rig)


def test_what_is_popped_ends_with_its_topic() -> None:
    rig = rig_with(2)
    pop(rig)
    rig.ask(DeleteTopic("orders"))
    assert isinstance(refused(rig, AckPopped("g", QUEUE, (Range(0, 1),))), QueueNotFound)
    assert isinstance(refused(rig, Pop("g", QUEUE, "a", 0)), QueueNotFound)
    rig.ask(CreateTopic("orders", 1, "disk"))
    put(rig, 1, start=7)
    assert [one.body for one in received(pop(rig, begin=2))] == [b"7"]


def test_what_a_group_pops_ends_with_the_group() -> None:
    rig = rig_with(3)
    pop(rig)
    acknowledge(rig, (0, 3))
    assert rig.ask(DeleteGroup("g")) == Done()
    assert isinstance(refused(rig, DeleteGroup("g")), GroupNotFound)
    assert rig.ask(ListShares()).shares == ()
    again = rig.restarted()
    assert offsets(pop(again, begin=1)) == [1, 2]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"tags": ("a",)}, range(0, 60, 3)),
        ({"filter": ODD}, range(1, 60, 2)),
        ({"tags": ("c", "a"), "filter": ODD}, [at for at in range(1, 60, 2) if at % 3 != 1]),
        ({"filter": "odd = 'perhaps'"}, []),
    ],
)
def test_a_group_with_tags_or_a_filter_gets_what_it_wants_and_the_rest_is_settled(given: Any, wanted: Any) -> None:
    rig = rig_with(60)
    got: list[int] = []
    for _ in range(60):
        popped = pop(rig, "a", count_max=7, **given)
        got += offsets(popped)
        if popped.count > 1:
            acknowledge(rig, *[(one, one + 1) for one in offsets(popped)[1:]])
    pass_s(rig, 10.0)
    while (popped := pop(rig, "b", **given)).count:  # the first of each batch was forgotten
        assert popped.deliveries == 1
        acknowledge(rig, *[(one, one + 1) for one in offsets(popped)])
    pass_s(rig, 0.0)
    assert got == list(wanted)
    assert rig.ask(DescribeGroup("g")).lags == (GroupLag(QUEUE, 60, 60),)
    again = rig.restarted()
    pass_s(again, 100.0)
    assert pop(again).count == 0


def test_all_takers_of_a_group_have_one_filter_and_another_one_when_all_have_gone() -> None:
    rig = rig_with(6)
    assert offsets(pop(rig, "a", filter=ODD, count_max=2)) == [1, 3]
    asked = Pop("g", QUEUE, "b", 0, tags=("c", "a"), filter="odd = 'no'")
    assert (
        "group g is popped by a with the filter \"odd = 'yes'\", and b has the tags a, c and the filter \"odd = 'no'\""
        in refused(rig, asked).message
    )
    assert "and b has no filter" in refused(rig, Pop("g", QUEUE, "b", 0)).message
    assert isinstance(refused(rig, Pop("h", QUEUE, "b", 0, filter="odd =")), InvalidFilter)
    assert offsets(pop(rig, "b", filter=ODD, count_max=1)) == [5]
    rig.ask(SendPoppedBack("g", QUEUE, "b", 5, delay_ms=0))
    for taker in "ab":
        rig.ask(LeavePopped("g", taker))
    assert rig.ask(asked).count == 0  # what the others wanted and did not do is left out, too
    retried = pop(rig, "b", queue="%RETRY%g:0", tags=("a", "c"), filter="odd = 'no'")
    assert retried.count == 1, "a retry was wanted before"
    assert refused(rig, Pop("g", QUEUE, "c", 0, filter=ODD))


def test_a_taker_whose_wait_brings_nothing_wanted_is_told_to_ask_again() -> None:
    rig = rig_with(0)
    waiting = rig.submit(Pop("g", QUEUE, "a", 0, 10.0, wait_s=60.0, filter=ODD))
    put(rig, 1)
    assert [(one.count, one.next) for one in waiting if isinstance(one, Popped)] == [(0, 1)]
    put(rig, 1, start=1)
    assert offsets(pop(rig, filter=ODD)) == [1]


def test_operators_see_it_among_the_shares_and_gateways_cannot_take_it() -> None:
    rig = rig_with(5)
    pop(rig, count_max=3)
    acknowledge(rig, (0, 1))
    pass_s(rig, 10.0)
    pop(rig, count_max=1)
    page = rig.ask(ListShares())
    assert [(one.share, one.lag, one.on_way, one.owed) for one in page.shares] == [("$pop/g/orders:0", 4, 1, 1)]
    figures = rig.service.themes.figures()
    assert (figures["penstock_popped_leased"], figures["penstock_popped_owed"]) == (1, 1)
    for request in (TakeShared("$pop/g/orders:0", "x", 1), SettleShared("$pop/g/orders:0", "x", (1,))):
        assert isinstance(refused(rig, request), InvalidRequest)


@pytest.mark.parametrize(
    "wrong",
    [
        Pop("", QUEUE, "a", 0),
        Pop("g", QUEUE, "a", -1),
        Pop("g", "~filter:a", "a", 0),
        Pop("g", QUEUE, "a", 0, 0.0),
        Pop("g", QUEUE, "a", 0, 43_201.0),
        Pop("g", QUEUE, "a", 0, count_max=0),
        Pop("g", QUEUE, "a", 0, attempts_max=0),
        AckPopped("g", QUEUE, ()),
        AckPopped("g", QUEUE, (Range(3, 3),)),
        ExtendPopped("g", QUEUE, "a", (Range(0, 1),), -1.0),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    rig = rig_with(1)
    pop(rig)
    assert isinstance(refused(rig, wrong), InvalidRequest)


@pytest.mark.parametrize("seed", range(30))
def test_each_message_is_acknowledged_owed_or_a_dead_letter_whatever_happens(seed: int) -> None:
    """Takers that acknowledge, give back, extend and forget; brokers that are killed or lose power."""
    rng = random.Random(seed)
    rig = rig_with(0)
    done: set[bytes] = set()
    had: dict[str, list[ReceivedMessage]] = {"a": [], "b": []}
    sent, wanted = 0, rng.choice(["", ODD])
    for _ in range(rng.randint(5, 60)):
        action = rng.choice(["put", "pop", "pop", "ack", "ack", "back", "extend", "time", "restart"])
        taker = rng.choice("ab")
        mine = had[taker]
        if action == "put":
            put(rig, count := rng.randint(1, 20), sent)
            sent += count
        elif action == "pop":
            queue = rng.choice([QUEUE, QUEUE, "%RETRY%g:0"])
            given = rig.submit(Pop("g", queue, taker, 0, 5.0, rng.randint(1, 12), attempts_max=3, filter=wanted))
            for answer in [one for one in given if isinstance(one, Popped)]:
                topic = queue.rpartition(":")[0]
                mine += decode_queue(answer.count, answer.body, MessageQueue("b", topic, 0), answer.checksum)
        elif action == "time":
            pass_s(rig, rng.choice([0.5, 3.0, 6.0]))
        elif action == "restart":
            if rng.random() < 0.5:
                rig.disk.lose_power()
            rig = rig.restarted()
            rig.sync()
        elif mine:
            message = mine.pop(rng.randrange(len(mine)))
            where = message.queue.name, Range(message.offset, message.offset + 1)
            if action == "ack":
                assert rig.ask(AckPopped("g", where[0], (where[1],))) == Done()
                done.add(message.body)
            elif action == "back":
                rig.submit(SendPoppedBack("g", where[0], taker, message.offset, attempts_max=3))
                rig.sync()
            else:
                rig.submit(ExtendPopped("g", where[0], taker, (where[1],), rng.choice([0.0, 20.0])))
    left = {b"%d" % at for at in range(sent) if at % 2 or not wanted} - done
    for _ in range(60):
        pass_s(rig, 30.0)
        for queue in (QUEUE, "%RETRY%g:0"):
            answers = rig.submit(Pop("g", queue, "z", 0, 5.0, attempts_max=3, filter=wanted))
            rig.sync()
            [answer] = answers
            if isinstance(answer, Popped) and answer.count:
                got = decode_queue(answer.count, answer.body, MessageQueue("b", "t", 0), answer.checksum)
                left -= {one.body for one in got}
                rig.ask(AckPopped("g", queue, tuple(Range(one.offset, one.offset + 1) for one in got)))
    found = rig.submit(Pop("dead", "%DLQ%g:0", "z", 0, 5.0, 4096))
    rig.sync()
    [letters] = found
    if isinstance(letters, Popped):
        bodies = Counter(
            one.body for one in decode_queue(letters.count, letters.body, MessageQueue("b", "t", 0), letters.checksum)
        )
        left -= set(bodies)
    assert left == set()
