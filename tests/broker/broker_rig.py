"""What the broker's tests share: a broker without network on a simulated disk, records, and answers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgpack

from broker.kernel.outcomes import AfterQuorum, AfterRound, AfterSync, Now, Outcome, Parked
from broker.net.dispatch import Dispatch
from broker.net.lead import Lead, OnUnsynced
from broker.service import BrokerService
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store_clock import compare, read_times, write_times
from broker.timer_clock import TimerClock
from broker.topics.quota import Asking
from penstock.clock import Clock
from penstock.errors import PenstockError, from_wire
from penstock.guarded_clock import GuardedClock
from penstock.protocol.message import Message, decode_batch, encode_message
from penstock.protocol.requests.filters import OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Append, Pull, Pulled
from penstock.protocol.requests.request import Request, Result
from tests.simulation.disk import SimDisk

SMALL: dict[str, Any] = {
    "segment_bytes": 1 << 16,
    "reserve_step_bytes": 1 << 13,
    "emergency_bytes": 0,
    "chunk_bytes": 1 << 14,
    "retention_s": 0.0,
}


T = TypeVar("T")


class HandClock(Clock):
    """A clock that a test moves."""

    def __init__(self, set_ms: int = 1_000_000, boot_id: str = "") -> None:
        """``set_ms``: what the wall clock shows at 0 s."""
        self.now = 0.0
        self.set_ms = set_ms
        self.boot_id = boot_id

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return self.set_ms + int(self.now * 1000)

    def boot(self) -> str:
        return self.boot_id


class Rig:
    """Service and dispatch of a broker. Nothing is synced unless a test says so."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        started_at: float = 0.0,
        set_ms: int = 1_000_000,
        boot_id: str = "",
        on_unsynced: OnUnsynced = lambda is_waited_for, is_whole: None,
        on_routes_changed: Callable[[], None] | None = None,
        state: BrokerState | None = None,
        asker: Asking = lambda: None,
        **settings: Any,
    ) -> None:
        self.disk = disk or SimDisk()
        self.clock = HandClock(set_ms, boot_id)
        self.clock.now = started_at
        self.settings = BrokerSettings(**{**SMALL, **settings})
        self.state = state or BrokerState()
        self.store: MessageStore = open_store(self.disk, self.settings.store(), self.state, self.clock.wall_ms())
        self.guard = GuardedClock(self.clock)
        times = read_times(self.disk)
        self.times = compare(self.guard, self.store.last_ms, times)
        self.timer_clock = TimerClock(self.guard, self.times, times)
        self.lead = Lead(
            self.settings,
            self.state,
            self.store,
            self.times,
            self.timer_clock,
            on_unsynced,
            on_routes_changed,
            asker=asker,
        )

    @property
    def service(self) -> BrokerService:
        """That of the present leadership."""
        assert self.lead.service is not None
        return self.lead.service

    @property
    def dispatch(self) -> Dispatch:
        """That of the present, or the last, leadership."""
        return self.lead.dispatch

    def theme(self, kind: type[T]) -> T:
        """The theme of this class."""
        return next(theme for theme in self.service.themes.all if isinstance(theme, kind))

    def handle(self, request: Request) -> Outcome:
        """What the service answers."""
        return self.service.handle(request, self.times.monotonic(), self.times.wall_ms())

    def submit(self, request: Request, session: int = 1) -> list[Result]:
        """Submits; the list gets the answer when there is one."""
        answers: list[Result] = []
        self.dispatch.submit(request, answers.append, session)
        self.dispatch.end_batch()
        return answers

    def sync(self) -> None:
        """What the flusher does in one turn."""
        point = self.store.sync_point()
        self.store.sync()
        self.store.mark_durable(point)
        self.store.mark_committed(point)
        self.dispatch.reached(self.store.durable, self.store.committed)

    def ask(self, request: Request) -> Any:
        """Submits, syncs, and returns the one answer."""
        answers = self.submit(request)
        self.sync()
        assert len(answers) == 1, f"{request} has {len(answers)} answers"
        return answers[0]

    def refused(self, owner: str, *filters: str) -> dict[str, type[PenstockError]]:
        """Asks for filters to be opened; the errors of those that are refused. The others are open."""
        answer = self.ask(OpenFilters(owner, filters))
        assert isinstance(answer, OpenedFilters), answer
        found = {one.filter: type(from_wire(one.code, one.message)) for one in answer.refused}
        assert [one.filter for one in answer.opened] == [one for one in filters if one not in found]
        return found

    def restarted(self, set_ms: int | None = None, boot_id: str | None = None, **changed: Any) -> Rig:
        """The same folder, a second after a kill -9; wall clock and settings may have been changed meanwhile.
        ``boot_id``: of the machine, if it was booted."""
        self.disk.kill()
        settings = {name: getattr(self.settings, name) for name in self.settings.__slots__}
        set_ms = self.clock.set_ms if set_ms is None else set_ms
        boot_id = self.clock.boot_id if boot_id is None else boot_id
        return Rig(self.disk, self.clock.now + 1.0, set_ms, boot_id, **(settings | changed))

    def lead_again(self) -> None:
        """The lead is given up and taken again."""
        self.lead.step_down()
        self.lead.lead()

    def leave_times(self) -> None:
        """What the server does once a minute."""
        write_times(self.disk, self.timer_clock.times())

    def bodies(self, queue: str, offset: int = 0) -> list[bytes]:
        """Bodies of the readable messages of a queue."""
        return bodies(self.ask(Pull(queue, offset)))


def append(*messages: Message, detail: bool = False) -> Append:
    """The request that stores these messages."""
    return Append(len(messages), detail, b"".join(map(encode_message, messages)))


def bodies(pulled: Pulled) -> list[bytes]:
    """Bodies of a pull's answer."""
    return [message.body for _, message in decode_batch(pulled.count, pulled.body)]


def now(outcome: Outcome) -> Any:
    """The answer that may go at once where there is one copy."""
    assert isinstance(outcome, Now | AfterRound), outcome
    return outcome.result


def after_sync(outcome: Outcome) -> Any:
    """The answer that waits for the disk."""
    assert isinstance(outcome, AfterSync | AfterQuorum | AfterRound), outcome
    return outcome.result


def parked(outcome: Outcome) -> Parked:
    """The outcome of a request that waits."""
    assert isinstance(outcome, Parked), outcome
    return outcome


def but_epochs(state: BrokerState) -> dict[str, object]:
    """The state without what every start adds to it."""
    parts = msgpack.unpackb(state.snapshot())
    assert parts.pop("epochs")
    return dict(parts)


def messages(rig: Rig) -> list[Message]:
    """All messages of a broker, in the order of its log."""
    found: list[Message] = []
    for topic in rig.state.topics:
        for queue in range(topic.queues):
            offset = 0
            while True:
                pulled = rig.ask(Pull(f"{topic.topic}:{queue}", offset, count_max=1000))
                if isinstance(pulled, PenstockError) or not pulled.count:
                    break
                found += [message for _, message in decode_batch(pulled.count, pulled.body)]
                offset = pulled.next
    return sorted(found, key=lambda message: message.position)
