from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import Damaged, Fenced, InvalidRequest, OffsetOutOfRange, QueueNotFound, from_wire
from penstock.protocol.message import Message, decode_batch
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.groups import Assignment, JoinGroup
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.retries import (
    Back,
    SendAllBack,
    SendBack,
    SendLetterAgain,
    SentAllBack,
    SentBack,
    WentBack,
)
from penstock.protocol.requests.topics import CreateTopic, DeleteTopic
from tests.broker.broker_rig import Rig, append

TABLE = (1.0, 5.0, 20.0)


def joined(**settings: Any) -> tuple[Rig, int]:
    """A broker with one message, and the generation of the group's one member."""
    rig = Rig(retry_delays_s=TABLE, **settings)
    rig.ask(CreateTopic("orders", 1, "disk"))
    rig.ask(append(Message("orders", b"b", key="k", mqtt_topic="orders/1", properties={"p": "v"})))
    answer = rig.ask(JoinGroup("g", "m", ("orders", "%RETRY%g"), 3600.0))
    assert isinstance(answer, Assignment)
    return rig, answer.generation


def pass_s(rig: Rig, seconds: float) -> None:
    rig.clock.now += seconds
    rig.service.tick(rig.clock.now, rig.times.wall_ms(), rig.times.age_ms())
    rig.sync()


def messages(rig: Rig, queue: str, offset: int = 0) -> list[Message]:
    pulled = rig.ask(Pull(queue, offset))
    return [message for _, message in decode_batch(pulled.count, pulled.body)]


def generation(rig: Rig) -> int:
    answer = rig.ask(JoinGroup("g", "m", ("orders", "%RETRY%g"), 3600.0))
    assert isinstance(answer, Assignment)
    return answer.generation


def test_a_message_comes_again_by_the_table_and_is_a_dead_letter_at_the_last_attempt() -> None:
    rig, now = joined()
    answers = [rig.ask(SendBack("g", "m", now, "orders:0", 0, attempts_max=4, reason="first"))]
    for place, delay_s in enumerate(TABLE):
        pass_s(rig, delay_s - 0.001)
        assert len(messages(rig, "%RETRY%g:0")) == place
        pass_s(rig, 0.001)
        assert len(messages(rig, "%RETRY%g:0")) == place + 1
        answers.append(
            rig.ask(SendBack("g", "m", generation(rig), "%RETRY%g:0", place, attempts_max=4, reason=f"after {place}"))
        )
    assert [answer.attempt for answer in answers] == [1, 2, 3, 4]
    assert answers[-1] == SentBack(4, 0)
    pass_s(rig, 1_000.0)
    assert len(messages(rig, "%RETRY%g:0")) == 3
    [letter] = messages(rig, "%DLQ%g:0")
    assert (letter.body, letter.key) == (b"b", "k")
    assert letter.properties == {
        "p": "v",
        "ORIGIN_TOPIC": "orders",
        "ORIGIN_NAME": "orders/1",
        "ORIGIN_QUEUE": "orders:0",
        "ORIGIN_OFFSET": "0",
        "REASON": "after 2",
        "GIVEN_BACK": "4:0:2:Zw==:%RETRY%g:0",
    }


def test_a_member_may_say_itself_when_the_message_comes_again() -> None:
    rig, now = joined()
    answer = rig.ask(SendBack("g", "m", now, "orders:0", 0, delay_ms=250))
    assert answer == SentBack(1, rig.times.wall_ms() + 250)
    pass_s(rig, 0.25)
    assert [one.body for one in messages(rig, "%RETRY%g:0")] == [b"b"]


def test_a_message_that_was_given_back_comes_again_whatever_crashes_once_the_member_has_its_answer() -> None:
    rig, now = joined()
    assert isinstance(rig.ask(SendBack("g", "m", now, "orders:0", 0)), SentBack)
    rig.disk.lose_power()
    rig = rig.restarted()
    pass_s(rig, 1.0)
    rig.disk.lose_power()
    rig = rig.restarted()
    pass_s(rig, 1.0)
    assert [one.body for one in messages(rig, "%RETRY%g:0")] == [b"b"]


def test_nothing_is_answered_before_it_is_durable() -> None:
    rig, now = joined()
    answers = rig.submit(SendBack("g", "m", now, "orders:0", 0))
    assert answers == []
    rig.sync()
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"generation": 1}, Fenced),
        ({"member": "other"}, Fenced),
        ({"member": ""}, Fenced),
        ({"queue": "elsewhere:0"}, Fenced),
        ({"offset": 1}, OffsetOutOfRange),
        ({"offset": -1}, OffsetOutOfRange),
        ({"delay_ms": -2}, InvalidRequest),
        ({"attempts_max": 0}, InvalidRequest),
    ],
)
def test_who_may_not_pass_a_message_may_not_give_it_back(changed: dict[str, Any], error: type[Exception]) -> None:
    rig, now = joined()
    given = {"group": "g", "member": "m", "generation": now, "queue": "orders:0", "offset": 0} | changed
    before = rig.store.written
    assert isinstance(rig.ask(SendBack(**given)), error)
    assert rig.store.written == before


def test_a_damaged_message_is_not_given_back_and_says_so() -> None:
    rig, now = joined()
    path = next(path for path in rig.disk.paths("log/") if path.endswith(".log"))
    position = rig.store.position_of("orders:0", 0)
    rig.disk.flip(path, position + 60)
    assert isinstance(rig.ask(SendBack("g", "m", now, "orders:0", 0)), Damaged)


def test_a_retry_whose_topic_was_deleted_meanwhile_makes_it_again() -> None:
    rig, now = joined()
    rig.ask(SendBack("g", "m", now, "orders:0", 0))
    rig.ask(DeleteTopic("%RETRY%g"))
    pass_s(rig, 1.0)
    assert [one.body for one in messages(rig, "%RETRY%g:0")] == [b"b"]


def test_several_messages_are_given_back_together_each_with_an_answer_of_its_own() -> None:
    rig, now = joined()
    rig.ask(append(Message("orders", b"c")))
    rows = (Back("orders:0", 0, -1, "first"), Back("orders:0", 9, -1, ""), Back("orders:0", 1, 0, "second"))
    answers = rig.submit(SendAllBack("g", "m", now, rows))
    assert answers == []
    rig.sync()
    [answer] = answers
    assert isinstance(answer, SentAllBack)
    assert [one[:2] for one in answer.rows] == [(1, rig.times.wall_ms() + 1000), (0, 0), (1, rig.times.wall_ms())]
    assert [from_wire(one.code, one.message).__class__ for one in answer.rows if one.code] == [OffsetOutOfRange]
    pass_s(rig, 1.0)
    assert [(one.body, one.properties["REASON"]) for one in messages(rig, "%RETRY%g:0")] == [
        (b"c", "second"),
        (b"b", "first"),
    ]
    last = rig.ask(SendAllBack("g", "m", generation(rig), (Back("%RETRY%g:0", 1, 0, "last"),), attempts_max=2))
    assert last == SentAllBack((WentBack(2, 0, 0, ""),))
    assert [one.body for one in messages(rig, "%DLQ%g:0")] == [b"b"]
    fenced, none = rig.submit(SendAllBack("g", "other", now, rows)), rig.submit(SendAllBack("g", "m", now, ()))
    assert isinstance(fenced[0], Fenced)
    assert isinstance(none[0], InvalidRequest)


def test_a_message_that_is_to_come_again_at_once_does_not_sleep() -> None:
    rig, now = joined()
    assert rig.ask(SendBack("g", "m", now, "orders:0", 0, delay_ms=0)) == SentBack(1, rig.times.wall_ms())
    assert [(one.body, one.topic) for one in messages(rig, "%RETRY%g:0")] == [(b"b", "orders")]


def test_a_dead_letter_comes_to_its_group_again_as_a_message_that_was_never_tried() -> None:
    rig, now = joined()
    rig.ask(SendBack("g", "m", now, "orders:0", 0, attempts_max=1, reason="why"))
    assert rig.ask(SendLetterAgain("g", 0)) == Done()
    rig.disk.lose_power()
    rig = rig.restarted()
    pulled = rig.ask(Pull("%RETRY%g:0", 0))
    [(_, retry)] = decode_batch(pulled.count, pulled.body, MessageQueue("a", "%RETRY%g", 0))
    assert (retry.body, retry.topic, retry.key, retry.attempts) == (b"b", "orders", "k", 0)
    assert (retry.properties["REASON"], retry.properties["ORIGIN_OFFSET"]) == ("why", "0")
    assert "GIVEN_BACK" not in retry.properties
    again = rig.ask(SendBack("g", "m", generation(rig), "%RETRY%g:0", 0, attempts_max=3))
    assert again.attempt == 1
    assert isinstance(rig.ask(SendLetterAgain("g", 1)), OffsetOutOfRange)
    assert isinstance(rig.ask(SendLetterAgain("h", 0)), QueueNotFound)
