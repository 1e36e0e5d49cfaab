"""How halves begin and end, and what is read of those that a broker asks about."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from penstock.blocking import transaction as blocking
from penstock.client.halves import (
    Beginning,
    Half,
    begun,
    check_ended,
    check_group,
    ends_of,
    halves_in,
    left_to_checks,
    verdict_of,
)
from penstock.client.preparation import Preparation
from penstock.client.sending import Outgoing
from penstock.client.transaction import Transaction
from penstock.errors import (
    Busy,
    HalfNotFound,
    InternalError,
    InvalidRequest,
    OutcomeStands,
    PenstockError,
    ProtocolError,
    TimedOut,
    Unavailable,
)
from penstock.protocol.message import FLAG_SEQUENCED, Message, encode_message
from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    BeginHalf,
    EndHalves,
    HalfBegun,
    HalfEnded,
    HalfOutcome,
    HalfPart,
    HalfRow,
    HalvesBegun,
    HalvesEnded,
    HalvesToCheck,
)
from penstock.protocol.runs import checksum_of, decode_runs
from tests.penstock.client.at_broker import runs_at_broker
from topicmap.queues import TopicMap

WAY = Beginning("payments")


def outgoing(count: int = 3) -> list[Outgoing]:
    messages = [Message("t", b"%d" % at, key=str(at // 2)) for at in range(count)]
    made = runs_at_broker(Preparation(1, TopicMap()), messages, 77)
    for one in made:
        one.broker = BrokerRoute("a", "10.0.0.1:1", 4)
    return made


def test_the_messages_of_a_transaction_begin_as_one_half_all_or_none_of_them() -> None:
    many = outgoing()
    request = WAY.request(many)
    assert isinstance(request, BeginHalf)
    assert (request.group, request.count, request.checksum) == ("payments", 3, checksum_of(bytes(request.body)))
    assert [run.bodies for run in decode_runs(bytes(request.body))] == [[b"0", b"1"], [b"2"]]
    WAY.settle(many, "a", HalfBegun(7))
    assert begun(many) == ([Half("a", "10.0.0.1:1", 7)], None)
    many = outgoing()  # a run of two messages, and one
    WAY.settle(many, "a", HalfBegun(9, (), (HalfPart(0, 9), HalfPart(2, 7))))
    assert [one.offset for one in many] == [9, 7]
    many = outgoing()
    WAY.settle(many, "a", HalfBegun(0, (Refused(1, Busy.code, "full"),)))
    assert WAY.again(many) == many
    halves, error = begun(many)
    assert (halves, type(error)) == ([], Busy)


def test_a_half_that_may_have_begun_is_begun_again_where_the_broker_knows_its_messages() -> None:
    known = outgoing()
    WAY.settle(known, "a", TimedOut("no answer"))
    assert WAY.again(known) == known
    for result, error_of in ((TimedOut("no answer"), TimedOut), (HalvesBegun((7,)), InternalError)):
        many = outgoing(1)
        for one in many:
            one.run.flag &= ~FLAG_SEQUENCED
        WAY.settle(many, "a", result)
        assert WAY.again(many) == []
        assert [(type(one.error), one.unknown) for one in many] == [(error_of, True)]
        WAY.settle(many, "a", Busy("full"))
        assert WAY.again(many) == []


def test_halves_end_with_one_request_for_each_broker() -> None:
    halves = [Half("a", "x:1", 1), Half("b", "y:1", 2), Half("a", "x:1", 3)]
    assert list(ends_of("g", halves, "commit")) == [
        (halves[0], EndHalves("g", (HalfOutcome(1, "commit"), HalfOutcome(3, "commit")))),
        (halves[1], EndHalves("g", (HalfOutcome(2, "commit"),))),
    ]
    assert list(ends_of("g", halves, "unknown")) == []


def test_what_a_half_was_refused_with_is_raised() -> None:
    check_ended(HalvesEnded((HalfEnded(1, "commit"),)))
    for code, error, unknown in ((36, OutcomeStands, False), (35, HalfNotFound, True)):
        with pytest.raises(error, match="why") as caught:
            check_ended(HalvesEnded((HalfEnded(1, "commit"), HalfEnded(2, "", code, "why"))))
        assert caught.value.unknown is unknown


def test_a_commit_that_may_come_later_is_unknown_and_one_that_was_refused_is_not() -> None:
    assert left_to_checks(Busy("full")).unknown
    refusal = OutcomeStands("rolled back")
    assert left_to_checks(refusal) is refusal


def test_what_a_broker_asks_about_is_read_or_the_answer_is_wrong() -> None:
    record = encode_message(Message("t", b"x", key="k", properties={"a": "b"}))
    rows = tuple([HalfRow(id, "g", 5, 2, "", "t", "k", len(record)) for id in (1, 2)])
    first, second = halves_in(HalvesToCheck(rows, record * 2), "a")
    assert (first.id, second.id, first.broker, first.began_ms, first.checks) == (1, 2, "a", 5, 2)
    assert (first.topic, first.key, first.body, dict(first.properties)) == ("t", "k", b"x", {"a": "b"})
    [both] = halves_in(HalvesToCheck((rows[0]._replace(size=2 * len(record), messages=2),), record * 2), "a")
    assert both.messages == (first.message, second.message)
    for damaged in (b"", b"\0\0\0\0", record[:-1], record + b"\0"):
        with pytest.raises(ProtocolError):
            halves_in(HalvesToCheck((rows[0]._replace(size=len(damaged)),), damaged), "a")
    with pytest.raises(ProtocolError, match="the half 2 of a is no message"):
        halves_in(HalvesToCheck(rows, record), "a")


@pytest.mark.parametrize("said", [None, "Commit", 7, b"commit"])
def test_a_listener_says_a_verdict_or_nothing_that_counts(said: Any) -> None:
    assert [verdict_of(one) for one in ("commit", "rollback", "unknown")] == ["commit", "rollback", "unknown"]
    with pytest.raises(InvalidRequest, match="a listener says 'commit'"):
        verdict_of(said)


@pytest.mark.parametrize(("group", "listener"), [(5, None), (None, None), ("", print), ("g", 5)])
def test_a_listener_belongs_to_a_group(group: Any, listener: Any) -> None:
    check_group("", None)
    check_group("g", print)
    with pytest.raises(InvalidRequest):
        check_group(group, listener)


@pytest.mark.parametrize("kind", ["async", "blocking"])
@pytest.mark.parametrize(
    ("use", "told"), [("commit", "may be committed"), ("unknown", "gone"), ("rollback", ""), ("error", "")]
)
def test_a_block_whose_outcome_is_refused_says_so_alike_in_both_flavours(kind: str, use: str, told: str) -> None:
    asked: list[str] = []

    def refuse(outcome: str) -> None:
        asked.append(outcome)
        raise Unavailable("gone")

    async def begin() -> list[Half]:
        return [Half("a", "h:1", 1)]

    async def end(halves: list[Half], outcome: str) -> None:
        refuse(outcome)

    def work(tx: Any) -> None:
        if use == "error":
            raise KeyError("mine")
        if use != "commit":
            getattr(tx, use)()

    async def run() -> None:
        async with Transaction(begin, end) as tx:
            work(tx)

    def run_blocking() -> None:
        with blocking.Transaction(lambda: [Half("a", "h:1", 1)], lambda halves, outcome: refuse(outcome)) as tx:
            work(tx)

    raised: BaseException | None = None
    try:
        trio.run(run) if kind == "async" else run_blocking()
    except (PenstockError, KeyError) as error:
        raised = error
    assert str(raised or "").count(told or "mine") == (use != "rollback")
    assert asked == [{"error": ROLLBACK, "rollback": ROLLBACK, "commit": COMMIT, "unknown": UNKNOWN}[use]]
