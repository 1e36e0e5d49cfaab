"""A broker that leads its log, does not, and leads it again, in one process."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.flusher import Flusher
from broker.net.lead import ALONE_AFTER, BrokerSession, Lead
from penstock.errors import NotLeader, PenstockError, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.groups import Assignment, CommitOffsets, JoinGroup, QueueOffset
from penstock.protocol.requests.messages import Appended, Pull, Pulled
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, bodies


class Client:
    """A session that outlives leaderships; it must get each answer once."""

    def __init__(self, lead: Lead, number: int = 1) -> None:
        self.session = BrokerSession(lead, number, False)

    def ask(self, request: Request) -> list[Result]:
        answers: list[Result] = []

        def answered(result: Result) -> None:
            assert not answers, f"{request} has two answers: {answers[0]} and {result}"
            answers.append(result)

        self.session.submit(request, answered)
        self.session.flush()
        return answers


def refusal(answers: list[Result], *, unknown: bool = False) -> PenstockError:
    """The one answer, which is an error that a retry can mend."""
    [error] = answers
    assert isinstance(error, PenstockError)
    assert (error.retryable, error.unknown) == (True, unknown)
    return error


def test_stepping_down_answers_all_that_waits_and_refuses_what_comes() -> None:
    rig = Rig()
    client = Client(rig.lead)
    rig.ask(CreateTopic("t", 1))
    parked = client.ask(Pull("t:0", 0, wait_s=60.0))
    waiting = client.ask(append(Message("t", b"1")))
    fact = client.ask(OpenFilters("g", ("a",)))
    rig.lead.step_down()
    refusal(parked)
    refusal(waiting, unknown=True)
    refusal(fact, unknown=True)
    refusal(client.ask(append(Message("t", b"2"))))
    refusal(client.ask(Pull("t:0", 0)))
    rig.lead.step_down()
    written = rig.store.written
    for _ in range(20):
        rig.clock.now += 1.0
        rig.lead.tick()
        rig.sync()
    assert rig.store.written == written, "whoever does not lead appends nothing"
    assert rig.lead.service is None
    assert rig.lead.reasons() == ["this broker does not lead its log"]


def test_a_held_session_is_answered_too_and_stays_held_in_the_next_leadership() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    client = Client(rig.lead)
    client.session.hold()
    refused = client.ask(Pull("t:0", 0, wait_s=60.0))
    rig.lead.step_down(Unavailable("over"))
    assert refusal(refused).message == "over"
    rig.lead.lead()
    again = client.ask(Pull("t:0", 0, wait_s=60.0))
    rig.ask(append(Message("t", b"1")))
    assert again == []
    client.session.release()
    [pulled] = again
    assert isinstance(pulled, Pulled)
    assert bodies(pulled) == [b"1"]


def test_the_next_leadership_has_a_new_epoch_what_the_log_says_and_no_memory() -> None:
    rig = Rig()
    client = Client(rig.lead)
    rig.ask(append(Message("t", b"1")))
    first = joined(rig)
    rig.ask(CommitOffsets("g", "a", first.generation, (QueueOffset("t:0", 1),)))
    epoch, before = rig.state.epoch, rig.state.offsets.of("g")["t:0"]
    sent = client.ask(append(Message("t", b"2")))
    rig.lead.step_down()
    refusal(sent, unknown=True)
    rig.sync()
    rig.lead.lead()
    service = rig.service
    rig.lead.lead()
    assert rig.service is service, "one leadership at a time"
    assert rig.state.epoch == epoch + 1
    late = rig.ask(CommitOffsets("g", "a", first.generation, (QueueOffset("t:0", 2),)))
    assert isinstance(late, PenstockError)
    again = joined(rig)
    assert again.generation > first.generation
    assert before == rig.state.offsets.of("g")["t:0"]
    told = client.ask(append(Message("t", b"3")))
    assert told == []
    rig.sync()
    assert isinstance(told[0], Appended)
    assert b"3" in [body for number in range(4) for body in rig.bodies(f"t:{number}")]


def joined(rig: Rig) -> Assignment:
    answer = rig.ask(JoinGroup("g", "a", ("t",), 10.0))
    assert isinstance(answer, Assignment), answer
    return answer


def test_a_sync_that_ends_after_a_leadership_answers_nothing_of_it_twice() -> None:
    rig = Rig()
    client = Client(rig.lead)
    rig.ask(CreateTopic("t", 1))
    sent = client.ask(append(Message("t", b"1")))
    flusher = Flusher(rig.store, rig.clock, quick_s=1.0)
    rig.lead.step_down()
    rig.lead.lead()
    flusher._sync_here(rig.lead)
    refusal(sent, unknown=True)
    assert rig.bodies("t:0") == [b"1"], "its outcome was not known, and it is there"


def test_counters_go_on_over_leaderships() -> None:
    rig = Rig()
    rig.ask(append(Message("t", b"1")))
    rig.lead.step_down()
    assert rig.lead.figures()["rocketmq_messages_in_total"] == 1
    rig.lead.lead()
    rig.ask(append(Message("t", b"2")))
    figures: dict[str, Any] = rig.lead.figures()
    assert (figures["rocketmq_messages_in_total"], figures["penstock_topics"]) == (2, 1)


@pytest.mark.parametrize("times", [1, 5])
def test_what_was_opened_before_is_served_after(times: int) -> None:
    rig = Rig()
    rig.ask(OpenFilters("g", ("a/+",)))
    for number in range(times):
        rig.lead.step_down()
        rig.lead.lead()
        rig.ask(append(Message("a", b"%d" % number, mqtt_topic="a/b")))
    wanted = [b"%d" % number for number in range(times)]
    assert rig.bodies("~filter:a/+", rig.store.bounds("~filter:a/+").min) == wanted


def test_a_session_that_alone_changes_things_waits_for_nobody_until_another_one_does() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    is_whole: list[bool] = []
    rig.lead.dispatch._on_unsynced = lambda is_waited_for, whole: is_whole.append(whole)
    one, other, reader = (Client(rig.lead, number) for number in (1, 2, 3))
    for _ in range(ALONE_AFTER + 2):
        one.ask(append(Message("t", b"x")))
        reader.ask(Pull("t:0", 0))
    assert is_whole[::2] == [False] * ALONE_AFTER + [True] * 2
    assert not any(is_whole[1::2]), "what is only read says nothing of who else may append"
    other.ask(append(Message("t", b"x")))
    one.ask(append(Message("t", b"x")))
    assert is_whole[-2:] == [False, False]


def test_a_broker_that_follows_serves_reads_and_names_the_leader_for_all_else() -> None:
    rig = Rig()
    client = Client(rig.lead)
    rig.ask(CreateTopic("t", 1))
    rig.ask(append(Message("t", b"1")))
    rig.lead.step_down(NotLeader("b leads", hint="b:1"))
    rig.lead.follow(rig.store)
    [pulled] = client.ask(Pull("t:0", 0))
    assert isinstance(pulled, Pulled)
    assert bodies(pulled) == [b"1"]
    for request in (append(Message("t", b"2")), JoinGroup("g", "m", ("t",))):
        error = refusal(client.ask(request))
        assert isinstance(error, NotLeader)
        assert error.leader == "b:1"
    waits = client.ask(Pull("t:0", 1, wait_s=60.0))
    rig.lead.refuse(NotLeader("c leads", hint="c:1"))
    assert refusal(client.ask(append(Message("t", b"2")))).hint == "c:1"
    assert not waits
    rig.lead.lead()
    refusal(waits)
    again = client.ask(Pull("t:0", 1, wait_s=60.0))
    rig.ask(append(Message("t", b"2")))
    assert isinstance(again[0], Pulled)


def test_nothing_is_read_of_a_log_that_is_let_go() -> None:
    rig = Rig()
    client = Client(rig.lead)
    rig.ask(CreateTopic("t", 1))
    rig.lead.step_down(NotLeader("b leads", hint="b:1"))
    rig.lead.follow(rig.store)
    waits = client.ask(Pull("t:0", 0, wait_s=60.0))
    rig.lead.let_go()
    assert isinstance(refusal(waits), NotLeader)
    assert isinstance(refusal(client.ask(Pull("t:0", 0))), NotLeader)
