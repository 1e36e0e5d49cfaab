from __future__ import annotations

import random
from typing import Any

import pytest

from broker.topics.changes import EVERY_S
from penstock.errors import InvalidRequest, InvalidTopic, NotAllowed, OffsetOutOfRange, QueueNotFound, TopicNotFound
from penstock.protocol.message import CLIENT_ID, Message, encode_properties, encode_record
from penstock.protocol.requests.filters import FetchRetained
from penstock.protocol.requests.groups import CommitOffsets, FetchOffsets, JoinGroup, LeaveGroup, QueueOffset
from penstock.protocol.requests.messages import Append, FindByKey, Pull, QueryBounds
from penstock.protocol.requests.routes import TopicRoute
from penstock.protocol.requests.sessions import HOME_TOPIC
from penstock.protocol.requests.timers import SetTimers
from penstock.protocol.requests.topics import (
    AllowBroker,
    Bounds,
    BrokerAllows,
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    PurgeTopic,
    QueryAllowed,
)
from tests.broker.broker_rig import Rig, append, but_epochs


def pass_time(rig: Rig, seconds: float) -> None:
    rig.clock.now += seconds
    rig.service.tick(rig.times.monotonic(), rig.times.wall_ms(), rig.times.wall_ms())
    rig.sync()


def codes(rig: Rig, *messages: Message) -> list[int]:
    return [one.code for one in rig.ask(append(*messages)).refused]


def test_each_option_of_a_topic_changes_alone_and_is_there_after_a_restart() -> None:
    rig = Rig(default_queues=2)
    rig.ask(CreateTopic("t"))
    for change, told in (
        (ChangeTopic("t", 3), (3, "disk", 0, "rw", 0)),
        (ChangeTopic("t", level="cache"), (3, "cache", 0, "rw", 0)),
        (ChangeTopic("t", retention_s=60), (3, "cache", 60, "rw", 0)),
        (ChangeTopic("t", access="r"), (3, "cache", 60, "r", 0)),
        (ChangeTopic("t", retention_s=0), (3, "cache", 0, "r", 0)),
    ):
        detail = rig.ask(change)
        assert (detail.queues, detail.level, detail.retention_s, detail.access, detail.draining) == told
        rig = rig.restarted()
        assert rig.ask(DescribeTopic("t")) == detail
    written = rig.store.written
    rig.ask(ChangeTopic("t", 3, "cache", access="r"))
    assert rig.store.written == written, "nothing is new"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ChangeTopic("u", 1), TopicNotFound),
        (ChangeTopic("t", 1025), InvalidRequest),
        (ChangeTopic("t", -1), InvalidRequest),
        (ChangeTopic("t", level="quorum"), InvalidRequest),
        (ChangeTopic("t", access="x"), InvalidRequest),
        (ChangeTopic("t", retention_s=-2), InvalidRequest),
        (ChangeTopic("t", retention_s=101), InvalidRequest),
        (CreateTopic("v", access="x"), InvalidRequest),
        (PurgeTopic("u"), TopicNotFound),
        (PurgeTopic(HOME_TOPIC), InvalidTopic),
        (ChangeTopic("%sys%offsets", 1), InvalidTopic),
    ],
)
def test_a_change_outside_the_rules_changes_nothing(request_: Any, error: type[Exception]) -> None:
    rig = Rig(retention_s=100.0)
    before = rig.ask(CreateTopic("t", 1))
    rig.ask(CreateTopic(HOME_TOPIC))
    written = rig.store.written
    assert isinstance(rig.ask(request_), error)
    assert (rig.ask(DescribeTopic("t")), rig.store.written) == (before, written)


def test_more_queues_are_written_to_at_once() -> None:
    rig = Rig(default_queues=1)
    rig.ask(append(*[Message("t", b"old")] * 2))
    rig.ask(ChangeTopic("t", 3))
    rig.ask(append(*[Message("t", b"new")] * 6))
    assert [bound.end for bound in rig.ask(DescribeTopic("t")).bounds] == [4, 2, 2]


def test_fewer_queues_are_written_to_at_once_and_the_others_go_when_all_groups_have_read_them() -> None:
    rig = Rig(default_queues=3)
    rig.ask(append(*[Message("t", b"old")] * 6))
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 2),)))
    rig.ask(JoinGroup("h", "m", ("t",)))
    assert rig.ask(ChangeTopic("t", 1)).draining == 2
    joined = rig.ask(JoinGroup("h", "m", ("t",)))
    assert len(joined.queues) == 3, "what is in them is read still"
    rig.ask(append(*[Message("t", b"new")] * 4))
    assert [bound.end for bound in rig.ask(DescribeTopic("t")).bounds] == [6, 2, 2]
    rows = (QueueOffset("t:1", 2), QueueOffset("t:2", 2))
    pass_time(rig, EVERY_S)
    rig.ask(CommitOffsets("h", "m", joined.generation, rows))
    pass_time(rig, EVERY_S)
    assert rig.ask(DescribeTopic("t")).draining == 2, "group g has not read them"
    rig.ask(CommitOffsets("g", "", 0, rows))
    pass_time(rig, EVERY_S)
    assert (rig.ask(DescribeTopic("t")).queues, rig.ask(DescribeTopic("t")).draining) == (1, 0)
    assert isinstance(rig.ask(QueryBounds(("t:2",))), QueueNotFound)
    rig = rig.restarted()
    assert rig.ask(ChangeTopic("t", 2)).bounds[1] == Bounds("t:1", 2, 2, 2), "its offsets go on"
    assert rig.ask(FetchOffsets("g", ("t:1",))).offsets == (QueueOffset("t:1", 2),)


def test_a_queue_that_no_group_reads_goes_when_it_is_empty() -> None:
    rig = Rig(default_queues=2)
    rig.ask(append(*[Message("t", b"x")] * 2))
    rig.ask(ChangeTopic("t", 1))
    pass_time(rig, EVERY_S)
    assert rig.ask(DescribeTopic("t")).draining == 1, "somebody may read it yet"
    rig.ask(PurgeTopic("t"))
    pass_time(rig, EVERY_S)
    assert rig.ask(DescribeTopic("t")).queues == 1


def test_a_purged_topic_is_empty_and_goes_on() -> None:
    rig = Rig(default_queues=1)
    rig.ask(append(*[Message("t", b"old", key="k")] * 3))
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 3),)))
    waiting = rig.submit(Pull("t:0", 3, wait_s=60.0))
    assert rig.ask(PurgeTopic("t")).bounds == (Bounds("t:0", 0, 3),)
    rig.ask(append(Message("t", b"new", key="k")))
    assert waiting, "one that stood at the end goes on"
    for one in (rig, rig.restarted()):
        assert one.ask(DescribeTopic("t")).bounds == (Bounds("t:0", 3, 4, 3),)
        assert isinstance(one.ask(Pull("t:0", 0)), OffsetOutOfRange)
        assert one.bodies("t:0", 3) == [b"new"]
        assert one.ask(FindByKey("t", "k")).count == 1
        assert one.ask(FetchOffsets("g", ("t:0",))).offsets == (QueueOffset("t:0", 3),)


@pytest.mark.parametrize("retained", [False, True])
def test_a_purge_takes_retained_messages_only_where_it_is_told_to(retained: bool) -> None:
    rig = Rig(default_queues=1)
    for name in ("t/a", "t/b", "u/c"):
        rig.ask(append(Message(name[0], b"value", mqtt_topic=name, retain=True)))
    assert rig.ask(PurgeTopic("t", retained)).retained == 2
    rig.ask(append(Message("t", b"later", mqtt_topic="t/d", retain=True)))
    for one in (rig, rig.restarted()):
        found = one.ask(FetchRetained("#"))
        assert [name for name in ("t/a", "t/b", "t/d", "u/c") if name.encode() in found.body] == (
            ["t/d", "u/c"] if retained else ["t/a", "t/b", "t/d", "u/c"]
        )
        assert one.ask(DescribeTopic("t")).retained == (1 if retained else 3)


def test_a_purge_that_was_not_promised_may_never_have_been() -> None:
    rig = Rig(default_queues=1)
    rig.ask(append(Message("t", b"x")))
    assert rig.submit(PurgeTopic("t")) == []
    rig.disk.lose_power()
    assert rig.restarted().bodies("t:0") == [b"x"]


def test_a_topic_loses_what_is_over_its_retention_but_nothing_that_a_group_needs() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", retention_s=600))
    for topic in ("t", "u"):
        rig.ask(append(Message(topic, b"1")))
    pass_time(rig, 400.0)
    rig.ask(append(Message("t", b"2")))
    pass_time(rig, 400.0)
    assert rig.ask(DescribeTopic("t")).bounds == (Bounds("t:0", 1, 2, 1),)
    assert rig.bodies("t:0", 1) == [b"2"]
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 1),)))
    for seconds in (10.0, 10.0, 400.0, 400.0):
        pass_time(rig, seconds)
    assert rig.ask(DescribeTopic("t")).bounds == (Bounds("t:0", 1, 2, 1),)
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 2),)))
    for _ in range(3):
        pass_time(rig, 400.0)
    rig = rig.restarted()
    assert rig.ask(DescribeTopic("t")).bounds == (Bounds("t:0", 2, 2, 2),)
    assert rig.bodies("u:0") == [b"1"]


def test_what_may_not_be_written_or_read_is_refused_for_a_while() -> None:
    changed: list[None] = []
    rig = Rig(default_queues=1, on_routes_changed=lambda: changed.append(None))
    rig.ask(append(Message("t", b"1"), Message("u", b"1")))
    rig.ask(ChangeTopic("t", access="r"))
    rig.ask(ChangeTopic("u", access="w"))
    assert codes(rig, Message("t", b"2"), Message("u", b"2")) == [NotAllowed.code]
    assert rig.bodies("t:0") == [b"1"]
    assert isinstance(rig.ask(Pull("u:0", 0)), NotAllowed)
    assert rig.state.routes()[1] == (TopicRoute("t", 1, False), TopicRoute("u", 1, True))
    rig.ask(ChangeTopic("t", access="rw"))
    rig.ask(ChangeTopic("u", access="rw"))
    assert codes(rig, Message("t", b"2"), Message("u", b"3")) == []
    assert rig.bodies("u:0") == [b"1", b"2", b"3"]
    assert len(changed) >= 4, "name servers are told at once"


def test_a_broker_in_maintenance_takes_nothing_new_and_keeps_its_promises() -> None:
    rig = Rig(default_queues=1)
    record = bytes(append(Message("t", b"later")).body)
    gateways = Append(1, False, encode_record(HOME_TOPIC.encode(), b"g", encode_properties({CLIENT_ID: "c"})))
    rig.ask(append(Message("t", b"1")))
    rig.ask(gateways)
    rig.ask(SetTimers((1000,), True, record))
    since = rig.state.topics.version
    rig.ask(AllowBroker(read=False, write=False))
    rig = rig.restarted()
    assert rig.ask(QueryAllowed()) == BrokerAllows(False, False)
    assert rig.state.changed_routes(since) is None, "name servers are told all anew"
    assert rig.state.routes()[1] == (TopicRoute(HOME_TOPIC, 1, True), TopicRoute("t", 1, False))
    assert codes(rig, Message("t", b"2")) == [NotAllowed.code]
    assert rig.ask(gateways).refused == ()
    assert rig.ask(SetTimers((1000,), True, record)).refused[0].code == NotAllowed.code
    assert isinstance(rig.ask(Pull("t:0", 0)), NotAllowed)
    assert rig.ask(Pull(f"{HOME_TOPIC}:0", 0)).count
    pass_time(rig, 10.0)
    rig.ask(AllowBroker(read=True, write=True))
    assert rig.bodies("t:0") == [b"1", b"later"]


def test_whatever_happens_to_a_topic_no_offset_means_another_message() -> None:
    """Appends, purges, other numbers of queues, deletions, retention and restarts, in any order: what is read at an
    offset is what was stored there, and what a replay has is what was there."""
    for seed in range(12):
        chance = random.Random(seed)
        rig = Rig(default_queues=2)
        stored: dict[tuple[str, int], bytes] = {}
        for number in range(60):
            act = chance.choice(["append"] * 4 + ["purge", "queues", "delete", "restart", "time", "commit"])
            known = rig.state.topics.get("t")
            if act == "append":
                bodies = [b"%d-%d" % (number, at) for at in range(chance.randint(1, 5))]
                answer = rig.ask(append(*[Message("t", body) for body in bodies], detail=True))
                for place, body in zip(answer.placed, bodies, strict=True):
                    assert stored.setdefault((f"t:{place.queue_id}", place.offset), body) == body
            elif act == "restart":
                if chance.random() < 0.5:
                    rig.sync()
                before = but_epochs(rig.state)
                rig = rig.restarted()
                assert but_epochs(rig.state) == before
            elif act == "time":
                pass_time(rig, chance.choice([1.0, 60.0]))
            elif known is None:
                continue
            elif act == "purge":
                rig.ask(PurgeTopic("t"))
            elif act == "queues":
                rig.ask(ChangeTopic("t", chance.randint(1, 4), retention_s=chance.choice([-1, 0, 30])))
            elif act == "delete":
                rig.ask(DeleteTopic("t"))
            else:
                ends = [QueueOffset(one.queue, one.end) for one in rig.ask(DescribeTopic("t")).bounds]
                rig.ask(CommitOffsets("g", "", 0, tuple(ends)))
            known = rig.state.topics.get("t")
            for bound in rig.ask(DescribeTopic("t")).bounds if known else ():
                offset = bound.min
                for body in rig.bodies(bound.queue, bound.min):
                    assert stored[bound.queue, offset] == body, (seed, number)
                    offset += 1
                assert offset == bound.end


def test_members_are_given_the_queues_that_a_topic_has_now() -> None:
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t"))
    rig.ask(JoinGroup("g", "m", ("t",)))
    watched = rig.ask(JoinGroup("g", "m", ("t",))).generation
    rig.ask(ChangeTopic("t", 2))
    after = rig.ask(JoinGroup("g", "m", ("t",)))
    assert (len(after.queues), after.generation > watched) == (2, True)
    rig.ask(LeaveGroup("g", "m"))
