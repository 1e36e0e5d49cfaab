"""Who a node is: written down once, and kept for ever."""

from __future__ import annotations

import random

import pytest

from broker.net.office import OpenLog
from broker.net.promises import introduction, promise, promises
from broker.settings import BrokerSettings
from broker.state import BrokerState
from penstock.errors import DataFolderUnusable, InvalidConfig
from penstock.world import mutex
from tests.broker.broker_rig import SMALL, HandClock, Rig
from tests.simulation.disk import SimDisk

RNG = random.Random(1)
FOUNDER = BrokerSettings(**SMALL, node="a", replica_port=0)
JOINS = BrokerSettings(**SMALL, node="a", replica_port=0, join=("host-b:1",))


def opened(disk: SimDisk) -> OpenLog:
    return OpenLog(FOUNDER, disk, BrokerState(), HandClock(), mutex(), lambda done, total: None)


def test_a_node_is_the_same_in_all_its_lives() -> None:
    disk = SimDisk()
    file, hard = promises(FOUNDER, disk, RNG)
    assert hard.cluster
    promise(FOUNDER, file, hard, opened(disk))
    file.close()
    disk.kill()
    _, again = promises(FOUNDER, disk, RNG)
    assert (again.node, again.uuid, again.cluster) == ("a", hard.uuid, hard.cluster)
    with pytest.raises(InvalidConfig, match="folder of node a"):
        promises(BrokerSettings(node="b", replica_port=0), disk, RNG)


def test_a_broker_that_gets_copies_goes_on_in_a_later_epoch() -> None:
    rig = Rig()
    rig.store.sync_all()
    last = rig.state.epoch
    assert last
    rig.disk.kill()
    file, hard = promises(FOUNDER, rig.disk, RNG)
    promise(FOUNDER, file, hard, opened(rig.disk))
    known = file.load()
    assert known is not None
    assert known.epoch >= last


def test_a_log_of_its_own_does_not_join_another_ones() -> None:
    rig = Rig()
    rig.store.sync_all()
    rig.disk.kill()
    file, hard = promises(JOINS, rig.disk, RNG)
    assert not hard.cluster, "it is the group's to say"
    with pytest.raises(DataFolderUnusable, match="log of its own"):
        promise(JOINS, file, hard, opened(rig.disk))


def test_a_name_server_on_this_machine_is_told_as_others_reach_it() -> None:
    _, hard = promises(FOUNDER, SimDisk(), RNG)
    settings = BrokerSettings(namesrv=("127.0.0.1:9876", "host-n:9876"))
    assert introduction(settings, hard, "host-a:1", "host-a:2").namesrv == ("host-a:9876", "host-n:9876")
    assert introduction(settings, hard, "127.0.0.1:1", "127.0.0.1:2").namesrv == ("127.0.0.1:9876", "host-n:9876")
