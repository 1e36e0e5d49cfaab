"""The world of gateways with a broker of three copies: it fails over where that of the other world restarts.

A leader dies, or loses the lead and lives on: then it answers as such a node does. Another copy leads at an address of
its own. Followers die too. Who is elected, hears what and commits when is the group's of
``tests/broker/replica/copies.py``. Checked at the end, beside what that world checks: no epoch leads twice, and equal
copies.
"""

from __future__ import annotations

from typing import Final

from broker.net.dispatch import Dispatch
from penstock.errors import NotLeader
from penstock.protocol.requests.routes import BrokerRoute
from tests.broker.broker_rig import Rig
from tests.broker.replica.copies import Group, Leading, Node
from tests.broker.replica.copies import check as check_copies
from tests.simulation import gateways
from tests.simulation.gateways import BROKER, PatientLine, World

COPIED: Final = {"replica_port": 0, "node": "n"}


class Led(World):
    """A world in which another node leads after each fault of the broker."""

    line = PatientLine
    moves = True
    quiet_s = 120.0

    def first_broker(self, seed: int) -> Rig:
        self.group = Group(seed, **COPIED)
        self.follow_clock()
        self.deposed: dict[str, Dispatch] = {}
        self.epochs = [self.group.epoch]
        self.elections = 0
        return self.group.leader

    def follow_clock(self) -> None:
        """An election takes its time."""
        self.clock.now_s = max(self.clock.now_s, self.group.clock.now + 1000.0)

    def rig_at(self, address: str) -> Rig:
        if address in self.deposed:
            return Former(self.deposed[address])
        return self.broker

    def is_at(self, address: str) -> bool:
        return address == self.address or address in self.deposed

    def routes(self, topic: str) -> list[BrokerRoute]:
        readers = tuple(self.deposed)
        return [one._replace(epoch=self.group.epoch, readers=readers) for one in super().routes(topic)]

    def restart_broker(self, *, power: bool) -> None:
        rng, group, left = self.rng, self.group, self.address
        leader = group.leader
        lives_on = not power and rng.random() < 0.7
        self._starts += 1
        self.address = f"broker:{self._starts}"
        self.deposed.clear()
        if rng.random() < 0.3:
            group.crash(rng.choice(group.followers), power=rng.random() < 0.5)
        if lives_on:
            self.note("the leader loses the lead")
            leader.lead.step_down(NotLeader("another node leads", hint=self.address))
            self.deposed[left] = leader.dispatch
        else:
            group.crash(leader.node, power=power)
        others = [node for node in group.nodes if node is not leader.node]
        self.elect(others)
        if not lives_on:
            for gateway in self.gateways:
                gateway.rounds.begin()
                self.links[gateway].broker.breaks()
                gateway.round()

    def elect(self, others: list[Node]) -> None:
        """Another node leads, if one may; else the one that has led does again, in another epoch."""
        group = self.group
        able = [one for one in others if one.may_vote and one.log.end >= group.committed]
        newest = max(able, key=lambda one: (one.log.epoch_at(one.log.end), one.log.end), default=None)
        has_majority = len([one for one in group.nodes if one.may_vote]) > 1
        group.elect(newest if newest is not None and has_majority and self.rng.random() < 0.8 else None)
        self.epochs.append(group.epoch)
        self.broker: Leading = group.leader
        self.elections += 1
        self.note(f"{group.leader.node.name} leads in epoch {group.epoch}")
        self.follow_clock()

    def drain(self) -> None:
        super().drain()
        self.group.reach = 1.0
        self.sync()
        self.group.reach = 0.7

    def level(self) -> None:
        """All copies get all."""
        self.group.level()


class Former(Rig):
    """A node that does not lead any more, as its peers meet it."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    @property
    def dispatch(self) -> Dispatch:
        return self._dispatch


def check(world: Led) -> None:
    """What the other world checks, then the group."""
    world.level()
    gateways.check(world)
    assert world.epochs == sorted(set(world.epochs))
    world.group.depose()
    check_copies(world.group.nodes)
    assert BROKER not in world.deposed or world.elections
