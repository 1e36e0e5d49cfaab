"""Cores of a group alone: messages in a bag that loses, doubles and mixes them, disks that forget, nodes that die.

A world is driven by one generator: the same seed gives the same run. What must hold is checked at every step; E1 to E12
are those of docs/decisions/0086-*. Logs are lists of entries, so that thousands of worlds run in seconds.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from broker.replica.core import Core
from broker.replica.events import (
    Durable,
    Ended,
    Event,
    Force,
    Lost,
    Message,
    MoveLead,
    Read,
    Ready,
    Received,
    RoleKind,
    Tick,
    Timing,
    ToPeer,
)
from broker.replica.log_face import HardState
from broker.replica.members import with_member, without_member
from broker.replica.membership import forced
from broker.replica.own_log import OwnLog
from penstock.protocol.requests.replicas import EpochAt, Member, Members, MembersAt, TakeEntries, TakeLead, Vote

TIMING = Timing(election_s=0.8, heartbeat_s=0.2, gap_s=0.4, window_bytes=200)


class Entry(NamedTuple):
    """One frame. ``number``: its own among all that were ever written."""

    position: int
    end: int
    epoch: int
    watermark: int
    number: int
    members: Members | None = None


class Disk:
    """A node's files: entries of which the first ``synced`` survive a power loss, and the hard state."""

    def __init__(self, node: str, uuid: str) -> None:
        self.hard = HardState("cluster", node, uuid)
        self.entries: list[Entry] = []
        self.synced = 0

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    @property
    def promised(self) -> int:
        """What the frames say of what is committed."""
        return max((one.watermark for one in self.entries), default=0)

    def before(self, position: int) -> int:
        """How many entries stand before a position."""
        return bisect_left(self.entries, position, key=lambda one: one.end) + 1 if position else 0

    def cut(self, position: int) -> None:
        del self.entries[self.before(position) :]
        self.synced = min(self.synced, len(self.entries))

    def opened(self, bootstrap: Members) -> OwnLog:
        """The log as recovery finds it."""
        self.synced = len(self.entries)
        epochs: list[EpochAt] = []
        for one in self.entries:
            if not epochs or epochs[-1].epoch != one.epoch:
                epochs.append(EpochAt(one.epoch, one.position))
        changes = [MembersAt(-1, bootstrap)] if bootstrap.nodes else []
        changes += [MembersAt(one.position, one.members) for one in self.entries if one.members]
        return OwnLog(self.end, self.end, self.promised, epochs, changes)


class Node:
    """One node: a disk, and while it lives a core."""

    def __init__(self, name: str, bootstrap: Members) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.disk = Disk(name, f"{name}-1")
        self.core: Core | None = None
        self.committed = 0
        self.leads = 0  # the epoch that it leads
        self.frozen_until = 0.0


class Habits(NamedTuple):
    """What happens in one world, how likely at each step, and who is in it."""

    voters: int = 3
    observers: int = 0
    spares: int = 0
    copies: int = 1
    drop: float = 0.0
    double: float = 0.0
    mix: float = 0.0
    crash: float = 0.0
    power: float = 0.5
    cut: float = 0.0
    freeze: float = 0.0
    full: float = 0.0
    change: float = 0.0
    move: float = 0.0
    forget: bool = False
    wipe: bool = False

    @staticmethod
    def of(rng: random.Random) -> Habits:
        """Some of all that can happen."""
        pick = rng.choice
        harm = pick(["", "", "forget", "wipe"])  # what a group survives on one of its nodes
        changes = 0.0 if harm else pick([0.0, 0.05])
        return Habits(
            voters=pick([3, 3, 5]) if harm else pick([3, 3, 3, 5, 2, 1]),
            observers=pick([0, 0, 1]),
            spares=2 if changes else 0,
            copies=pick([1, 1, 2]),
            drop=pick([0.0, 0.02, 0.15]),
            double=pick([0.0, 0.1]),
            mix=pick([0.0, 0.3, 1.0]),
            crash=pick([0.0, 0.005, 0.02, 0.05]),
            power=pick([0.0, 0.5, 1.0]),
            cut=pick([0.0, 0.02, 0.05]),
            freeze=pick([0.0, 0.01]),
            full=pick([0.0, 0.0, 0.1]),
            change=changes,
            move=pick([0.0, 0.02]),
            forget=harm == "forget",
            wipe=harm == "wipe",
        )


class World:
    """A group and what happens to it.

    Attributes:
        truth: all that was ever committed, in order.
        taken_back: how often a node has cut its log.
        stretch_entries_max: most entries that are sent at a time.
        die_before_save: nodes that lose their power as soon as they would save.
        log: what happened, a line each.
    """

    def __init__(self, seed: int, habits: Habits | None = None) -> None:
        self.rng = random.Random(f"{seed}/raft")
        self.habits = self._hardship = habits or Habits.of(self.rng)
        self.now = 0.0
        self.log: list[str] = [f"{self.habits}"]
        names = "abcdefgh"[: self.habits.voters + self.habits.observers]
        members = Members(
            tuple(Member(name, f"{name}-1", "", number < self.habits.voters) for number, name in enumerate(names)),
            min(self.habits.copies, len(names)),
        )
        self.nodes = {name: Node(name, members) for name in names}
        self.nodes |= {name: Node(name, Members()) for name in "xyz"[: self.habits.spares]}
        self.bag: list[tuple[str, str, str, Message]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.truth: list[Entry] = []
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, str, int], str] = {}
        self.holders: dict[int, set[tuple[str, str]]] = {}
        self.rounds: dict[tuple[str, int, int], int] = {}
        self.taken_back = 0
        self.die_before_save: set[str] = set()
        self.stretch_entries_max = 4
        self._number = 0
        self._is_calm = False
        self._wiped = ""
        for node in self.nodes.values():
            self.start(node)

    # ------------------------------------------------------------ the nodes

    def say(self, what: str) -> None:
        self.log.append(f"{self.now:8.3f} {what}")

    def start(self, node: Node) -> None:
        opened = node.disk.opened(node.bootstrap)
        node.core = Core(node.disk.hard, opened, TIMING, random.Random(self.rng.random()), self.now)
        node.committed = opened.committed
        for one in node.disk.entries:
            self._hold(node, one)
        self.say(f"{node.name} starts with {node.disk.end} in epoch {node.disk.hard.epoch}")

    def crash(self, node: Node, *, power: bool) -> None:
        if node.core is None:
            return
        mark = node.core.state.mark
        node.core, node.leads = None, 0
        disk = node.disk
        if power:
            del disk.entries[self.rng.randint(disk.synced, len(disk.entries)) :]
        if self.habits.forget and node.name == "a" and 0 < mark == disk.hard.mark and self.rng.random() < 0.5:
            disk.cut(self.rng.choice([0, *[one.end for one in disk.entries if one.end < mark]]))
            self.say("a has forgotten what it promised")
        self.say(f"{node.name} dies with {disk.end}")

    def wipe(self, node: Node) -> None:
        """A new folder under the old name."""
        self.crash(node, power=False)
        self._wiped = node.name
        node.disk = Disk(node.name, f"{node.name}-2")
        node.bootstrap = Members()
        self.say(f"{node.name} has a new folder")

    @property
    def leader(self) -> Node | None:
        """The leader of the highest epoch that is alive."""
        return max((one for one in self.nodes.values() if one.leads), key=lambda one: one.leads, default=None)

    def step(self, node: Node, event: Event) -> None:
        """One event for a node's core, and all that it wants done then."""
        core = node.core
        if core is None:
            return
        core.step(event, self.now)
        while node.core is core:
            ready = core.take_ready()
            is_short = self._carry_out(node, core, ready)
            if is_short and node.core is core:
                core.step(Ended(node.disk.end), self.now)
            elif not ready.asks:
                return
            for ask in ready.asks:
                core.step(self._stretch(node, ask.peer, ask.position), self.now)

    def _stretch(self, node: Node, peer: str, position: int) -> Read:
        first = node.disk.before(position)
        entries = node.disk.entries[first : first + self.rng.randint(1, self.stretch_entries_max)]
        return Read(peer, position, entries[-1].end, entries)

    def _carry_out(self, node: Node, core: Core, ready: Ready) -> bool:
        """Whether the disk had no room for all that came."""
        self._post(node, ready.send)
        if ready.save:
            if node.name in self.die_before_save or (not self._is_calm and self.rng.random() < self.habits.crash):
                self.crash(node, power=True)
                return False
            node.disk.hard = ready.save
        if ready.cut_at is not None:
            assert ready.cut_at >= max(node.committed, node.disk.promised), "E6: cut below what is committed"
            self.taken_back += 1
            node.disk.cut(ready.cut_at)
        is_short = any([self._write(node, entries) for entries in ready.take])
        self._post(node, ready.after_save)
        self._see_role(node, core, ready)
        self._see_commit(node, core, ready)
        return is_short

    def _write(self, node: Node, entries: TakeEntries) -> bool:
        """Whether the disk had no room for all of it; what it has is whole frames."""
        body: Any = entries.body
        new = [one for one in body if one.position >= node.disk.end]
        assert new[-1].end == entries.end, "a stretch that does not fit"
        is_full = not self._is_calm and self.rng.random() < self.habits.full
        node.disk.entries += new[: self.rng.randrange(len(new))] if is_full else new
        return is_full

    def _post(self, node: Node, messages: tuple[ToPeer, ...]) -> None:
        for to, message in messages:
            if isinstance(message, Vote) and message.is_granted and not message.is_pre:
                key = node.name, node.disk.hard.uuid, message.epoch
                assert self.votes.setdefault(key, to) == to, f"E2: {node.name} votes twice in epoch {message.epoch}"
            self.bag.append((node.name, node.disk.hard.uuid, to, message))

    # ------------------------------------------------------------ what must hold

    def _see_role(self, node: Node, core: Core, ready: Ready) -> None:
        epoch = ready.role.epoch if ready.role.kind is RoleKind.LEADER else 0
        if epoch != node.leads:
            node.leads = epoch
            if epoch:
                self._see_leader(node, core, epoch)
        for name, round_epoch, number in [one for one in self.rounds if one[0] == node.name]:
            if epoch != round_epoch:
                del self.rounds[name, round_epoch, number]
            elif ready.confirmed >= number:
                before = self.rounds.pop((name, round_epoch, number))
                assert ready.committed >= before, "a round is confirmed by a leader that does not know all"

    def _see_leader(self, node: Node, core: Core, epoch: int) -> None:
        self.say(f"{node.name} leads epoch {epoch} from {node.disk.end}")
        assert self.leaders.setdefault(epoch, node.name) == node.name, f"E1: two leaders of epoch {epoch}"
        known = node.disk.entries[: len(self.truth)]
        assert known == self.truth, f"E4: the leader of epoch {epoch} lacks what is committed"
        member = core.log.members.get(node.name)
        assert member == Member(node.name, node.disk.hard.uuid), "E10: no voter leads"
        self.begin_epoch(node)

    def begin_epoch(self, node: Node) -> None:
        """The record with which a leader begins."""
        self.append(node)

    def _see_commit(self, node: Node, core: Core, ready: Ready) -> None:
        assert ready.committed >= node.committed, "E5: committed goes back"
        committed = ready.committed
        if self.habits.full:  # as ``FollowerLog.commit``
            committed = min(committed, node.disk.end)
        if committed == node.committed:
            return
        old, new = node.disk.before(node.committed), node.disk.before(committed)
        assert committed <= node.disk.end, "E5: committed beyond the end"
        both = min(new, len(self.truth))
        assert node.disk.entries[old:both] == self.truth[old:both], f"E3: {node.name} differs in what is committed"
        if new > len(self.truth):
            self.truth += node.disk.entries[len(self.truth) : new]
        if node.leads:
            self._see_copies(core.log.members, node.disk.entries[new - 1])
        node.committed = committed

    def _see_copies(self, members: Members, last: Entry) -> None:
        held = self.holders.get(last.number, set())
        voters = [one for one in members.nodes if one.is_voter]
        on = sum((one.node, one.uuid) in held for one in voters)
        assert on > len(voters) // 2, "E7, E10: committed without a majority of disks"
        copies = sum((one.node, one.uuid) in held for one in members.nodes)
        assert copies >= members.copies, "E7: committed on too few disks"

    def _hold(self, node: Node, entry: Entry) -> None:
        self.holders.setdefault(entry.number, set()).add((node.name, node.disk.hard.uuid))

    # ------------------------------------------------------------ what happens

    def watermark(self, node: Node) -> int:
        """What a leader's frame says of what is committed."""
        assert node.core
        return node.core.log.committed

    def append(self, node: Node, members: Members | None = None) -> None:
        """A leader writes a frame."""
        core = node.core
        assert core
        end = node.disk.end
        self._number += 1
        size = self.rng.choice((10, 20, 30))
        node.disk.entries.append(Entry(end, end + size, node.leads, self.watermark(node), self._number, members))
        begun = (EpochAt(node.leads, end),) if core.log.epoch_at(end) < node.leads else ()
        self.step(node, Ended(end + size, begun, (MembersAt(end, members),) if members else ()))

    def sync(self, node: Node) -> None:
        if node.core and node.disk.synced < len(node.disk.entries):
            for one in node.disk.entries[node.disk.synced :]:
                self._hold(node, one)
            node.disk.synced = len(node.disk.entries)
            self.step(node, Durable(node.disk.end))

    def change(self, node: Node) -> None:
        """A leader is asked for another member, or another role of one."""
        core = node.core
        assert core
        members = core.log.members
        name = self.rng.choice(list(self.nodes))
        member = members.get(name)
        if member is None:
            after = with_member(members, Member(name, self.nodes[name].disk.hard.uuid, "", False))
        elif self.rng.random() < 0.7:
            after = with_member(members, member._replace(is_voter=not member.is_voter))
        else:
            after = without_member(members, name)
        if len(after.voters) >= 2 and not core.change_refusal(after):
            log = core.log
            assert log.epoch_at(log.committed) == node.leads, "E11: a change before the epoch is committed"
            assert all(one.position < log.committed for one in log.changes), "E11: two changes are open"
            self.say(f"{node.name} changes {name}: voters {after.voters}")
            self.append(node, after)

    def force(self, name: str, lost: Collection[str]) -> None:
        """These are lost for good, and an operator has this node lead without a majority."""
        node = self.nodes[name]
        for one in lost:
            self.crash(self.nodes.pop(one), power=True)
        assert node.core
        after = forced(node.core.log.members, name, lost)
        del self.truth[len(node.disk.entries) :]
        self.step(node, Force(after))
        self.append(node, after)

    def happen(self) -> None:
        """One thing happens."""
        rng, habits = self.rng, self.habits
        self.now += rng.random() * 0.06
        node = rng.choice(list(self.nodes.values()))
        if node.frozen_until > self.now:
            return
        what = rng.random()
        if node.core is None:
            if what < 0.3:
                self.start(node)
            return
        for chance, act in (
            (habits.crash, self._die),
            (habits.freeze, self._freeze),
            (habits.cut, self._cut_lines),
            (habits.move, self._move),
        ):
            if rng.random() < chance:
                act(node)
        if node.core is None:
            return
        if what < 0.3:
            self.step(node, Tick())
        elif what < 0.45:
            self.sync(node)
        elif what < 0.75 and node.leads and not node.core.refusal(self.now):
            self.append(node)
        if node.leads and rng.random() < habits.change:
            self.change(node)
        elif node.leads and what > 0.95:
            self._begin_round(node)
        for _ in range(2):
            self.deliver()

    def _die(self, node: Node) -> None:
        if self.habits.wipe and not self._wiped and self.rng.random() < 0.3:
            self.wipe(node)
        else:
            self.crash(node, power=self.rng.random() < self.habits.power)

    def _freeze(self, node: Node) -> None:
        node.frozen_until = self.now + self.rng.random() * 3
        self.say(f"{node.name} is frozen until {node.frozen_until:.3f}")

    def _cut_lines(self, node: Node) -> None:
        """Lines from this node, or to it, are cut, or all are mended."""
        kind = self.rng.random()
        self.cuts.clear()
        if kind < 0.7:
            others = [one for one in self.nodes if one != node.name]
            self.cuts |= {(node.name, one) for one in others} if kind < 0.5 else set()
            self.cuts |= {(one, node.name) for one in others} if kind > 0.3 else set()

    def _move(self, _node: Node) -> None:
        if leader := self.leader:
            self.step(leader, MoveLead(self.rng.choice(list(self.nodes))))

    def _begin_round(self, node: Node) -> None:
        assert node.core
        number = node.core.begin_round(self.now)
        self.rounds[node.name, node.leads, number] = self.truth[-1].end if self.truth else 0

    def deliver(self) -> None:
        """A message comes out of the bag, or is lost."""
        if not self.bag:
            return
        rng, habits = self.rng, self.habits
        number = rng.randrange(len(self.bag)) if rng.random() < habits.mix else 0
        sender, uuid, to, message = self.bag[number]
        if len(self.bag) > 80 or rng.random() >= habits.double:
            del self.bag[number]
        node = self.nodes[to]
        if (sender, to) in self.cuts or rng.random() < habits.drop or node.core is None:
            back = self.nodes[sender]
            if rng.random() < 0.3 and back.frozen_until <= self.now:
                self.step(back, Lost(to))
            return
        if node.frozen_until > self.now:
            self.bag.append((sender, uuid, to, message))
            return
        self.step(node, Received(sender, uuid, message))

    # ------------------------------------------------------------ a run

    def run(self, steps: int = 300) -> None:
        """Hardship, then calm: in calm there is a leader soon, and all nodes have the same."""
        if self.rng.random() < 0.7:
            self.calm()
            self._is_calm, self.habits = False, self._hardship
        for _ in range(steps):
            self.happen()
        self.calm()

    def calm(self, within_s: float = 40.0) -> None:
        self._is_calm = True
        self.cuts.clear()
        self.bag.clear()
        self.habits = self.habits._replace(drop=0.0, double=0.0, mix=0.0)
        self.say("calm")
        for node in self.nodes.values():
            node.frozen_until = 0.0
            if node.core is None:
                self.start(node)
        until = self.now + within_s
        while not self.is_level():
            assert self.now < until, f"no leader, or not level: {self.figures()}"
            self.pass_time(0.1)

    def pass_time(self, seconds: float) -> None:
        """Time passes in calm: everything arrives, every disk syncs."""
        self.now += seconds
        for node in self.nodes.values():
            self.step(node, Tick())
        for node in self.nodes.values():
            self.sync(node)
        messages = 0
        while self.bag:
            messages += 1
            assert messages < 20_000, "the nodes talk for ever"
            self.deliver()
            if not self.bag:
                for node in self.nodes.values():
                    self.sync(node)

    def ask_to_lead(self, name: str) -> None:
        """A node begins an election at once, as if a leader had asked it to."""
        node = self.nodes[name]
        assert node.core
        self.step(node, Received(name, node.disk.hard.uuid, TakeLead(node.core.state.epoch)))

    def campaign(self, name: str) -> None:
        """A node tries to be elected, and all messages arrive."""
        for _ in range(3):  # others may be in a higher epoch
            if not self.nodes[name].leads:
                self.ask_to_lead(name)
                self.pass_time(0.01)

    def deliver_until(self, fact: Callable[[], bool], *, syncs: str = "") -> None:
        """Delivers message after message, and syncs these nodes' disks, until something is so."""
        for _ in range(200):
            if fact():
                return
            self.deliver()
            for name in syncs:
                self.sync(self.nodes[name])
        raise AssertionError(f"it does not come to that: {self.figures()}")

    def part(self, *names: str) -> None:
        """Cuts these nodes off from the others; none: all lines are mended."""
        others = set(self.nodes) - set(names)
        self.cuts = {line for one in names for other in others for line in ((one, other), (other, one))}

    def is_level(self) -> bool:
        """Whether one leads, and all members have all of its log, committed."""
        leader = self.leader
        if not leader or not leader.core or not self.truth:
            return False
        log = leader.core.log
        if log.committed != log.end:
            return False
        for member in log.members.nodes:
            node = self.nodes[member.node]
            if node.name != self._wiped and (node.disk.end != log.end or node.committed != log.end):
                return False
        return True

    def figures(self) -> str:
        return "; ".join(
            f"{node.name} {node.core.role.kind.value} of {node.core.state.epoch} {node.committed}/{node.disk.end}"
            for node in self.nodes.values()
            if node.core
        )
