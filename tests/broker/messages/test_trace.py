from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import InvalidRequest, ReservedName
from penstock.protocol.message import UNIQUE_KEY, Message, encode_properties, record_tail
from penstock.protocol.requests.filters import KeepFilters, OpenFilters
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup, QueueOffset
from penstock.protocol.requests.messages import AppendRuns, DeviceAck, FindByKey, Pull, TellAcknowledged
from penstock.protocol.requests.pops import AckPopped, Pop, Range, SendPoppedBack
from penstock.protocol.requests.retries import SendBack
from penstock.protocol.requests.timers import SetTimers
from penstock.protocol.requests.topics import ChangeTopic, CreateTopic, DescribeTopic
from penstock.protocol.requests.transactions import COMMIT, BeginHalves, EndHalves, HalfOutcome
from penstock.protocol.runs import Run, checksum_of, encode_runs
from tests.broker.broker_rig import Rig, append, bodies
from topicmap.queues import TRACE_TOPIC


def send(rig: Rig, count: int, first: int, topic: str = "t") -> None:
    """A run of messages whose ids count from ``first`` on."""
    tail = record_tail(topic.encode(), encode_properties({UNIQUE_KEY: f"{7:016x}-{first:012x}"}))
    body = encode_runs([Run(tail, 0, 5, [b"x"] * count, True)])
    rig.ask(AppendRuns(count, checksum_of(body), body))


def tick(rig: Rig, seconds: float = 1.0) -> None:
    rig.clock.now += seconds
    rig.service.tick(rig.times.monotonic(), rig.times.wall_ms(), rig.times.wall_ms())
    rig.sync()


def rows(rig: Rig, key: str = "") -> list[dict[str, Any]]:
    tick(rig)
    if rig.state.topics.get(TRACE_TOPIC) is None:
        return []
    found = bodies(rig.ask(FindByKey(TRACE_TOPIC, key))) if key else rig.bodies(f"{TRACE_TOPIC}:0")
    return [json.loads(body) for body in (reversed(found) if key else found)]


def id_of(number: int) -> str:
    return f"{7:016x}-{number:012x}"


def test_the_life_of_a_traced_message_is_told_in_order_and_of_others_nothing() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", trace=10))
    rig.ask(OpenFilters("gateway", ("#",)))
    send(rig, 15, 5)  # the ids 10 and none other
    send(rig, 15, 5, topic="u")
    generation = rig.ask(JoinGroup("g", "m", ("t",))).generation
    rig.ask(Pull("t:0", 0, reader="g"))
    rig.ask(SendBack("g", "m", generation, "t:0", 5, delay_ms=0, reason="no"))
    rig.ask(CommitOffsets("g", "m", generation, (QueueOffset("t:0", 5),)))
    rig.ask(CommitOffsets("g", "m", generation, (QueueOffset("t:0", 6),)))
    told = rows(rig)
    assert {row["id"] for row in told} == {id_of(10)}
    assert [row["event"] for row in told] == ["stored", "delivered", "retried", "acknowledged"]
    stored, delivered, retried, done = told
    assert (stored["queue"], stored["offset"], stored["born_ms"], stored["broker"]) == ("t:0", 5, 5, "broker-a")
    assert delivered["reader"] == "g"
    assert (retried["reason"], retried["attempt"], retried["member"]) == ("no", 1, "m")
    assert (done["reader"], done["member"], done["offset"]) == ("g", "m", 5)
    assert [row["event"] for row in rows(rig, id_of(10))] == [row["event"] for row in told]
    assert rig.service.figures()["penstock_trace_rows_total"] == 4


def test_what_a_filter_gives_to_a_gateway_is_told_with_the_filter() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", trace=1))
    [opened] = rig.ask(OpenFilters("gateway", ("t/+",))).opened
    rig.ask(append(Message("t", b"1", mqtt_topic="t/a"), Message("t", b"2", mqtt_topic="u"), Message("v", b"3")))
    rig.ask(Pull("~filter:t/+", opened.offset))
    told = [row for row in rows(rig) if row["event"] == "delivered"]
    assert [(row["reader"], row["queue"], row["offset"]) for row in told] == [("~filter:t/+", "t:0", 0)]
    [stored, _] = [row for row in rows(rig) if row["event"] == "stored"]
    assert (stored["name"], stored["id"]) == ("t/a", f"broker-a:{stored['position']}"), "its sender gave it no id"


def test_a_dead_letter_is_told_and_a_retry_keeps_its_id() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", trace=1))
    send(rig, 1, 3)
    generation = rig.ask(JoinGroup("g", "m", ("t", "%RETRY%g"))).generation
    rig.ask(SendBack("g", "m", generation, "t:0", 0, delay_ms=0, attempts_max=2))
    tick(rig)
    generation = rig.ask(JoinGroup("g", "m", ("t", "%RETRY%g"))).generation
    rig.ask(SendBack("g", "m", generation, "%RETRY%g:0", 0, attempts_max=2, reason="no"))
    told = rows(rig, id_of(3))
    assert [(row["event"], row.get("attempt")) for row in told] == [("stored", None), ("retried", 1), ("dead", None)]


def test_no_more_rows_come_in_a_second_than_the_limit_and_what_is_over_is_counted() -> None:
    rig = Rig(default_queues=1, trace_rows_per_s_max=10)
    rig.ask(CreateTopic("t", trace=1))
    send(rig, 100, 0)
    assert len(rows(rig)) == 10
    assert rig.service.figures()["penstock_trace_dropped_total"] == 90
    send(rig, 100, 100)
    assert len(rows(rig)) == 20


@pytest.mark.parametrize("rows_max", [0, 1000])
def test_a_trace_ends_when_its_topic_says_so(rows_max: int) -> None:
    rig = Rig(default_queues=1, trace_rows_per_s_max=rows_max)
    rig.ask(CreateTopic("t", trace=1))
    send(rig, 1, 0)
    assert len(rows(rig)) == bool(rows_max)
    rig.ask(ChangeTopic("t", trace=0))
    send(rig, 1, 1)
    rig.ask(Pull("t:0", 0))
    assert len(rows(rig)) == bool(rows_max)


def test_only_brokers_write_traces_and_the_number_has_limits() -> None:
    rig = Rig()
    assert rig.ask(append(Message(TRACE_TOPIC, b"x"))).refused[0].code == ReservedName.code
    rig.ask(CreateTopic("t"))
    assert isinstance(rig.ask(ChangeTopic("t", trace=2_000_000_000)), InvalidRequest)


def test_a_message_that_was_delayed_or_transactional_is_told_of_when_it_is_delivered() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", trace=1))
    later, half = (bytes(append(Message("t", b"x", id=id)).body) for id in ("later", "half"))
    rig.ask(SetTimers((5_000,), True, later))
    [begun] = rig.ask(BeginHalves("g", 1, half)).ids
    assert rows(rig) == []
    rig.ask(EndHalves("g", (HalfOutcome(begun, COMMIT),)))
    tick(rig, 10.0)
    told = [(row["event"], row["id"], row["offset"]) for row in rows(rig)]
    assert told == [("stored", "half", 0), ("stored", "later", 1)]
    rig.ask(Pull("t:0", 0))
    assert [(row["event"], row["id"]) for row in rows(rig)[2:]] == [("delivered", "half"), ("delivered", "later")]


def test_what_is_popped_and_acknowledged_is_told_with_its_taker_and_each_once() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", trace=2))
    send(rig, 4, 2)
    rig.ask(Pop("g", "t:0", "a", 0))
    for _ in range(2):
        rig.ask(AckPopped("g", "t:0", (Range(2, 4),)))
    rig.ask(SendPoppedBack("g", "t:0", "a", 0, delay_ms=0, reason="no"))
    told = [(row["event"], row["offset"], row.get("member")) for row in rows(rig) if row["event"] != "stored"]
    assert told == [
        ("delivered", 0, "a"),
        ("delivered", 2, "a"),
        ("acknowledged", 2, None),
        ("retried", 0, "a"),
    ]


def test_a_message_that_a_pull_passed_over_was_not_delivered() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", trace=1))
    rig.ask(append(Message("t", b"1", tag="x"), Message("t", b"2", tag="y"), Message("t", b"3", tag="x")))
    rig.ask(Pull("t:0", 0, tags=("x",)))
    assert [row["offset"] for row in rows(rig) if row["event"] == "delivered"] == [0, 2]


@pytest.mark.parametrize(("kept_s", "log_s", "told"), [(60, 3600.0, 60), (60, 0.0, 60), (60, 30.0, 0), (0, 30.0, 0)])
def test_rows_have_a_retention_of_their_own_where_the_logs_is_longer(kept_s: int, log_s: float, told: int) -> None:
    rig = Rig(default_queues=1, trace_kept_s=kept_s, retention_s=log_s)
    rig.ask(CreateTopic("t", trace=1))
    send(rig, 1, 0)
    assert rows(rig)
    assert rig.ask(DescribeTopic(TRACE_TOPIC)).retention_s == told
    assert rig.ask(ChangeTopic(TRACE_TOPIC, retention_s=20)).retention_s == 20


def test_what_a_device_acknowledges_is_told_with_the_device_and_only_by_the_broker_that_has_it() -> None:
    rig = Rig(default_queues=1)
    assert rig.ask(KeepFilters("gw", 60.0)).traced == ()
    rig.ask(CreateTopic("t", trace=2))
    send(rig, 3, 2)
    assert rig.ask(KeepFilters("gw", 60.0)).traced == ("t",)
    positions = [row["position"] for row in rows(rig)]
    acks = [
        ("t:0", 0, positions[0]),
        ("t:0", 0, positions[1]),
        ("t:0", 1, positions[1]),
        ("t:0", 2, positions[1]),
        ("u:0", 0, 0),
    ]
    rig.ask(TellAcknowledged("gw", tuple([DeviceAck(*ack, "d7") for ack in acks])))
    found = [row for row in rows(rig) if row["event"] == "acknowledged"]
    assert [(row["offset"], row["reader"], row["member"]) for row in found] == [(0, "d7", "gw"), (2, "d7", "gw")]
