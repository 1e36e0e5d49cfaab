"""The log of a node as its flusher sees it: what a sync has covered does not count where the log was cut meanwhile."""

from __future__ import annotations

from typing import Any

from broker.net.office import LogMedium, OpenLog
from broker.settings import BrokerSettings
from broker.state import BrokerState
from penstock.world import mutex
from tests.broker.broker_rig import SMALL, HandClock
from tests.broker.replica.pair import EPOCH, Copy
from tests.simulation.disk import SimDisk


def opened(disk: SimDisk) -> OpenLog:
    settings = BrokerSettings(**{**SMALL, "name": "g"})
    return OpenLog(settings, disk, BrokerState(), HandClock(), mutex(), lambda done, total: None)


def test_a_sync_that_a_cut_has_overtaken_does_not_count() -> None:
    told: list[int] = []
    log = opened(SimDisk())
    follower, medium = log.follower(), LogMedium(log, told.append)
    leader = Copy().lead()
    leader.put(3)
    follower.receive(leader.log.stretch(0, leader.log.end), EPOCH)
    point = medium.sync_point()
    medium.sync()
    medium.mark_durable(point)
    assert told == [point] == [medium.durable]
    second = leader.log.end
    leader.put(2)
    follower.receive(leader.log.stretch(second, leader.log.end), EPOCH)
    point = medium.sync_point()
    follower.cut(second)
    follower.receive(leader.log.stretch(second, leader.log.end), EPOCH)
    medium.sync()
    medium.mark_durable(point)
    assert told == [second] == [medium.durable]


def test_a_log_that_is_opened_again_keeps_what_is_committed() -> None:
    log = opened(SimDisk())
    follower: Any = log.follower()
    leader = Copy().lead()
    leader.put(3)
    leader.commit()
    follower.receive(leader.log.stretch(0, leader.log.end), EPOCH)
    log.store.sync_all()
    follower.commit(follower.end)
    end, before = follower.end, log.store
    log.again()
    assert log.store is not before
    assert log.follower().end == end == log.store.committed
    log.close(5_000)
