"""Whole copies of a broker: core, log, disk and service of three nodes, with messages between them that get lost.

What ``tests/broker/replica/copies.py`` plays by hand is decided here by the cores. The same seed gives the same run.
"""

from __future__ import annotations

import random
from typing import Any

from broker.kernel.fold import fact_record
from broker.net.lead import Lead
from broker.replica.core import Core
from broker.replica.events import Lost, Received, Tick, Timing, ToPeer
from broker.replica.follower_log import FollowerLog
from broker.replica.hard_state import HardStateFile
from broker.replica.log_face import HardState
from broker.replica.members import TOPIC, MembersFold
from broker.replica.membership import forced
from broker.replica.own_log import OwnLog
from broker.replica.replica import Replica
from penstock.errors import Unavailable
from penstock.protocol.requests.replicas import Member, Members, MembersAt
from tests.broker.broker_rig import HandClock
from tests.broker.replica.copies import Leading, Node, check, mend

TIMING = Timing(election_s=0.8, heartbeat_s=0.2, gap_s=0.4)
GROUP = Members(tuple(Member(name, name) for name in "abc"))


class Copy(Node):
    """A node with its core; its broker is there while it leads."""

    def __init__(self, name: str, seed: int, world: World, **settings: Any) -> None:
        super().__init__(name, seed, **settings)
        self.world = world
        self.rng = random.Random(f"{seed}/{name}")
        self.rig: Leading | None = None
        self.is_alive = False
        self.begin()

    def begin(self) -> None:
        """A process begins with what the disk has; what is damaged there comes from other copies first."""
        mend(self, self.world.nodes)
        if not self.repair.is_sound:
            return
        self.is_alive = True
        log = self.log
        epochs = log.epochs if log.end else []
        own = OwnLog(log.end, log.durable, log.committed, epochs, [MembersAt(-1, GROUP), *log.changes])
        file = HardStateFile(self.disk)
        state = file.load() or HardState("cluster", self.name, self.name)
        self.core = Core(state, own, TIMING, self.rng, self.world.clock.now)
        self.replica = Replica(self.core, log, file, self, stretch_bytes=3_000)

    def lead(self, epoch: int) -> None:
        self.rig = Leading(self, self.world.clock, epoch, self.world.replicate)
        self.world.led.append((epoch, self.name))

    def committed(self, point: int) -> None:
        if self.rig and point > self.store.committed:
            self.store.mark_committed(point)
            self.rig.dispatch.reached(self.store.durable, point)

    def step_down(self) -> FollowerLog:  # type: ignore[override]
        if self.rig:
            lead: Lead = self.rig.lead
            lead.step_down(Unavailable("another node leads"))
            self.rig = None
        super().step_down()
        return self.log

    def change(self, after: Members) -> str:
        """The members become these, where nothing is against it; else what is."""
        why = self.replica.change_refusal(after)
        if self.rig and not why:
            self.store.append([fact_record(TOPIC, MembersFold.fact(after))], self.world.clock.wall_ms())
            self.world.post(self, self.replica.appended(self.world.clock.now))
        return why

    def force(self, lost: str) -> None:
        """An operator gives these nodes up, and has this one lead without a majority."""
        after, now = forced(self.replica.members, self.name, lost), self.world.clock.now
        self.world.post(self, self.replica.force(after, now))
        self.store.append([fact_record(TOPIC, MembersFold.fact(after))], self.world.clock.wall_ms())
        self.world.post(self, self.replica.appended(now))

    def die(self, *, power: bool) -> None:
        """The process dies, and with ``power`` the machine."""
        self.is_alive, self.rig = False, None
        self.crash(power=power)  # what the disk has then, opened at once and used when it begins again

    def sync(self) -> None:
        """What the broker has appended goes to the others and to the disk, and the core hears of it."""
        if self.is_alive:
            if self.rig:
                self.world.post(self, self.replica.appended(self.world.clock.now))
            point = self.store.sync_point()
            super().sync()
            self.world.post(self, self.replica.synced(point, self.world.clock.now))


class World:
    """Three nodes, and what happens to them.

    Attributes:
        led: every leadership, in order.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed}/replicas")
        self.clock = HandClock()
        self.led: list[tuple[int, str]] = []
        self.bag: list[tuple[Copy, ToPeer]] = []
        self.drop = self.rng.choice([0.0, 0.05, 0.2])
        self.nodes: list[Copy] = []
        for at, name in enumerate("abc"):
            self.nodes.append(Copy(name, seed + at, self))
        self.by_name = {node.name: node for node in self.nodes}
        self.cut_off: set[str] = set()

    def post(self, node: Copy, messages: list[ToPeer]) -> None:
        self.bag += [(node, one) for one in messages]

    @property
    def leader(self) -> Copy | None:
        leaders = [node for node in self.nodes if node.is_alive and node.rig]
        return max(leaders, key=lambda node: node.replica.leads, default=None)

    def replicate(self) -> None:
        """A round of the leader's broker has ended, and its disk is synced: some hear of it, and answer."""
        for _ in range(self.rng.randint(0, 12)):
            self.deliver()

    def deliver(self) -> None:
        if not self.bag:
            return
        sender, (name, message) = self.bag.pop(0)
        node = self.by_name[name]
        if not node.is_alive or {name, sender.name} & self.cut_off or self.rng.random() < self.drop:
            if sender.is_alive:
                self.post(sender, sender.replica.step(Lost(name), self.clock.now))
            return
        self.post(node, node.replica.step(Received(sender.name, sender.name, message), self.clock.now))

    def tick(self, seconds: float = 0.1) -> None:
        """Time passes, disks sync, messages arrive."""
        self.clock.now += seconds
        for node in self.nodes:
            if node.is_alive:
                self.post(node, node.replica.step(Tick(), self.clock.now))
        for node in self.nodes:
            if self.rng.random() < 0.7:
                node.sync()
        for _ in range(self.rng.randint(5, 60)):
            self.deliver()

    def elect(self) -> Copy:
        """Passes time until somebody leads."""
        for _ in range(400):
            if leader := self.leader:
                return leader
            self.tick()
        raise AssertionError("nobody leads")

    def level(self) -> None:
        """All is well for a while: every copy comes to have everything."""
        self.drop = 0.0
        for _ in range(400):
            self.revive()
            leader = self.elect()
            end = leader.log.end
            if all(node.log.applied == node.log.committed == node.log.end == end for node in self.nodes):
                return
            self.tick()
        raise AssertionError("they do not become level")

    def revive(self) -> None:
        """All nodes live, and all lines are whole."""
        self.cut_off = set()
        for node in self.nodes:
            if not node.is_alive:
                node.begin()

    def check(self) -> None:
        check(self.nodes)
