"""Holdings of a group's member at one broker: its queues, their generation, and its commits. Pure.

A queue that is taken away with messages handed out and not committed is *lost*: the next commit raises ``Fenced``, for
its new holder begins at the last commit and gets those messages again. If an assignment names another committed offset
than ours, another member held the queue meanwhile: reading begins anew at that offset. An assignment may be older than
our last commits, so an offset that was ours since the request is ours too.

A member that its broker has forgotten (a restart, or the end of its session) is *out*: it joins again, and keeps the
queues that it gets again at the committed offset that it knows (docs/decisions/0061).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.client import handover
from penstock.client.arguments import check_flag, check_group_name, check_name, check_seconds, check_text
from penstock.client.attempts import USUAL, Attempts
from penstock.client.handover import HandOver, Lease, Queues
from penstock.client.positions import UNSET, Position
from penstock.client.subscription import Subscription
from penstock.client.terms import NO_TERMS, Terms
from penstock.errors import Fenced, InvalidRequest, LogReplaced
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.groups import Assignment, JoinGroup, NoteAttempts, QueueOffset, Tried

SESSION_S: Final = 30.0
"""How long a member that falls silent keeps its queues."""
REFRESH_S: Final = 15.0
"""How often the name servers are asked for new brokers of the topics."""
LEAVE_S: Final = 2.0
"""How long a leaving member waits for the broker's answer."""
NOTE_S: Final = 2.0
"""Seconds for which an ordered queue waits for the broker to note an attempt."""
FENCED_MAX: Final = 5
"""A commit that is refused so often in a row, each time after a fresh assignment, is given up."""

P = TypeVar("P", bound=Position)


@dataclass(frozen=True, slots=True)
class Membership:
    """A member's group and its terms: the same at every broker."""

    group: str
    member: str
    subscription: Subscription
    session_s: float
    terms: Terms = NO_TERMS
    attempts: Attempts = USUAL
    hand_over: HandOver = handover.USUAL

    def __post_init__(self) -> None:
        check_text("group", self.group, hint="the group comes first: Consumer(group, topics)")
        check_seconds("session_s", self.session_s, at_least=1)

    @property
    def watch_s(self) -> float:
        """The time for which a watch waits at the broker: three fit into a session."""
        return self.session_s / 3

    def join(self, topics: Iterable[str], holding: Iterable[str], broker: str, *, is_first: bool) -> JoinGroup:
        """The request to enter the group at a broker. ``holding``: the queues that are held there."""
        plain = JoinGroup(
            self.group,
            self.member,
            tuple(topics),
            self.session_s,
            ordered=self.hand_over.ordered,
            lets_go=self.hand_over.lets_go,
            holding=tuple(sorted(holding)) if self.hand_over.ordered else (),
            attempts=self.attempts.as_term,
        )
        return self.terms.join(broker, plain, is_first=is_first)

    def note(self, messages: Iterable[ReceivedMessage], generation: int) -> NoteAttempts:
        """The request that stores how often messages were tried."""
        tried = tuple([Tried(one.queue.name, one.offset, one.attempts) for one in messages])
        return NoteAttempts(self.group, self.member, generation, tried)


class Change(NamedTuple, Generic[P]):
    """The effect of an assignment: the queues that the member loses, and its new ones."""

    assignment: Assignment
    going: list[P]
    new: list[QueueOffset]


def named(group: str, broadcast: bool, client: str, number: int) -> tuple[str, str]:
    """The group and the member that a consumer is. With ``broadcast`` each client has a group of its own, in which it
    is the only member, under a name that stays (docs/decisions/0056). Raises ``InvalidRequest``."""
    check_group_name(group, hint="the group comes first: Consumer(group, topics)")
    check_flag("broadcast", broadcast)
    if not broadcast:
        if client != "":
            raise InvalidRequest("client= goes with broadcast=True")
        return group, f"member-{number:016x}"
    check_name("client", client, "/@", hint="broadcast=True needs a name for each client that stays, as of its host")
    return f"{group}@{client}", client


class Holdings(Generic[P]):
    """The queues held at one broker. ``on_drop`` is called for each that is taken away, before anything else.

    Attributes:
        generation: of the assignment that came last: commits name it.
        carried_out: of the one that was carried out last: signs of life name it.
        tried: messages that members of an ordered group had tried by then.
    """

    def __init__(self, on_drop: Callable[[P], None]) -> None:
        self.held: dict[str, P] = {}
        self.generation = UNSET
        self.carried_out = UNSET
        self.log_id = ""
        self.filter = ""
        self.tried: tuple[Tried, ...] = ()
        self._on_drop = on_drop
        self._storing: set[P] = set()
        self._lost: list[str] = []
        self._gone: list[MessageQueue] = []

    # -- assignments

    def asking(self) -> None:
        """Notes the committed offsets as an assignment is requested: it has these, or later ones."""
        for position in self.held.values():
            position.asked = position.committed

    def change(self, assignment: Assignment) -> Change[P]:
        """Applies a new assignment. Raises ``LogReplaced`` if the broker has another log than before: read and
        committed messages are gone, and the program decides where to begin in the new one."""
        self._check_log(assignment.log_id)
        committed = {one.queue: one.offset for one in assignment.queues}
        going = {queue: position for queue, position in self.held.items() if not position.is_ours(committed.get(queue))}
        new = [one for one in assignment.queues if one.queue in going or one.queue not in self.held]
        self.generation = assignment.generation
        return Change(assignment, list(going.values()), new)

    def carry_out(self, change: Change[P], *, is_lost: bool = True) -> list[QueueOffset]:
        """Drops removed queues and returns the new ones. ``is_lost``: another member has the removed queues already."""
        for position in change.going:
            if position.live:
                self.drop(position, is_lost=is_lost)
        self.carried_out, self.filter = change.assignment.generation, change.assignment.filter
        self.tried = change.assignment.tried
        for position in self.held.values():
            position.filter = self.filter
        return change.new

    def apply(self, assignment: Assignment) -> list[QueueOffset]:
        """Takes an assignment in at once."""
        return self.carry_out(self.change(assignment))

    def _check_log(self, log_id: str) -> None:
        if self.log_id and log_id and log_id != self.log_id:
            message = f"the broker had log {self.log_id} and has log {log_id} now: its data folder was replaced"
            raise LogReplaced(message, hint="a consumer that is opened again begins there as `start` says")
        self.log_id = log_id or self.log_id

    def drop(self, position: P, *, is_lost: bool = True) -> None:
        position.live = False
        self._on_drop(position)
        del self.held[position.queue.name]
        if is_lost:
            self._gone.append(position.queue)
        if position.uncommitted and position not in self._storing:
            self._lost.append(position.queue.name)

    def drop_leaving(self) -> None:
        """Drops the queues that were to go to other members when the broker forgot us."""
        for position in list(self.held.values()):
            if position.leaving:
                self.drop(position)

    def drop_all(self) -> None:
        """Drops all queues: other members may hold them by now."""
        self.generation = self.carried_out = UNSET
        for position in list(self.held.values()):
            self.drop(position)

    def take_gone(self) -> Queues:
        """Queues that were taken away without a chance to release them, each returned once."""
        gone, self._gone = self._gone, []
        return tuple(sorted(set(gone)))

    def take_lost(self) -> list[str]:
        """Lost queues, each told once."""
        lost, self._lost = self._lost, []
        return lost

    def begin(self, position: P, lease: Lease | None) -> None:
        """Begins a queue that is new at its committed offset. ``lease``: of an ordered group."""
        position.lease = lease
        position.begin(position.committed)
        position.filter, position.log_id = self.filter, self.log_id
        position.attempts = self.attempts_in(position.queue.name)

    def attempts_in(self, queue: str) -> dict[int, int]:
        """The attempts of messages of a new queue, by offset."""
        return {offset: count for name, offset, count in self.tried if name == queue}

    # -- commits

    def wanted(self) -> dict[P, int]:
        """The offsets that a commit would store now."""
        return {one: one.passed for one in self.held.values() if one.passed not in (UNSET, one.committed)}

    def chosen(self, group: str, offsets: Mapping[str, int], *, forward: bool) -> dict[P, int]:
        """The offsets that a commit of these would store now; with ``forward`` none that is covered already. Raises
        ``Fenced`` where a queue is not held."""
        self.check_held(group, offsets)
        wanted = {self.held[queue]: offset for queue, offset in offsets.items()}
        return {one: offset for one, offset in wanted.items() if not (forward and offset <= one.covered)}

    def check_held(self, group: str, queues: Iterable[str]) -> None:
        """Raises ``Fenced`` where a queue is not held."""
        self._fence(group, frozenset(queues) - self.held.keys())

    def check_kept(self, group: str, positions: Iterable[P]) -> None:
        """Raises ``Fenced`` where a queue was taken away, also if it has come back."""
        self._fence(group, {position.queue.name for position in positions if not position.live})

    def _fence(self, group: str, foreign: Set[str]) -> None:
        if foreign:
            self._lost = [queue for queue in self._lost if queue not in foreign]
            fenced_if_lost(group, foreign)

    def storing(self, wanted: dict[P, int]) -> tuple[QueueOffset, ...]:
        """Notes that these offsets are on their way, until ``stored`` or ``not_stored``."""
        self._storing |= wanted.keys()
        for position, offset in wanted.items():
            position.committing = offset
        return tuple(QueueOffset(position.queue.name, offset) for position, offset in wanted.items())

    def stored(self, wanted: dict[P, int]) -> None:
        self._storing -= wanted.keys()
        for position, offset in wanted.items():
            position.committed = position.covered = offset

    def not_stored(self, wanted: dict[P, int]) -> None:
        """The commit failed, or nothing is known: what was dropped meanwhile is lost."""
        self._storing -= wanted.keys()
        self._lost += [position.queue.name for position in wanted if not position.live]


def fenced_if_lost(group: str, lost: Iterable[str]) -> None:
    """Raises ``Fenced`` if queues were lost."""
    queues = sorted(set(lost))
    if queues:
        raise lost_queues(group, queues)


def lost_queues(group: str, queues: Iterable[str]) -> Fenced:
    """The error for queues that were taken away with messages handed out and not committed."""
    message = f"this member of group {group} lost {', '.join(queues)} before the commit"
    return Fenced(message, hint="their uncommitted messages are delivered again, here or elsewhere")
