"""Where a client stands in a queue, and the batches that it read: what all consumers and readers share. Pure.

Invariants: a batch that was pulled before a ``begin``, or of a position that is no longer ``live``, is void;
a commit stores ``passed``: the messages that were handed to the program, or with a handler those that it has finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.client.arguments import Place, check_count
from penstock.client.handover import Lease
from penstock.client.unfinished import Unfinished
from penstock.errors import InvalidRequest, OffsetOutOfRange, QueueNotFound
from penstock.protocol.batches import decode_queue
from penstock.protocol.message import ANY_TAG
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.request import Reply
from penstock.protocol.requests.topics import Bounds

UNSET: Final = -1
PULL_WAIT_S: Final = 15.0
BATCHES_MAX: Final = 8
"""Maximum number of batches in a pull: their messages share its cost."""
PULL_BYTES_MIN: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of a pull. All queues share ``prefetch_bytes``, for stored messages and those on their way.
    ``reader``: the group."""

    batch_max: int = 500
    prefetch_bytes: int = 4 * 1024 * 1024
    tags: tuple[str, ...] = ()
    filter: str = ""
    reader: str = ""

    def __post_init__(self) -> None:
        check_count("batch_max", self.batch_max)
        check_count("prefetch_bytes", self.prefetch_bytes)

    def pull(self, position: Position, queues: int) -> Pull:
        """The request for the next messages in one of ``queues`` queues; it waits unless there is a known end."""
        bytes_max = max(PULL_BYTES_MIN, self.prefetch_bytes // max(1, 2 * queues))
        count_max = BATCHES_MAX * self.batch_max
        wait_s = 0.0 if position.stop_at > UNSET else PULL_WAIT_S
        filter = position.filter or self.filter
        return Pull(
            position.queue.name,
            position.offset,
            bytes_max,
            count_max,
            wait_s,
            self.tags,
            position.log_id,
            filter,
            self.reader,
        )


@dataclass(slots=True, eq=False)
class Position:
    """A queue that is being read.

    Attributes:
        offset: the next to pull.
        begun: where reading began.
        handed_out: the offset after the last message that was handed out.
        unfinished: what a handler is at work on, if one works.
        committed: what the broker has stored, ``UNSET`` if nothing.
        committing: the offset that was last sent to be stored.
        asked: the broker's committed offset when the next assignment was requested.
        stop_at: the first offset that is not wanted any more, ``UNSET`` for none.
        filter: the group's, if it has one.
        log_id: the broker's log in which the offsets are; empty where it did not tell.
        covered: up to where the program has committed since reading began: a commit of an earlier message is no news.
        version: goes up with every ``begin`` and ``rewind``.
        paused: nothing is pulled or handed out.
        leaving: it goes to another member once the program has released it; until then it may be committed.
        hands: how many pieces of work the program has under way there.
        lease: until when work may begin, where the group is ordered.
        attempts: of an ordered group, how often messages were tried, by this member and by those before it.
    """

    queue: MessageQueue
    offset: int = UNSET
    begun: int = UNSET
    handed_out: int = UNSET
    committed: int = UNSET
    committing: int = UNSET
    asked: int = UNSET
    stop_at: int = UNSET
    filter: str = ""
    log_id: str = ""
    covered: int = UNSET
    version: int = 0
    live: bool = True
    paused: bool = False
    unfinished: Unfinished | None = None
    leaving: bool = False
    hands: int = 0
    lease: Lease | None = None
    attempts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.asked = self.committed

    def is_ours(self, offset: int | None) -> bool:
        """Whether an assignment with this committed offset shows that no other member had the queue: it may be older
        than our last commits."""
        if offset is None:
            return False
        return offset in (self.committed, self.committing) or self.asked <= offset < self.committed

    def begin(self, offset: int) -> None:
        """Reading goes on from here; earlier pulls are void."""
        self.offset = self.begun = self.handed_out = self.covered = offset
        self.unfinished = None
        self.version += 1

    def rewind(self) -> None:
        """Voids messages that were pulled and not handed out: they are pulled again."""
        self.offset = self.handed_out
        self.version += 1

    def pause(self) -> None:
        """Hands out nothing until ``paused`` is False again; messages already pulled are pulled again then."""
        if not self.paused:
            self.paused = True
            self.rewind()

    def leave_off(self) -> None:
        """The handler has ended: messages that it has not finished are read again."""
        if self.live and self.unfinished:
            self.begin(self.unfinished.floor)
        self.unfinished = None

    def take_up(self) -> None:
        """The program begins a piece of work."""
        self.hands += 1

    def put_down(self) -> None:
        """The program is done with a piece of work."""
        self.hands -= 1

    def tried(self, message: ReceivedMessage) -> int:
        """A message failed, which holds the queue up; how often it did."""
        self.attempts = {offset: count for offset, count in self.attempts.items() if offset >= self.committed}
        count = max(message.attempts, self.attempts.get(message.offset, 0)) + 1
        self.attempts[message.offset] = count
        return count

    def hold_up(self, offset: int) -> None:
        """Reading goes on with this message, which was handed out; messages before it are done."""
        self.handed_out = offset
        self.rewind()

    @property
    def waits(self) -> bool:
        """Whether nothing may begin before the broker has heard of this member."""
        return self.lease is not None and self.lease.is_over

    @property
    def finished(self) -> bool:
        return self.offset >= self.stop_at > UNSET

    @property
    def passed(self) -> int:
        """The offset that a commit stores."""
        return self.handed_out if self.unfinished is None else self.unfinished.floor

    @property
    def uncommitted(self) -> bool:
        """Whether messages were handed out of which no commit is known to be stored."""
        return self.handed_out not in (self.begun, self.committed)

    def advance(self, pulled: Reply, batch_max: int) -> list[Batch]:
        """Takes the answer to a pull from ``offset`` into account; its messages, ``batch_max`` in a batch at most."""
        assert isinstance(pulled, Pulled)
        begin, self.offset = self.offset, pulled.next
        messages = decode_queue(pulled.count, pulled.body, self.queue, pulled.checksum)
        if self.attempts:
            messages = [self._as_tried(one) for one in messages]
        after = pulled.next
        if self.stop_at > UNSET:
            after = min(after, self.stop_at)
            while messages and messages[-1].offset >= self.stop_at:
                messages.pop()
        if not messages and self.handed_out == begin:
            self.handed_out = pulled.next  # nothing in between was wanted
            if self.unfinished is not None:
                self.unfinished.take((), pulled.next)
        batches = []
        for at in range(0, len(messages), batch_max):
            some = messages[at : at + batch_max]
            is_last = at + batch_max >= len(messages)
            batches.append(Batch(self, self.version, some, after if is_last else some[-1].offset + 1, not at))
        return batches

    def _as_tried(self, message: ReceivedMessage) -> ReceivedMessage:
        """A message with the attempts that are not in its record."""
        more = self.attempts.get(message.offset, 0) - message.attempts
        return message.delivered(more) if more > 0 else message

    def pass_gap(self, bounds: Bounds) -> int:
        """Goes on behind messages that retention removed and tells how many those are. Raises ``OffsetOutOfRange``
        for an offset beyond the end: going back by itself would deliver again what is not meant to be."""
        if self.offset > bounds.end:
            raise OffsetOutOfRange(f"{self.queue.name} ends at {bounds.end}, before offset {self.offset}")
        gone = max(0, bounds.min - self.offset)
        if gone:
            self.begin(bounds.min)
        return gone


class Batch(NamedTuple):
    """Messages of one queue, in order; ``after`` is where it goes on, ``is_first``: it is the first one of a pull."""

    position: Position
    version: int
    messages: list[ReceivedMessage]
    after: int
    is_first: bool

    @property
    def void(self) -> bool:
        """Whether the queue was given up, or sought elsewhere, since this was pulled."""
        position = self.position
        return not position.live or position.leaving or self.version != position.version

    def hand_out(self) -> list[ReceivedMessage]:
        """All messages at once."""
        self.position.handed_out = self.after
        return self.messages

    def hand_over(self) -> Unfinished:
        """All messages at once, for a handler: the ones that it has finished count."""
        position = self.position
        if position.unfinished is None:
            position.unfinished = Unfinished(position.handed_out)
        position.handed_out = self.after
        position.unfinished.take([message.offset for message in self.messages], self.after)
        return position.unfinished


def chosen_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """The tags to choose messages by; a text is one tag. Raises ``InvalidRequest``."""
    if isinstance(tags, str):
        tags = (tags,) if tags else ()
    chosen = tuple(tags) if isinstance(tags, Iterable) else (tags,)
    if not all(isinstance(tag, str) for tag in chosen):
        raise InvalidRequest(f"tags are a str or several, not {tags!r:.100}")
    if ANY_TAG in chosen:
        raise InvalidRequest("no message has the tag *", hint="without tags all messages are delivered")
    return chosen


def not_held(queue: MessageQueue) -> QueueNotFound:
    """The error for a queue that a member does not hold."""
    return QueueNotFound(f"this member does not hold {queue}", hint="`assignment` lists its queues")


def not_read(queue: MessageQueue) -> QueueNotFound:
    """The error for a queue that a reader does not read."""
    return QueueNotFound(f"{queue} is not read here", hint="`queues` lists them")


def place_offset(bounds: Bounds, place: Place) -> int:
    """The offset that a person means: a number, the first or the end. A time is no offset: the broker finds it. Raises
    ``OffsetOutOfRange``."""
    if place == "earliest":
        return bounds.min
    if place == "latest":
        return bounds.end
    if isinstance(place, bool) or not isinstance(place, int):
        raise InvalidRequest(f"a place is an offset, 'earliest', 'latest' or a datetime, not {place!r}")
    if not bounds.min <= place <= bounds.end:
        raise OffsetOutOfRange(f"{bounds.queue} has offsets {bounds.min} to {bounds.end}, not {place}")
    return place
