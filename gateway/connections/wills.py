"""Waiting wills: of sessions whose connection ended without a DISCONNECT, here or at a gateway that died.

A will is published when its delay has passed or its session ends, whichever is first (MQTT-3.1.2-8), unless its client
is back by then (MQTT-3.1.3-9). The delay counts from when the client went, whichever gateway has the will. Before a
publication the home confirms that the session is still ours, so that two gateways never publish one will; then the
session is released, or ended if its time is over. A gateway that dies in between leaves the will to the next one, so it
comes at least once. Its publisher must still be allowed to publish it when it is due.

A published will has an *executor* until it is stored: while its broker is away, or if it is unknown whether it was
stored, it is published again. Until then the home has the will too, for another gateway if this one dies, unless the
client wants its session back. Executors have ``KEPT_BYTES_MAX`` together; wills beyond that are published once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gateway.limits.creations import Creations
from gateway.net.deadlines import LOOK_S, Deadlines
from gateway.net.rounds import Rounds
from gateway.publishing.broker_batch import Publisher
from gateway.publishing.upstream import Upstream
from gateway.sessions.session_state import Will, decode_will
from gateway.sessions.store import SessionStore, ignore_loss
from penstock.errors import AWAY, NoRoute, PenstockError, StorageFull, TimedOut
from penstock.protocol.requests.sessions import GONE, OpenedSession, SessionCall, SessionSave
from penstock.protocol.requests.topics import DescribeTopic

KEPT_BYTES_MAX: Final = 64 << 20
_EXECUTOR_BYTES: Final = 1024  # what one takes beside its payload
_PASSING: Final = AWAY | {NoRoute.code, StorageFull.code, TimedOut.code}


LastWord = Callable[[], None]
"""Tells the home the fate of the session whose will this was."""


def _say_nothing() -> None:
    """The home needs no word."""


class Pending(NamedTuple):
    """A will and the session that it belongs to. ``ends``: the session is over when the will is due."""

    client: str
    epoch: int
    will: Will
    expiry_s: int
    due: float
    ends: bool


class Executor(Publisher):
    """Sees to it that one will is stored; ``last_word`` is for then. ``held``: what shows that the session is ours
    still. ``is_over``: the will is settled, or another's."""

    def __init__(
        self, wills: Wills, client: str, will: Will, last_word: LastWord, held: SessionSave | None = None
    ) -> None:
        self._wills = wills
        self.client = client
        self.will = will
        self.last_word = last_word
        self.held = held
        self.size = len(will.payload) + len(will.application) + _EXECUTOR_BYTES
        self.unstored = self.kept = self.sequence = 0
        self.is_v5 = False  # it waits for room in the log
        self.is_over = False

    def end(self) -> None:
        """The will is settled, or another's."""
        self.is_over = True

    def stored(self, first: int, marks: list[bytes], size: int, exact: bool) -> None:
        self.answered(size)
        if not self.is_over:
            self._wills.settled(self)

    def answered(self, size: int) -> None:
        self.unstored -= size

    def ask_to_make(self, topic: str) -> DescribeTopic | PenstockError:
        return self._wills.ask_to_make(self, topic)

    def refused(self, first: int, mark: bytes, code: int, why: str = "") -> None:
        if self.is_over:
            return
        if code in _PASSING:
            self._wills.execute_later(self)
        else:
            self._wills.settled(self, dropped=1)

    def fate_unknown(self, marks: list[bytes]) -> None:
        if not self.is_over:
            self._wills.execute_later(self)

    def hold_reading(self) -> None:
        """There is nothing to read."""

    def release_reading(self) -> None:
        """There is nothing to read."""


class Wills:
    """The waiting wills of one gateway."""

    def __init__(
        self,
        home: SessionStore,
        upstream: Upstream,
        rounds: Rounds,
        may_leave: Callable[[str, Will], bool],
        creations: Creations,
    ) -> None:
        """``may_leave``: whether a client may publish its will now. ``creations``: the topics that clients make."""
        self._home = home
        self._upstream = upstream
        self._rounds = rounds
        self._waiting: dict[str, Pending] = {}
        self._claiming: set[str] = set()
        self._due: Deadlines[Pending] = Deadlines()
        self._kept_bytes = 0
        self._again: list[Executor] = []
        self._storing: dict[str, Executor] = {}  # client -> whose last word has not been said
        self._may_leave = may_leave
        self._creations = creations

    def __len__(self) -> int:
        return len(self._waiting)

    def ask_to_make(self, executor: Executor, topic: str) -> DescribeTopic | PenstockError:
        """The request with which the topic of a will is made, or why it is not."""
        return self._creations.take(topic, executor.client, executor.will.user, "", self._rounds.now)

    def publish(
        self, client: str, will: Will, last_word: LastWord = _say_nothing, held: SessionSave | None = None
    ) -> Callable[[], None]:
        """Publishes at once, if that is allowed. ``last_word`` is said when the will is stored or given up, unless the
        client wants its session back before that. ``held``: a save that its home takes for as long as the session is
        ours. Gives what is to be called if it proves to have been another's before, whose the will is then."""
        executor = Executor(self, client, will, last_word, held)
        if not self._may_leave(client, will):
            self._upstream.drop(1, unauthorized=True)
            last_word()
            executor.end()
        elif self._kept_bytes + executor.size <= KEPT_BYTES_MAX:
            self._kept_bytes += executor.size
            if last_word is not _say_nothing:
                self._storing[client] = executor
            self._upstream.publish_will(client, will, executor)
        else:
            self._upstream.publish_will(client, will, None)
            last_word()
            executor.end()
        self._rounds.wake()
        return partial(self._lost, executor)

    def _lost(self, executor: Executor) -> None:
        """The session was another's already, and so is its will."""
        if not executor.is_over:
            executor.end()
            self._kept_bytes -= executor.size
            if self._storing.get(executor.client) is executor:
                del self._storing[executor.client]

    def held(self) -> list[tuple[SessionSave, Callable[[], None]]]:
        """Saves that confirm the sessions of wills being stored, with the callbacks if they are another gateway's."""
        return [(one.held, partial(self._lost, one)) for one in self._storing.values() if one.held is not None]

    def settled(self, executor: Executor, dropped: int = 0) -> None:
        """A will is stored, or given up."""
        executor.end()
        self._kept_bytes -= executor.size
        self._upstream.drop(dropped)
        if self._storing.get(executor.client) is executor:
            del self._storing[executor.client]
            executor.last_word()

    def execute_later(self, executor: Executor) -> None:
        """A will may not be stored: it is published again with the next tick."""
        self._again.append(executor)

    def wait(self, client: str, epoch: int, will: Will, expiry_s: int, due: float = math.inf) -> None:
        """Publishes later, unless the client comes back. ``due``: when at the latest, of one that has waited before."""
        due = min(due, self.moment(will, expiry_s))
        pending = Pending(client, epoch, will, expiry_s, due, expiry_s <= will.delay_s)
        self._waiting[client] = pending
        self._look_later(pending)

    def _look_later(self, pending: Pending) -> None:
        self._due.add(min(pending.due, self._rounds.now + LOOK_S), pending)

    def moment(self, will: Will, expiry_s: int, absence_s: float = 0.0) -> float:
        """The due time of a will whose client has been gone for a time; it may be past."""
        return self._rounds.now + min(will.delay_s, expiry_s) - absence_s

    def due(self, client: str) -> float:
        """The due time of the client's will, never if none waits."""
        pending = self._waiting.get(client)
        return math.inf if pending is None else pending.due

    def cancel(self, client: str) -> bool:
        """The client is back here: a will that waits is void. Whether it was published and is being stored; that goes
        on."""
        self._waiting.pop(client, None)
        return self._storing.pop(client, None) is not None

    def hand_over(self, call: SessionCall) -> None:
        """The client is back at another gateway, which gets the session at once. A will that is being stored stays
        here."""
        pending = self._waiting.pop(call.client, None)
        if pending is not None:
            on_lost = self.publish(call.client, pending.will) if call.clean else ignore_loss
            self._home.finish(call.client, call.epoch, pending.expiry_s, ends=False, on_lost=on_lost)
        executor = self._storing.pop(call.client, None)
        if executor is not None:
            executor.last_word()

    def tick(self, now: float) -> None:
        """Sees to what is due."""
        again, self._again = self._again, []
        for executor in [one for one in again if not one.is_over]:
            self._upstream.publish_will(executor.client, executor.will, executor)
        for pending in self._due.take(now):
            if self._waiting.get(pending.client) is not pending:
                continue
            if pending.due > now:
                self._look_later(pending)
            else:
                save = SessionSave(pending.client, pending.epoch, GONE, pending.expiry_s)
                self._home.save(save, partial(self._confirmed, pending))

    def _confirmed(self, pending: Pending, outcome: bool | PenstockError) -> None:
        if self._waiting.get(pending.client) is not pending:
            return
        if outcome is not True:
            if isinstance(outcome, PenstockError):  # asked again with the next tick
                self._due.add(self._rounds.now, pending)
            else:
                del self._waiting[pending.client]
            return
        del self._waiting[pending.client]
        last_word = partial(self._home.finish, pending.client, pending.epoch, pending.expiry_s, ends=pending.ends)
        held = SessionSave(pending.client, pending.epoch, GONE, pending.expiry_s)
        self.publish(pending.client, pending.will, last_word, held)

    # ------------------------------------------------------------ wills of dead gateways

    def claim(self, client: str) -> None:
        """A gateway has died and left this client's will."""
        if client not in self._claiming:
            self._claiming.add(client)
            self._home.claim(client, partial(self._claimed, client))

    def _claimed(self, client: str, result: OpenedSession | PenstockError) -> None:
        self._claiming.discard(client)
        if isinstance(result, PenstockError):
            return
        will = decode_will(result.will)
        if will is None:
            self._home.end(client, result.epoch)
        elif result.ended:  # its time had passed already
            held = SessionSave(client, result.epoch, GONE, result.expiry_s)
            self.publish(client, will, partial(self._home.end, client, result.epoch), held)
        else:
            self._home.save(SessionSave(client, result.epoch, GONE, result.expiry_s), _ignore)
            due = self.moment(will, result.expiry_s, result.absence_s)
            self.wait(client, result.epoch, will, result.expiry_s, due)


def _ignore(outcome: bool | PenstockError) -> None:
    """Ignores the error: it shows in the epoch, or when this gateway's lease has passed."""
