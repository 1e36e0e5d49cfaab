"""Every log has an identity, which lasts as long as the log."""

from __future__ import annotations

import random

import pytest

from broker.lineage.naming import name_log
from penstock.errors import LogReplaced, StorageFull
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.groups import JoinGroup
from penstock.protocol.requests.messages import Pull, QueryBounds
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic
from tests.broker.broker_rig import Rig, append


def started(rig: Rig, seed: int = 1) -> Rig:
    """Names the log as the start of a broker does."""
    name_log(rig.state.identity, rig.store, random.Random(seed), rig.clock.wall_ms())
    return rig


def test_a_log_gets_an_id_at_its_first_start_and_keeps_it() -> None:
    rig = started(Rig())
    log_id = rig.state.identity.log_id
    assert len(log_id) == 32
    again = rig.restarted()
    written = again.store.written
    assert started(again, seed=2).state.identity.log_id == log_id
    assert again.store.written == written


def test_the_id_is_on_the_disk_before_anyone_hears_of_it() -> None:
    rig = started(Rig())
    assert rig.store.durable == rig.store.written
    log_id = rig.state.identity.log_id
    rig.disk.lose_power()
    assert Rig(rig.disk).state.identity.log_id == log_id


def test_another_folder_has_another_id() -> None:
    assert started(Rig()).state.identity.log_id != started(Rig(), seed=2).state.identity.log_id


def test_a_log_of_an_older_broker_gets_an_id_with_all_that_it_has() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    rig.ask(append(Message("t", b"old")))
    named = started(rig.restarted())
    assert named.state.identity.log_id
    assert named.bodies("t:0") == [b"old"]


def test_the_id_outlives_the_segment_that_it_was_written_to() -> None:
    rig = started(Rig(segment_bytes=16384, reserve_step_bytes=2048, chunk_bytes=6000, retention_bytes=40_000))
    log_id = rig.state.identity.log_id
    rig.ask(CreateTopic("t", 1))
    for _ in range(100):
        rig.ask(append(Message("t", bytes(1000))))
        rig.clock.now += 1
        rig.dispatch.tick()
    assert rig.store.start > 0
    for path in rig.disk.paths("checkpoint"):  # derived: the keyframe has to do
        rig.disk.remove(path)
    assert started(rig.restarted(), seed=2).state.identity.log_id == log_id


def test_a_full_disk_leaves_the_log_unnamed_and_the_broker_running(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    rig.disk.capacity = rig.disk.used()
    for size in (500, 1):
        while not isinstance(rig.ask(append(Message("t", bytes(size)))), StorageFull):
            pass
    started(rig)
    assert rig.state.identity.log_id == ""
    assert "gets its identity at the next start" in caplog.text
    assert rig.ask(DescribeTopic("t")).log_id == ""


def test_replies_that_name_offsets_name_the_log() -> None:
    rig = started(Rig())
    log_id = rig.state.identity.log_id
    assert rig.ask(CreateTopic("t", 1)).log_id == log_id
    assert rig.ask(QueryBounds(("t:0",))).log_id == log_id
    assert rig.ask(JoinGroup("g", "m", ("t",))).log_id == log_id
    assert rig.ask(OpenFilters("gw", ("a",))).log_id == log_id


def test_a_pull_at_an_offset_of_another_log_is_refused_however_much_was_stored_since() -> None:
    before = started(Rig()).state.identity.log_id
    rig = started(Rig(), seed=2)
    rig.ask(CreateTopic("t", 1))
    rig.ask(append(*[Message("t", b"new")] * 10))
    assert isinstance(rig.ask(Pull("t:0", 5, log_id=before)), LogReplaced)
    assert rig.ask(Pull("t:0", 5, log_id=rig.state.identity.log_id)).count == 5
    assert rig.ask(Pull("t:0", 5)).count == 5
