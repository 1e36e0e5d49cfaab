"""Raft for one node of a group, whose log is the broker's: events and ``now`` in, ``Ready`` out.

It knows of the log how far it goes and which epochs are in it, never a byte. It opens no file, reads no clock, waits
for nothing. A message that must wait for the disk is not among the effects until then.

| danger | prevented by |
|---|---|
| a node that cannot win disturbs those that can | pre-vote: it asks first whether it would be elected |
| a leader goes on that hears no majority | check-quorum: it steps down after the time of an election |
| a voter is talked out of a leader that it hears | it refuses candidates then, unless the leader sent them |
| on a busy machine no election ends | a node counts what it lived through (``AwakeClock``), and doubles its wait |
| a node has lost promised bytes | before it is level with its mark again it neither votes nor leads |
| a new folder under an old name votes | messages carry the folder's uuid; no other than the member's counts |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from broker.replica import events
from broker.replica.awake import AwakeClock
from broker.replica.epochs import begun_before, parting
from broker.replica.events import Ask, Event, Message, Ready, Received, Role, RoleKind, Timing, ToPeer
from broker.replica.leading import Leading
from broker.replica.log_face import HardState
from broker.replica.own_log import OwnLog
from penstock.protocol.requests.replicas import AskVote, Members, MembersAt, TakeEntries, TakeLead, Taken, Vote
from penstock.world import Rng

EPOCHS_FORCED: Final = 1_000
"""A forced leadership is so far above all epochs that the nodes which are given up may have begun meanwhile."""
_DOUBLINGS_MAX: Final = 3
"""How often the time of an election is doubled while no leader of a new epoch has committed anything."""


class Core:
    """A node's part in its group.

    Attributes:
        state: what must not be forgotten; ``Ready.save`` says when it is to be saved.
        log: what this node has.
        role: follower, candidate or leader, in which epoch, and who leads.
    """

    def __init__(self, state: HardState, log: OwnLog, timing: Timing, rng: Rng, now: float) -> None:
        """``log``: as recovery has found it. If it ends before the mark, this node has lost bytes that it had
        promised."""
        self.state = state
        self.log = log
        self.role = Role(RoleKind.FOLLOWER, state.epoch)
        self._timing = timing
        self._rng = rng
        self._leading: Leading | None = None
        self._votes: set[str] = set()
        self._is_pre = False
        self._matched = log.committed  # up to there the log is the leader's
        self._owed: list[tuple[str, int]] = []  # answers that wait for the disk: to whom, and of which round
        self._is_behind_mark = log.end < state.mark
        self._is_missing = False
        self._heard = -math.inf  # when a leader was heard
        self._settled = state.epoch  # the latest epoch that has committed something, as far as this node knows
        self._awake = AwakeClock(now, timing.gap_s)
        self._deadline = self._later(now)
        self._saved = state
        self._mark_at = now
        self._begin_ready()

    def _begin_ready(self) -> None:
        self._cut_at: int | None = None
        self._take: list[TakeEntries] = []
        self._send: list[ToPeer] = []
        self._after_save: list[ToPeer] = []
        self._must_save = False

    # ------------------------------------------------------------ in and out

    def step(self, event: Event, now: float) -> None:
        """Takes in an event. ``now``: seconds of a clock that never goes back."""
        now = self._awake.tick(now) if isinstance(event, events.Tick) else self._awake.at(now)
        _STEPS[type(event)](self, event, now)
        leading = self._leading
        if leading:
            self._lead_on(leading, now)

    def take_ready(self) -> Ready:
        """The effects since the last call: to be taken after each message."""
        leading = self._leading
        asks: tuple[Ask, ...] = tuple(leading.asks()) if leading else ()
        confirmed = leading.confirmed if leading else 0
        save = self.state if self._must_save else None
        self._saved = save or self._saved
        ready = Ready(
            save,
            self._cut_at,
            tuple(self._take),
            tuple(self._send),
            tuple(self._after_save),
            asks,
            self.log.committed,
            self.role,
            confirmed,
        )
        self._begin_ready()
        return ready

    def _say(self, node: str, message: Message) -> None:
        """A message that follows from a change of the state waits until the state is saved."""
        (self._after_save if self._must_save else self._send).append(ToPeer(node, message))

    # ------------------------------------------------------------ what a broker asks

    def refusal(self, now: float) -> str:
        """The reason why this node appends nothing now; empty where it leads and has its quorum."""
        return self._leading.refusal(self._awake.at(now)) if self._leading else "this node does not lead"

    def change_refusal(self, after: Members) -> str:
        """The reason why the members may not become these now; empty where they may. Their record is then appended at
        once."""
        return self._leading.change_refusal(after) if self._leading else "this node does not lead"

    def begin_round(self, now: float) -> int:
        """A round of signs of life; ``Ready.confirmed`` says when this node has led after it began."""
        return self._leading.begin_round(self._awake.at(now)) if self._leading else 0

    def peers(self, now: float) -> list[events.Peer]:
        """The progress of the other nodes, where this one leads."""
        return self._leading.peers(self._awake.at(now)) if self._leading else []

    def heard_s(self, now: float) -> float:
        """Seconds since a leader was heard; -1 if none was since this node began."""
        return self._awake.at(now) - self._heard if self._heard > -math.inf else -1.0

    def joined(self, cluster: str) -> None:
        """The id of this node's group has become known: it is saved with the next save."""
        self.state = self.state._replace(cluster=cluster)
        self._must_save = True

    @property
    def is_fit(self) -> bool:
        """Whether this node may be elected."""
        return self._is_voter and not self._is_behind_mark and not self._is_missing

    @property
    def _is_voter(self) -> bool:
        member = self.log.members.get(self.state.node)
        return member is not None and member.is_voter and member.uuid == self.state.uuid

    # ------------------------------------------------------------ time

    def _tick(self, _event: Event, now: float) -> None:
        if self._leading:
            if not self._leading.has_majority(now):
                self._follow(self.state.epoch, "", now)
        elif now >= self._deadline:
            self._campaign(now, is_pre=True)
        if self.state.mark != self._saved.mark and now - self._mark_at >= self._timing.mark_s:
            self._must_save = True

    def _later(self, now: float) -> float:
        return now + self._patience_s * (1 + self._rng.random())

    @property
    def _patience_s(self) -> float:
        """The time of an election; longer from epoch to epoch in which no leader has come so far as to commit anything:
        its start may take longer, or its messages."""
        tries = self.state.epoch - self._settled - (not self.role.leader)
        return self._timing.election_s * (1 << max(0, min(tries, _DOUBLINGS_MAX)))

    # ------------------------------------------------------------ elections

    def _campaign(self, now: float, *, is_pre: bool, is_move: bool = False) -> None:
        """Asks for votes, or whether there would be any."""
        self._deadline = self._later(now)
        if not self.is_fit:
            return
        me, log = self.state.node, self.log
        epoch = self.state.epoch + 1
        if not is_pre:
            self._enter(epoch)
            self.state = self.state.voted(me)
        self._is_pre = is_pre
        self._votes = {me}
        self.role = Role(RoleKind.CANDIDATE, self.state.epoch)
        ask = AskVote(epoch, me, log.epoch_at(log.end), log.end, is_pre, is_move)
        for node in log.members.voters:
            if node != me:
                self._say(node, ask)
        self._count(now)

    def _count(self, now: float) -> None:
        members = self.log.members
        if sum(node in self._votes for node in members.voters) < members.majority:
            return
        if self._is_pre:
            self._campaign(now, is_pre=False)
            return
        self.role = Role(RoleKind.LEADER, self.state.epoch, self.state.node)
        self._leading = Leading(self.state.node, self.state.epoch, self.log, self._timing, now)

    def _asked(self, sender: str, ask: AskVote, now: float) -> None:
        if ask.epoch > self.state.epoch and not ask.is_pre and not self._hears_a_leader(now, ask):
            self._follow(ask.epoch, "", now)
        is_granted = self._would_elect(ask) and not self._hears_a_leader(now, ask)
        if is_granted and not ask.is_pre:
            is_granted = ask.epoch == self.state.epoch and self.state.vote in ("", ask.candidate)
            if is_granted:
                self._must_save = self._must_save or not self.state.vote
                self.state = self.state.voted(ask.candidate)
                self._deadline = self._later(now)
        self._say(sender, Vote(ask.epoch if is_granted else self.state.epoch, is_granted, ask.is_pre))

    def _hears_a_leader(self, now: float, ask: AskVote) -> bool:
        if ask.is_move:
            return False
        return self._leading is not None or now - self._heard < self._patience_s

    def _would_elect(self, ask: AskVote) -> bool:
        if self._is_behind_mark or ask.epoch < self.state.epoch + ask.is_pre:
            return False
        return self._is_level(ask)

    def _is_level(self, ask: AskVote) -> bool:
        """Whether a candidate's log has all that this one has."""
        return (ask.last_epoch, ask.end) >= (self.log.epoch_at(self.log.end), self.log.end)

    def _voted(self, sender: str, vote: Vote, now: float) -> None:
        if vote.epoch > self.state.epoch and not (vote.is_pre and vote.is_granted):
            self._follow(vote.epoch, "", now)
            return
        asked = (self._is_pre, True, self.state.epoch + self._is_pre)
        if self.role.kind is RoleKind.CANDIDATE and (vote.is_pre, vote.is_granted, vote.epoch) == asked:
            self._votes.add(sender)
            self._count(now)

    def _enter(self, epoch: int) -> None:
        """A higher epoch than before."""
        if epoch > self.state.epoch:
            self.state = self.state.entered(epoch)
            self._must_save = True
            self._owed.clear()
            self._matched = self.log.committed

    def _follow(self, epoch: int, leader: str, now: float) -> None:
        """This node follows, in this epoch; ``leader`` may not be known yet."""
        if self._leading or self.role.kind is RoleKind.CANDIDATE:
            self._deadline = self._later(now)
        self._enter(epoch)
        self._leading = None
        self.role = Role(RoleKind.FOLLOWER, epoch, leader)

    # ------------------------------------------------------------ messages

    def _received(self, event: Received, now: float) -> None:
        if self._is_of_its_folder(event):
            _MESSAGES[type(event.message)](self, event.node, event.message, now)

    def _is_of_its_folder(self, event: Received) -> bool:
        """Whether the sender is the member of its name, or one that this node does not know yet."""
        member = self.log.members.get(event.node)
        return member is None or member.uuid == event.uuid

    def _entries(self, sender: str, entries: TakeEntries, now: float) -> None:
        """The leader's log, or a sign of its life."""
        if entries.epoch < self.state.epoch:
            self._say(sender, Taken(self.state.epoch, 0, entries.round))
            return
        assert not (self._leading and entries.epoch == self.state.epoch), f"two leaders of epoch {entries.epoch}"
        self._follow(entries.epoch, entries.leader, now)
        self._heard = now
        if self.log.epoch_at(entries.committed) == entries.epoch:
            self._settled = entries.epoch
        self._deadline = self._later(now)
        log = self.log
        if entries.position > log.end:
            self._refuse(sender, entries, log.end)
        elif log.epoch_at(entries.position) != entries.before:
            self._refuse(sender, entries, max(begun_before(log.epochs, entries.position).position, log.committed))
        else:
            self._write(entries)
            self._commit(entries)
            if entries.position < entries.end > log.durable:
                self._owed.append((sender, entries.round))
            else:
                self._answer(sender, entries.round)

    def _refuse(self, sender: str, entries: TakeEntries, conflict: int) -> None:
        self._say(sender, Taken(self.state.epoch, self._promised, entries.round, conflict))

    def _write(self, entries: TakeEntries) -> None:
        """Cuts entries that the leader does not have, and takes in new ones."""
        log = self.log
        both = min(log.end, entries.end)
        place = parting(log.epochs, entries.epochs, entries.position, both)
        if place < both:
            self._cut(place)
        if entries.end > log.end:
            new = log.end
            log.grow(
                entries.end,
                [one for one in entries.epochs if one.position >= new],
                [one for one in entries.members if one.position >= new],
            )
            self._take.append(entries)
        self._matched = max(self._matched, entries.end)

    def _cut(self, position: int) -> None:
        assert not self._take, "what is to be done is taken after each message"
        self.log.cut(position)
        self._cut_at = position
        self._matched = min(self._matched, position)
        if self.state.mark > position:
            self.state = self.state._replace(mark=position)

    def _commit(self, entries: TakeEntries) -> None:
        self.log.commit(min(entries.committed, self._matched))
        is_known = self.log.epoch_at(entries.committed) == self.state.epoch  # to the leader, all that is committed
        if self._is_behind_mark and is_known and self._promised >= entries.committed:
            self._is_behind_mark = False
            self.state = self.state._replace(mark=self._promised)

    @property
    def _promised(self) -> int:
        """Up to there this disk has the leader's log."""
        return min(self.log.durable, self._matched)

    def _answer(self, sender: str, number: int) -> None:
        """Tells a leader the durable position; from then on this node is bound by it."""
        promised = self._promised
        self._say(sender, Taken(self.state.epoch, promised, number))
        if promised > self.state.mark and not self._is_behind_mark:
            self.state = self.state._replace(mark=promised)

    def _taken(self, sender: str, reply: Taken, now: float) -> None:
        if reply.epoch > self.state.epoch:
            self._follow(reply.epoch, "", now)
        elif self._leading and reply.epoch == self.state.epoch:
            self._leading.taken(sender, reply, now)

    def _led(self, _sender: str, word: TakeLead, now: float) -> None:
        if word.epoch == self.state.epoch and not self._leading:
            self._campaign(now, is_pre=False, is_move=True)

    # ------------------------------------------------------------ the own log

    def _durable(self, event: events.Durable, now: float) -> None:
        self.log.synced(event.point)
        self._mark_at = now
        if self._leading:
            if self.log.durable > self.state.mark:
                self.state = self.state._replace(mark=self.log.durable)
        else:
            owed, self._owed = self._owed, []
            for sender, number in owed:
                self._answer(sender, number)

    def _ended(self, event: events.Ended, now: float) -> None:
        log, leading = self.log, self._leading
        if leading:
            assert event.end >= log.end, "a leader's log only grows"
            log.grow(event.end, event.epochs, event.changes)
            leading.look(now)
        elif event.end < log.end:
            log.lack(event.end)
            self._matched = min(self._matched, event.end)

    # ------------------------------------------------------------ leading

    def _lead_on(self, leading: Leading, now: float) -> None:
        """Acts on new knowledge: commits, sends entries, and ends the leadership if the leader was removed."""
        self.log.commit(leading.committed)
        if leading.is_settled:
            self._settled = leading.epoch
        for to in leading.tick(now):
            self._say(*to)
        if not self.log.has_open_change and not self.log.members.is_voter(self.state.node):
            self._follow(self.state.epoch, "", now)

    def _read(self, event: events.Read, _now: float) -> None:
        if self._leading and (to := self._leading.read(event)):
            self._say(*to)

    def _lost(self, event: events.Lost, now: float) -> None:
        if self._leading:
            self._leading.lost(event.peer, now)

    def _missing(self, event: events.Missing, now: float) -> None:
        self._is_missing = event.is_missing
        if event.is_missing and self._leading and not self._leading.is_settled:  # it could not take its log in
            self._follow(self.state.epoch, "", now)

    def _move(self, event: events.MoveLead, now: float) -> None:
        if self._leading:
            self._leading.move(event.node, now)

    def _force(self, event: events.Force, now: float) -> None:
        """Leads without an election. The members count from here on, and their record follows that of the epoch: a
        start that does not find it knows the members of before."""
        self._follow(self.state.epoch, "", now)
        self._is_behind_mark = False
        self._enter(self.state.epoch + EPOCHS_FORCED)
        self.state = self.state.voted(self.state.node)
        self.log.changes.append(MembersAt(self.log.end, event.members))
        self.role = Role(RoleKind.LEADER, self.state.epoch, self.state.node)
        self._leading = Leading(self.state.node, self.state.epoch, self.log, self._timing, now)


_STEPS: Final[dict[type, Callable[[Core, Any, float], None]]] = {
    events.Tick: Core._tick,
    events.Received: Core._received,
    events.Durable: Core._durable,
    events.Ended: Core._ended,
    events.Read: Core._read,
    events.Lost: Core._lost,
    events.Missing: Core._missing,
    events.MoveLead: Core._move,
    events.Force: Core._force,
}
_MESSAGES: Final[dict[type, Callable[[Core, Any, Any, float], None]]] = {
    AskVote: Core._asked,
    Vote: Core._voted,
    TakeEntries: Core._entries,
    Taken: Core._taken,
    TakeLead: Core._led,
}
