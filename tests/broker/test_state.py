from __future__ import annotations

import re
from pathlib import Path

import msgpack
import pytest

from broker.groups.fold import Offsets
from broker.kernel.fold import fact_record
from broker.state import BrokerState
from penstock.errors import TooLarge
from penstock.protocol.message import (
    BODY_BYTES_MAX,
    CLIENT_ID,
    FLAG_ONCE,
    MQTT_ID,
    MQTT_TOPIC,
    Message,
    decode_batch,
    encode_record,
)
from penstock.protocol.requests.filters import CloseFilters, FetchRetained, OpenFilters
from penstock.protocol.requests.groups import CommitOffsets, QueueOffset
from penstock.protocol.requests.messages import Append
from penstock.protocol.requests.sessions import FetchExchanges, OpenSession
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, but_epochs
from topicmap.queues import filter_queue


def lived() -> Rig:
    """A broker with facts of every kind."""
    rig = Rig()
    rig.ask(CreateTopic("t", 2, "cache"))
    rig.ask(OpenFilters("g", ("a/+", "b")))
    rig.ask(OpenFilters("h", ("b", "c")))
    rig.ask(CloseFilters("g", ("b",)))
    rig.ask(append(*[Message("t", b"x", mqtt_topic=f"a/{n}", retain=True) for n in range(5)], Message("u", b"y")))
    rig.ask(append(Message("t", b"", mqtt_topic="a/3", retain=True)))
    rig.ask(CommitOffsets("group", "", 0, (QueueOffset("u:0", 1),)))
    rig.ask(OpenFilters("h", ("$share/s/b",)))
    rig.ask(OpenSession("g", "client", False, 60, b""))
    rig.ask(FetchExchanges("elsewhere", 5, 9))
    return rig


def test_a_snapshot_restored_equals_the_replay_of_the_log() -> None:
    rig = lived()
    copy = BrokerState()
    copy.restore(rig.state.snapshot())
    assert copy.snapshot() == rig.state.snapshot()
    assert but_epochs(rig.restarted().state) == but_epochs(rig.state)


def test_a_restored_state_goes_on_as_the_old_one_would() -> None:
    rig = lived()
    copy = BrokerState()
    copy.restore(rig.state.snapshot())
    rig.ask(OpenFilters("h", ("a/1",)))
    rig.ask(append(Message("t", b"z", mqtt_topic="a/9", retain=True)))
    copy.restore(rig.state.snapshot())
    names = ["a/1", "b", "c", "d"]
    assert [copy.filters.queues_of(name) for name in names] == [rig.state.filters.queues_of(name) for name in names]


def test_the_state_before_the_first_record_is_empty() -> None:
    state = lived().state
    state.restore(b"")
    assert state.snapshot() == BrokerState().snapshot()


def test_a_snapshot_of_an_older_or_newer_broker_is_read_as_far_as_both_know() -> None:
    parts = msgpack.unpackb(lived().state.snapshot())
    del parts["retained"]
    parts["something new"] = [1, 2, 3]
    state = BrokerState()
    state.restore(msgpack.packb(parts))
    assert (len(state.topics), len(state.filters), len(state.retained)) == (2, 3, 0)


def test_every_fold_is_the_same_after_all_derived_files_are_gone() -> None:
    rig = lived()
    for number in range(200):
        rig.ask(append(Message("t", bytes(500), key=str(number), mqtt_topic=f"a/{number % 7}", retain=True)))
        rig.dispatch.tick()
    expected = but_epochs(rig.state), rig.ask(FetchRetained("#"))
    rig.disk.kill()
    assert rig.disk.paths("checkpoint"), "else this shows nothing"
    for path in rig.disk.paths("checkpoint") + rig.disk.paths("index"):
        rig.disk.delete(path)
    after = rig.restarted()
    assert (but_epochs(after.state), after.ask(FetchRetained("#"))) == expected


def test_a_fact_is_one_record_of_its_system_topic() -> None:
    incoming = fact_record("%sys%topics", ["t", 1, "disk"])
    assert (incoming.destination.topic, msgpack.unpackb(incoming.run.bodies[0])) == ("%sys%topics", ["t", 1, "disk"])


def test_the_worked_example_of_the_page_is_what_is_written() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "facts.md").read_text()
    block = page.split("## Worked example")[1].split("```")[1]
    written = fact_record("%sys%offsets", Offsets.fact("billing", (QueueOffset("orders:0", 5),)))
    expected = "".join(word for line in block.splitlines() for word in re.findall(r"\b[0-9a-f]{2,}\b", line[:28]))
    assert written.run.bodies[0].hex() == expected


def test_a_snapshot_has_the_keys_that_the_page_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "facts.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", page.split("## Snapshot")[1].split("##")[0], re.MULTILINE)
    assert list(msgpack.unpackb(BrokerState().snapshot())) == named


def test_a_fact_too_large_for_a_record_is_refused() -> None:
    with pytest.raises(TooLarge):
        fact_record("%sys%offsets", ["x" * BODY_BYTES_MAX])


def test_a_filter_that_nobody_holds_any_more_takes_its_committed_offsets_with_it() -> None:
    rig = Rig()
    rig.ask(OpenFilters("g", ("a/+",)))
    queue = filter_queue("a/+")
    rig.ask(CommitOffsets("group", "", 0, (QueueOffset(queue, rig.store.bounds(queue).min),)))
    assert rig.state.offsets.groups == ["group"]
    rig.ask(CloseFilters("g", ("a/+",)))
    assert rig.state.offsets.groups == []
    assert rig.restarted().state.offsets.groups == []


def test_a_message_that_begins_an_exchange_is_not_retained_for_that() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    properties = f"{MQTT_TOPIC}\x01t/1\x02{CLIENT_ID}\x01c\x02{MQTT_ID}\x017:8:9".encode()
    rig.ask(append(Message("t", b"kept", mqtt_topic="t/1", retain=True)))
    for body in (b"x", b""):
        rig.ask(Append(1, True, encode_record(b"t", body, properties, flag=2 | FLAG_ONCE)))
    page = rig.ask(FetchRetained("t/1"))
    assert [message.body for _, message in decode_batch(page.count, page.body)] == [b"kept"]
