"""The commit rule: what is answered and readable while another copy lags behind this disk."""

from __future__ import annotations

from typing import Any

from broker.kernel.commit import OneCopy
from broker.net.flusher import Flusher
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.messages import Appended
from penstock.protocol.requests.request import Result
from tests.broker.broker_rig import Rig, append


class Lagging:
    """A rule of two copies: the other one has less than this disk."""

    def __init__(self, reached: int) -> None:
        self.reached = reached

    def committed(self, durable: int) -> int:
        return min(durable, self.reached)


def flushed(rig: Rig, rule: Any) -> Flusher:
    """A flusher of two copies that has synced this disk once."""
    flusher = Flusher(rig.store, rig.clock, quick_s=1.0, rule=rule)
    flusher._sync_here(rig.lead)
    return flusher


def test_one_copy_commits_what_its_disk_has() -> None:
    assert OneCopy().committed(7) == 7


def test_a_fact_waits_for_the_other_copy_and_a_message_of_level_disk_does_not_but_nothing_is_readable() -> None:
    rig = Rig()
    rig.ask(OpenFilters("g", ("b",)))
    before = rig.store.written
    sent = rig.submit(append(Message("t", b"1", mqtt_topic="b")))
    fact: list[Result] = rig.submit(OpenFilters("g", ("c",)))
    rule = Lagging(before)
    flusher = flushed(rig, rule)
    assert (rig.store.durable, rig.store.committed) == (rig.store.written, before)
    assert isinstance(sent[0], Appended)
    assert sent[0].level == "disk"
    assert fact == []
    assert rig.store.bounds("~filter:b").end == rig.store.bounds("~filter:b").min
    rule.reached = rig.store.written
    flusher.commit(rig.lead)
    assert len(fact) == 1
    assert rig.store.bounds("~filter:b").end == rig.store.bounds("~filter:b").min + 1


def test_the_watermark_of_a_frame_says_what_was_committed_and_not_what_this_disk_had() -> None:
    rig = Rig()
    rig.ask(append(Message("t", b"1")))
    committed = rig.store.committed
    rig.submit(append(Message("t", b"2")))
    flushed(rig, Lagging(committed))
    position = rig.store.written
    rig.submit(append(Message("t", b"3")))
    frame = rig.store._log.read(position, 24)
    assert int.from_bytes(frame[16:24], "big") == committed < rig.store.durable
