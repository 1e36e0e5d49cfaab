"""A group of nodes with one log, without network or core: the test decides who leads, who hears what and who dies.

The newest log of a majority leads, committed is what a majority has on its disk once a frame of the leader's own epoch
is: the rules of Raft, played by hand, so that the logs alone are on trial.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

from broker.net.lead import Lead
from broker.replica.follower_log import FollowerLog, Mismatch
from broker.replica.log_face import Begun
from broker.replica.repair import Repair
from broker.replica.resync import Resync
from broker.settings import BrokerSettings
from broker.store.message_store import MessageStore
from broker.store.queue_index import LIGHT
from broker.store.raw import BadPlace
from broker.store.recovery import StateLost, open_store
from broker.store.segment import segment_path
from broker.store_clock import compare, read_times
from broker.timer_clock import TimerClock
from penstock.guarded_clock import GuardedClock
from tests.broker.broker_rig import SMALL, HandClock, Rig
from tests.broker.recorded import RecordedState
from tests.broker.store.store_rig import log_bytes
from tests.simulation.disk import SimDisk


class Node:
    """One copy of the log, on a disk of its own."""

    def __init__(self, name: str, seed: int, **settings: Any) -> None:
        self.name = name
        self.disk = SimDisk(seed)
        self.settings = BrokerSettings(name="group", **{**SMALL, **settings})
        self.lives: list[RecordedState] = []
        self.mark = 0  # it has told a leader that its disk has everything before there
        self.matched = 0  # up to there its log is the present leader's, in this life
        self.open()

    def open(self, committed: int = 0, cut_at: int | None = None) -> None:
        self.state = RecordedState()
        self.lives.append(self.state)
        self.store: MessageStore = open_store(
            self.disk,
            self.settings.store(),
            self.state,
            1,
            is_owned=False,
            committed=committed,
            cut_at=cut_at,
        )
        self.log = FollowerLog(self.store, lambda: self.state.epochs.begun, lambda: self.state.members.now)
        self.repair = Repair(self.store)

    def sync(self) -> None:
        point = self.store.sync_point()
        self.store.sync()
        self.store.mark_durable(point)

    @property
    def may_vote(self) -> bool:
        """It has all that it has told a leader, and no damage."""
        return self.repair.is_sound and self.log.end >= self.mark

    def crash(self, *, power: bool) -> None:
        if power:
            self.disk.lose_power()
        else:
            self.disk.kill()
        self.matched = 0
        self.open()

    def step_down(self) -> None:
        """It has led, and goes on as a follower."""
        committed = self.store.committed
        self.store.abandon()
        self.open(committed)


class Leading(Rig):
    """The broker on the node that leads."""

    def __init__(self, node: Node, clock: HandClock, epoch: int, replicate: Callable[[], None]) -> None:
        node.log.take_over()
        self.node = node
        self.replicate = replicate
        self.disk, self.clock, self.settings, self.state, self.store = (
            node.disk,
            clock,
            node.settings,
            node.state,
            node.store,
        )
        self.guard = GuardedClock(clock)
        times = read_times(self.disk)
        self.times = compare(self.guard, self.store.last_ms, times)
        self.timer_clock = TimerClock(self.guard, self.times, times)
        self.lead = Lead(
            self.settings,
            self.state,
            self.store,
            self.times,
            self.timer_clock,
            lambda is_waited_for, is_whole: None,
            epoch=epoch,
        )

    def sync(self) -> None:
        """A round: this disk, some others, and what is committed then."""
        self.node.sync()
        self.replicate()

    def lead_again(self) -> None:
        """That is the group's."""


class Group:
    """Three nodes."""

    def __init__(self, seed: int, **more: Any) -> None:
        self.rng = random.Random(seed)
        self.clock = HandClock()
        self.nodes = [
            Node("a", seed, **{"chunk_bytes": 1 << 11, **more, "segment_bytes": 1 << 14}),
            Node("b", seed + 1, **{"chunk_bytes": 1 << 12, **more, "segment_bytes": 1 << 14}),
            Node("c", seed + 2, **{"reserve_step_bytes": 1 << 12, **more, "segment_bytes": 1 << 15}),
        ]
        self.epoch = 0
        self.committed = self.resyncs = 0
        self.reach = 0.7
        self.leading: Leading | None = None
        self.elect(self.nodes[0])

    @property
    def leader(self) -> Leading:
        assert self.leading is not None
        return self.leading

    def elect(self, wanted: Node | None = None) -> None:
        """The newest log of a majority leads, in a new epoch."""
        self.depose()
        for one in self.nodes:
            mend(one, self.nodes)
        voters = [one for one in self.nodes if one.may_vote]
        some = self.rng.sample(voters, 2) if wanted is None else self.nodes
        node = wanted or max(some, key=lambda one: (one.log.epoch_at(one.log.end), one.log.end))
        assert node.log.end >= self.committed, "an elected node lacks what is committed"
        self.epoch += self.rng.randint(1, 3)
        self.clock.now += 1.0
        self.leading = Leading(node, self.clock, self.epoch, self.replicate)
        self.own = self.leading.state.epochs.begun[-1][1]
        for one in self.nodes:
            one.matched = 0  # as far as the leader knows

    def depose(self) -> None:
        if self.leading is not None:
            node, self.leading = self.leading.node, None
            try:
                node.step_down()
            except StateLost:
                self.bring_back(node)

    def crash(self, node: Node, *, power: bool) -> None:
        if self.leading is not None and self.leading.node is node:
            self.leading = None
        try:
            node.crash(power=power)
        except StateLost:
            self.bring_back(node)

    def bring_back(self, node: Node) -> None:
        """A node has lost the state with which its log begins."""
        self.resync(node, max([one for one in self.nodes if one is not node], key=lambda one: one.log.committed))

    @property
    def followers(self) -> list[Node]:
        return [node for node in self.nodes if node is not self.leader.node]

    def replicate(self) -> None:
        """Some followers hear something; what a majority has is committed then."""
        for node in self.followers:
            if self.rng.random() < self.reach:
                self.feed(node)
        self.commit()

    def commit(self) -> None:
        leader = self.leader
        durable = sorted(self.matching(node) for node in self.nodes)[1]
        if durable > self.own:
            self.committed = max(self.committed, durable)
            leader.store.mark_committed(max(leader.store.committed, durable))
            leader.dispatch.reached(leader.store.durable, leader.store.committed)

    def matching(self, node: Node) -> int:
        """Up to where a node's disk surely has what the leader has, as it tells."""
        told = node.log.durable if node is self.leader.node else min(node.log.durable, node.matched)
        node.mark = max(node.mark, told)
        return told

    def feed(self, node: Node, rounds: int = 3) -> None:
        """Sends a follower what it lacks, in pieces of any size, perhaps some of it again; it syncs, and hears what is
        committed."""
        rng, log = self.rng, self.leader.node.log
        at = (node.matched or log.end) if rng.random() < 0.9 else node.log.committed
        if at < log.start:
            self.resync(node, self.leader.node)
            node.matched = node.log.end
            at = node.log.end
        for _ in range(rounds):
            try:
                stretch = log.stretch(at, log.end, rng.choice([1, 300, 5_000, 1 << 20]))
            except BadPlace as bad:
                self.leader.node.repair.note(bad.position)
                mend(self.leader.node, self.nodes)
                continue
            if not stretch.data:
                break
            mend(node, self.nodes)
            try:
                node.matched = max(node.matched, node.log.receive(stretch, self.epoch))
                at = node.matched
            except Mismatch as mismatch:
                at = agreed(log.epochs, log.end, mismatch)
        if rng.random() < 0.9:
            node.sync()
        mend(node, self.nodes)
        with contextlib.suppress(BadPlace):
            node.log.commit(min(self.leader.store.committed, node.matched))

    def resync(self, node: Node, source: Node) -> None:
        """This node needs what others have removed: it gets a whole copy."""
        resync = Resync(node.disk, node.settings.store(), source.log.start, 0.0)
        while wanted := resync.wanted(source.log.committed, 0.0):
            try:
                resync.take(source.log.stretch(wanted.position, wanted.until, self.rng.choice([500, 1 << 20])), 0.0)
            except BadPlace as bad:
                source.repair.note(bad.position)
                mend(source, self.nodes)
        assert resync.is_whole(source.log.committed)
        node.store.abandon()
        resync.finish()
        node.open(source.log.committed)
        self.resyncs += 1

    def rot(self, node: Node) -> None:
        """A byte of one copy rots; all others have it."""
        log = node.store.log
        position = self.rng.randrange(log.start, max(log.start + 1, min(one.log.committed for one in self.nodes)))
        base = max(base for base in log.bases if base <= position)
        path = segment_path(base)
        if position - base < len(node.disk.read(path)):
            node.disk.flip(path, position - base)

    # ------------------------------------------------------------ checks

    def scrub(self) -> None:
        """Every copy goes over all that it has, and is repaired."""
        for node in self.nodes:
            for _ in range(node.log.end // 1000 + 10):
                node.repair.scrub(1000)
                mend(node, self.nodes)

    def level(self) -> None:
        """All is well for a while: every copy comes to have everything."""
        self.reach = 1.0
        self.leader.node.sync()
        while not all(node.log.applied == node.log.committed == self.leader.node.log.end for node in self.nodes):
            for node in self.followers:
                self.feed(node)
                node.sync()
            self.commit()


def mend(node: Node, nodes: Sequence[Node]) -> None:
    """What of a node's log is bad comes from the others."""
    for other in [one for one in nodes if one is not node] * 2:
        while wanted := node.repair.wanted():
            try:
                stretch = other.log.stretch(wanted.position, min(wanted.until, other.log.committed))
            except BadPlace:
                break
            if not stretch.data or node.repair.take(stretch, node.log.epoch_at(wanted.position)) == wanted.position:
                break
            if not node.store.is_owned:
                node.log.repaired()


def check(nodes: Sequence[Node]) -> None:
    """All copies say the same."""
    seen: dict[tuple[int, int], bytes] = {}
    for node in nodes:
        for life in node.lives:
            for place, digest in life.seen.items():
                assert seen.setdefault(place, digest) == digest, f"{node.name} differs behind {place[0]}"
    logs = [log_bytes(node.disk, node.log.end) for node in nodes]
    for path in set().union(*logs):
        copies = {log[path] for log in logs if path in log}
        assert len(copies) == 1, f"{path} differs"
    snapshots = {node.state.snapshot() for node in nodes}
    assert len(snapshots) == 1, "states differ"
    tables = [rows(node.store) for node in nodes]
    assert tables[0] == tables[1] == tables[2]


def agreed(epochs: Begun, end: int, mismatch: Mismatch) -> int:
    """Where the leader of a log with these epochs tries next: a frame ends there in it."""
    for number in range(len(epochs) - 1, -1, -1):
        epoch = epochs[number][0]
        behind = epochs[number + 1][1] if number + 1 < len(epochs) else end
        if epoch == mismatch.epoch:
            return min(behind, mismatch.end)
        if epoch < mismatch.epoch and behind <= mismatch.end:
            return behind
    return 0


def rows(store: MessageStore) -> dict[str, tuple[int, int, int]]:
    """First, first readable and readable end of every queue that has had messages; a light one from its beginning."""
    queues = [queue for queue in store._index if queue.next > queue.first or queue.key.startswith(LIGHT)]
    return {queue.key: (queue.first, queue.next, queue.readable) for queue in queues}
