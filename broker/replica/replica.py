"""One node of a group: carries out its core's decisions on log and disk, and returns the messages to send.

It blocks on the disk when it saves a promise or cuts the log, never for the log's own sync, which ``synced`` reports.
When its leadership ends it opens the store again, because the broker's state may know frames that are cut. A copy that
meets damage still receives entries, and does not lead before it is ``repaired``.
"""

from __future__ import annotations

from typing import Protocol

from broker.replica.core import Core
from broker.replica.epochs import begun_within
from broker.replica.events import Ask, Durable, Ended, Event, Force, Missing, Read, Ready, Role, RoleKind, ToPeer
from broker.replica.follower_log import Mismatch
from broker.replica.log_face import STRETCH_BYTES, HardState, ReplicaLog, StateFile, Stretch
from broker.store.raw import BadPlace
from penstock.errors import Damaged, ProtocolError, StorageFull
from penstock.protocol.requests.replicas import Members, TakeEntries


class Office(Protocol):
    """The broker of a node, which leads the log or does not."""

    def lead(self, epoch: int) -> None:
        """The log is this broker's, in this epoch, whose record it writes first."""
        ...

    def committed(self, point: int) -> None:
        """While it leads: everything before ``point`` is committed."""
        ...

    def step_down(self) -> ReplicaLog:
        """It does not lead any more. Returns the log, opened again, without uncommitted frames in its state."""
        ...


class Replica:
    """A node's core, joined to its log.

    Args:
        core: made from the state and the log as they were found.
        office: the node's broker.
        stretch_bytes: about how much of the log one message holds.

    Attributes:
        log: the node's; another one after each leadership.
        confirmed: the latest round of this leadership that a majority has answered; 0 while it does not lead.
    """

    def __init__(
        self, core: Core, log: ReplicaLog, state: StateFile, office: Office, stretch_bytes: int = STRETCH_BYTES
    ) -> None:
        self.log = log
        self._core = core
        self._state = state
        self._office = office
        self._stretch_bytes = stretch_bytes
        self._leads = 0
        self._is_missing = False
        self.confirmed = 0

    @property
    def leads(self) -> int:
        """The epoch that this node leads, or 0."""
        return self._leads

    @property
    def role(self) -> Role:
        """The role of this node, and the leader."""
        return self._core.role

    @property
    def state(self) -> HardState:
        """The durable state of the node: its identity, epoch, vote and mark."""
        return self._core.state

    def joined(self, cluster: str) -> None:
        """The group's id has become known."""
        self._core.joined(cluster)

    def refusal(self, now: float) -> str:
        """The reason why nothing may be appended now; empty if it may."""
        return self._core.refusal(now)

    @property
    def members(self) -> Members:
        """The members of the group by this node's log, uncommitted records included."""
        return self._core.log.members

    def change_refusal(self, after: Members) -> str:
        """The reason why the members may not become these now; empty if they may: their record is then appended at
        once, and nothing else before ``appended``."""
        return self._core.change_refusal(after)

    def force(self, members: Members, now: float) -> list[ToPeer]:
        """This node leads, though no majority has elected it (``membership.forced``); the record of its members is
        appended at once. Raises ``Damaged`` where the log cannot be taken in, and ``StorageFailed``."""
        if self._is_missing:
            raise Damaged("this copy of the log is damaged and cannot be led", hint="force another node")
        return self.step(Force(members), now)

    def step(self, event: Event, now: float) -> list[ToPeer]:
        """Takes in an event, or the passing of time; returns the messages to send. Raises ``StorageFailed``."""
        sent: list[ToPeer] = []
        events = [event]
        while events:
            self._core.step(events.pop(0), now)
            events += self._carry_out(self._core.take_ready(), sent)
        return sent

    @property
    def has_grown(self) -> bool:
        """Whether the log has frames that the core does not know of."""
        return self.log.frames_end > self._core.log.end

    def appended(self, now: float) -> list[ToPeer]:
        """The broker that leads has written to the log: it goes to the others while this disk syncs it."""
        return self.step(self._grown(), now)

    def begin_round(self, now: float) -> tuple[int, list[ToPeer]]:
        """A round of signs of life, where this node leads: its number, and the messages to send. When it is
        ``confirmed`` this node has led after it began."""
        number = self._core.begin_round(now)
        return number, self.appended(now)

    def synced(self, point: int, now: float) -> list[ToPeer]:
        """This disk has everything before ``point``, where the log ended as its sync began."""
        return self.step(Durable(point), now)

    def repaired(self, now: float) -> list[ToPeer]:
        """Notes that the damage of this copy is repaired: it may lead again."""
        self._is_missing = False
        return self.step(Missing(False), now)

    def _grown(self) -> Ended:
        known, log = self._core.log.end, self.log
        changes = tuple(one for one in log.changes if one.position >= known)
        end = max(known, log.frames_end)
        return Ended(end, begun_within(log.epochs, known, end), changes)

    def _carry_out(self, ready: Ready, sent: list[ToPeer]) -> list[Event]:
        """Carries out the effects in order; returns the events for the core."""
        events: list[Event] = []
        self.confirmed = ready.confirmed
        sent += ready.send
        if ready.save:
            self._state.save(ready.save)
        epoch = ready.role.epoch if ready.role.kind is RoleKind.LEADER else 0
        if self._leads and epoch != self._leads:
            self._leads = 0
            self.log = self._office.step_down()
            events.append(Durable(self.log.durable))
        if ready.cut_at is not None and ready.cut_at < self.log.end:
            self.log.cut(ready.cut_at)
        try:
            if not all([self._write(entries) for entries in ready.take]):
                events.append(Ended(self.log.end))
        except BadPlace:  # rot in what is committed: the rest waits for its repair
            events += [Ended(self.log.end), *self._miss()]
        sent += ready.after_save
        try:
            self._commit(ready.committed)
        except BadPlace:
            events += self._miss()
        if epoch and not self._leads:
            events += self._lead(epoch)
        events += [found for ask in ready.asks if (found := self._read(ask))]
        return events

    def _lead(self, epoch: int) -> list[Event]:
        try:
            self.log.take_over()
        except BadPlace:  # damage found just now: another node leads, and this copy is repaired
            return self._miss()
        self._leads = epoch
        self._office.lead(epoch)
        return [self._grown()]

    def _miss(self) -> list[Event]:
        if self._is_missing:
            return []
        self._is_missing = True
        return [Missing(True)]

    def _commit(self, point: int) -> None:
        if self._leads:
            self._office.committed(point)
        elif point > self.log.committed:
            self.log.commit(point)

    def _write(self, entries: TakeEntries) -> bool:
        """Whether the log goes on with these entries: not where there is no room, where they are damaged, or where the
        log ends earlier than the core thinks. Raises ``BadPlace``."""
        stretch = Stretch(entries.position, entries.before, bytes(entries.body))
        try:
            return self.log.receive(stretch, entries.epoch) == entries.end
        except (StorageFull, ProtocolError, Mismatch):
            return False

    def _read(self, ask: Ask) -> Read | None:
        """The log that a peer lacks; empty if this copy is damaged there, or has only a blank."""
        try:
            data, behind = self.log.frames(ask.position, self._stretch_bytes)
        except BadPlace:
            return None
        return Read(ask.peer, ask.position, behind, data) if data else None
