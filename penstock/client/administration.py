"""Administration of delayed messages, transactions and dead letters. Pure.

Each task is a generator. It yields an ``Ask`` (a request for one server) or ``ALL_BROKERS`` and is sent the answer.
``Steps`` drives it for ``Admin``, asynchronous or blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from penstock.client.arguments import check_integer
from penstock.errors import HalfNotFound, InvalidRequest, PenstockError, TimerNotFound, TopicNotFound, from_wire
from penstock.protocol.message import (
    ATTEMPTS_AT,
    ENTRY,
    FRAME_HEAD_BYTES,
    Message,
    decode_message,
    encode_message,
)
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.groups import CommitOffsets, FetchOffsets, GroupOffsets, QueueOffset
from penstock.protocol.requests.messages import Append, Appended, BoundsReply, Pull, Pulled, QueryBounds
from penstock.protocol.requests.request import Done, Reply, Request
from penstock.protocol.requests.retries import SendLetterAgain
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.timers import CancelTimer, ClockConfirmed, ConfirmClock, ListTimers, TimersPage
from penstock.protocol.requests.topics import CountTopics, DescribeTopic, TopicCounts, TopicDetail
from penstock.protocol.requests.transactions import (
    COMMIT,
    ROLLBACK,
    CheckHalf,
    EndHalves,
    HalfOutcome,
    HalvesEnded,
    HalvesPage,
    ListHalves,
)
from penstock.values import value
from topicmap.queues import DEAD_LETTER_PREFIX, REDRIVE_PREFIX, dead_letter_topic, readable, retry_topic

PAGE: Final = 500
REDRIVE_COUNT: Final = 64
REDRIVE_BYTES: Final = 1 << 20
_MARKS: Final = (
    "ORIGIN_TOPIC",
    "ORIGIN_NAME",
    "ORIGIN_QUEUE",
    "ORIGIN_OFFSET",
    "REASON",
    "GIVEN_BACK",
    "TIMER",
    "HALF",
)

R = TypeVar("R")


class Ask(NamedTuple):
    """A request for the broker at an address, and the type of its reply."""

    address: str
    request: Request
    reply: type[Reply]


class AllBrokers:
    """Asks for the routes of all brokers; one that is away is an error."""


class AllNameServers:
    """Asks for the addresses of all name servers."""


ALL_BROKERS: Final = AllBrokers()
ALL_NAME_SERVERS: Final = AllNameServers()
Question = Ask | AllBrokers | AllNameServers
Task = Generator[Question, Any, R]


class Steps(Generic[R]):
    """A task under way.

    Attributes:
        wanted: its present question; ``None``: it is done.
    """

    def __init__(self, task: Task[R]) -> None:
        """Raises what the task raises before it asks."""
        self._task = task
        self._result: R | None = None
        self.wanted: Question | None = None
        self._go_on(lambda: next(task))

    def _go_on(self, step: Callable[[], Question]) -> None:
        try:
            self.wanted = step()
        except StopIteration as done:
            self.wanted, self._result = None, done.value

    def answer(self, answer: object) -> None:
        """Gives the task the answer. Raises the task's errors."""
        self._go_on(lambda: self._task.send(answer))

    def fail(self, error: PenstockError) -> None:
        """Gives the task the error. Raises the task's errors."""
        self._go_on(lambda: self._task.throw(error))

    @property
    def result(self) -> R:
        """The result, once it is done."""
        return cast(R, self._result)


@value
class DelayedMessage:
    """A message that is delivered later.

    Attributes:
        broker, id, due_ms: together they name it: broker, its number there, and when it is due, in milliseconds since
            1970.
        topic, key: of the message; empty where it is ``damaged``.
        size: bytes of its record.
        damaged: its stored bytes are not good any more.
    """

    broker: str
    id: int
    due_ms: int
    topic: str
    key: str
    size: int
    damaged: bool


@value
class FrozenClock:
    """A broker whose clock has jumped forward, so that no delayed message fires.

    Attributes:
        broker: its name.
        ahead_s: how far the clock is ahead.
        now_ms: the time that the broker goes by meanwhile, in milliseconds since 1970.
    """

    broker: str
    ahead_s: float
    now_ms: int


@value
class Transaction:
    """A half that waits for its outcome.

    Attributes:
        broker, id: together they name it.
        group: the producer group that is asked about it.
        born_ms: when it began, in milliseconds since 1970.
        checks: how often a producer was asked.
        parked: why it waits for an operator; empty while producers are asked.
        topic, key: of its first message. messages, size: how many it has, and their bytes.
    """

    broker: str
    id: int
    group: str
    born_ms: int
    checks: int
    parked: str
    topic: str
    key: str
    size: int
    messages: int = 1


@value
class DeadLetter:
    """A message that nothing could be done with.

    Attributes:
        message: as it is stored; its ``queue`` and ``offset`` name it.
        origin: the topic that it was in first.
        attempts: number of attempts, 0 if there was none.
        reason: why it is here.
    """

    message: ReceivedMessage
    origin: str
    attempts: int
    reason: str


@value
class DeadLetters:
    """The dead letters of a group at one broker. ``waiting``: those of them that were not sent again."""

    group: str
    broker: str
    letters: int
    waiting: int


@value
class Redriven:
    """A dead letter that was to be sent again, and the error where it could not be."""

    letter: DeadLetter
    topic: str
    error: PenstockError | None = None


# ------------------------------------------------------------ delayed messages


def delayed() -> Task[list[DelayedMessage]]:
    """All delayed messages, in the order in which they are due."""
    found: list[DelayedMessage] = []
    for route in (yield ALL_BROKERS):
        after = (0, 0)
        while True:
            page: TimersPage = yield Ask(route.address, ListTimers(*after, PAGE), TimersPage)
            found += [
                DelayedMessage(route.broker, one.id, one.due_ms, one.topic, one.key, one.size, one.damaged)
                for one in page.timers
            ]
            after = (page.after_ms, page.after_id)
            if after == (0, 0):
                break
    return sorted(found, key=lambda one: (one.due_ms, one.broker, one.id))


def cancel(broker: str, id: int, due_ms: int) -> Task[None]:
    """Cancels a delayed message; ``due_ms`` is in milliseconds since 1970. Raises ``TimerFired`` if it was already
    delivered, ``TimerNotFound`` if there is none; it may have been cancelled already."""
    check_integer("id", id)
    check_integer("due_ms", due_ms)
    route = yield from broker_named(broker, TimerNotFound)
    yield Ask(route.address, CancelTimer(id, due_ms), Done)


def frozen_clocks() -> Task[list[FrozenClock]]:
    """The brokers whose clocks have jumped forward, by name."""
    found: list[FrozenClock] = []
    for route in (yield ALL_BROKERS):
        page: TimersPage = yield Ask(route.address, ListTimers(count_max=1), TimersPage)
        if page.frozen_s:
            found.append(FrozenClock(route.broker, page.frozen_s, page.now_ms))
    return sorted(found, key=lambda one: one.broker)


def confirm_clock(frozen: FrozenClock) -> Task[float]:
    """Confirms that a broker's clock is right: messages that are due by it are delivered. Returns the seconds of its
    jump; 0: the jump was already undone. Raises ``InvalidRequest`` if the clock has jumped again."""
    route = yield from broker_named(frozen.broker, InvalidRequest)
    confirmed: ClockConfirmed = yield Ask(route.address, ConfirmClock(frozen.ahead_s), ClockConfirmed)
    return confirmed.ahead_s


# ------------------------------------------------------------ transactions


def transactions() -> Task[list[Transaction]]:
    """All halves that wait for their outcome, the oldest first."""
    found: list[Transaction] = []
    for route in (yield ALL_BROKERS):
        after = 0
        while True:
            page: HalvesPage = yield Ask(route.address, ListHalves(after, PAGE), HalvesPage)
            found += [
                Transaction(
                    route.broker,
                    one.id,
                    one.group,
                    one.born_ms,
                    one.checks,
                    one.parked,
                    one.topic,
                    one.key,
                    one.size,
                    one.messages,
                )
                for one in page.halves
            ]
            after = page.after
            if not after:
                break
    return sorted(found, key=lambda one: (one.born_ms, one.broker, one.id))


def commit(broker: str, id: int) -> Task[None]:
    """Commits a half by hand. Raises ``OutcomeStands``, ``HalfNotFound``, or the error that refuses its message."""
    return (yield from _end(broker, id, COMMIT))


def rollback(broker: str, id: int) -> Task[None]:
    """Rolls a half back by hand: its messages are dropped. Raises ``OutcomeStands`` or ``HalfNotFound``."""
    return (yield from _end(broker, id, ROLLBACK))


def _end(broker: str, id: int, outcome: str) -> Task[None]:
    check_integer("id", id)
    route = yield from broker_named(broker, HalfNotFound)
    page: HalvesPage = yield Ask(route.address, ListHalves(id - 1, 1), HalvesPage)
    group = page.halves[0].group if page.halves and page.halves[0].id == id else "?"
    answer: HalvesEnded = yield Ask(route.address, EndHalves(group, (HalfOutcome(id, outcome),)), HalvesEnded)
    ended = answer.ended[0]
    if ended.code:
        raise from_wire(ended.code, ended.message)


def check(broker: str, id: int) -> Task[None]:
    """Makes the broker ask producers about a half again. Raises ``HalfNotFound``."""
    route = yield from broker_named(broker, HalfNotFound)
    yield Ask(route.address, CheckHalf(id), Done)


# ------------------------------------------------------------ dead letters


def dead_letters() -> Task[list[DeadLetters]]:
    """The number of dead letters of each group at each broker."""
    found: list[DeadLetters] = []
    for route in (yield ALL_BROKERS):
        for topic in (yield from _dead_letter_topics(route)):
            group = readable(topic.removeprefix(DEAD_LETTER_PREFIX))
            first, place, end = yield from _bounds(route, topic)
            found.append(DeadLetters(group, route.broker, end - first, end - max(first, place)))
    return sorted(found, key=lambda one: (one.group, one.broker))


def _dead_letter_topics(route: BrokerRoute) -> Task[list[str]]:
    """The topics of dead letters at a broker, which are neighbours in its list of topics by name."""
    found: list[str] = []
    after = DEAD_LETTER_PREFIX
    while True:
        page: TopicCounts = yield Ask(route.address, CountTopics(after), TopicCounts)
        names = [one.topic for one in page.topics if one.topic.startswith(DEAD_LETTER_PREFIX)]
        found += names
        after = page.after
        if not after or len(names) < len(page.topics):
            return found


def letters_of(group: str, count_max: int = 100) -> Task[list[DeadLetter]]:
    """The latest dead letters of a group, at most ``count_max`` of each broker. Raises ``TopicNotFound``."""
    topic, found, is_there = dead_letter_topic(group), list[DeadLetter](), False
    for route in (yield ALL_BROKERS):
        if not (yield from _has(route, topic)):
            continue
        is_there = True
        first, _, end = yield from _bounds(route, topic)
        offset = max(first, end - count_max)
        while offset < end:
            pulled: Pulled = yield Ask(route.address, Pull(f"{topic}:0", offset, REDRIVE_BYTES, PAGE), Pulled)
            found += _letters(route.broker, topic, pulled)
            offset = pulled.next
    if not is_there:
        raise _none(group)
    return sorted(found, key=lambda one: (one.message.stored_ms, one.message.queue, one.message.offset))


def redrive(group: str, to: str = "", *, again: bool = False, all_groups: bool = False) -> Task[list[Redriven]]:
    """Sends dead letters of a group to it again, as messages that were never tried: by its retry topic, so no other
    group gets them. With ``all_groups`` each goes to the topic that it came from, where all groups get it; with ``to``
    all go to that topic. A delayed message that was refused has no group: it goes to its topic.

    Each is sent at least once; those that were sent before are not, but with ``again``. One result for each: at a
    broker that refuses one the rest waits for the next call. Raises ``TopicNotFound``, and ``InvalidRequest`` for
    ``to`` with ``all_groups``."""
    if to and all_groups:
        raise InvalidRequest("to and all_groups exclude each other", hint="all groups that read the topic get it")
    topic, found, is_there = dead_letter_topic(group), list[Redriven](), False
    for route in (yield ALL_BROKERS):
        if not (yield from _has(route, topic)):
            continue
        is_there = True
        first, place, end = yield from _bounds(route, topic)
        offset = first if again else max(first, place)
        while offset < end:
            pulled: Pulled = yield Ask(route.address, Pull(f"{topic}:0", offset, REDRIVE_BYTES, REDRIVE_COUNT), Pulled)
            letters = list(_letters(route.broker, topic, pulled))
            done = yield from _send_again(route, letters, to, "" if all_groups else group)
            found += done
            failed = next((one for one in done if one.error), None)
            offset = failed.letter.message.offset if failed else pulled.next
            reached = (QueueOffset(f"{topic}:0", offset),)
            yield Ask(route.address, CommitOffsets(_redriver(topic), "", 0, reached), Done)
            if failed:
                break
    if not is_there:
        raise _none(group)
    return found


def _send_again(route: BrokerRoute, letters: Sequence[DeadLetter], to: str, group: str) -> Task[list[Redriven]]:
    """Sends messages one after the other until one is refused. ``group``: to which alone, where it gave them back."""
    done: list[Redriven] = []
    for letter in letters:
        topic, refused = to or letter.origin, list[PenstockError]()
        try:
            if group and not to and "ORIGIN_QUEUE" in letter.message.properties:
                topic = retry_topic(group)
                yield Ask(route.address, SendLetterAgain(group, letter.message.offset), Done)
            else:
                answer: Appended = yield Ask(route.address, Append(1, True, _as_before(letter, topic)), Appended)
                refused = [from_wire(one.code, one.message) for one in answer.refused]
        except PenstockError as error:
            refused = [error]
        done.append(Redriven(letter, topic, refused[0] if refused else None))
        if refused:
            break
    return done


def _as_before(letter: DeadLetter, topic: str) -> bytes:
    """The record of a dead letter's message as it was sent first, for a topic."""
    message = letter.message
    properties = {name: value for name, value in message.properties.items() if name not in _MARKS}
    name = message.properties.get("ORIGIN_NAME", "")
    return encode_message(
        Message(topic, message.body, message.key, message.tag, properties, name, message.qos, id=message.id),
        born_ms=message.born_ms,
    )


def _letters(broker: str, topic: str, pulled: Pulled) -> Iterator[DeadLetter]:
    queue = MessageQueue(broker, topic, 0)
    view, at = memoryview(pulled.body), pulled.count * ENTRY.size
    for _, _, size, _ in ENTRY.iter_unpack(view[:at]):
        record = bytes(view[at + FRAME_HEAD_BYTES : at + size])
        at += size
        message = decode_message(record, queue)
        attempts = int.from_bytes(record[ATTEMPTS_AT : ATTEMPTS_AT + 4], "big")
        properties = message.properties
        yield DeadLetter(message, properties.get("ORIGIN_TOPIC", ""), attempts, properties.get("REASON", ""))


def _bounds(route: BrokerRoute, topic: str) -> Task[tuple[int, int, int]]:
    """First offset of a dead-letter queue, the next one to send again (-1: none was), and its end."""
    bounds: BoundsReply = yield Ask(route.address, QueryBounds((f"{topic}:0",)), BoundsReply)
    places: GroupOffsets = yield Ask(route.address, FetchOffsets(_redriver(topic), (f"{topic}:0",)), GroupOffsets)
    return bounds.bounds[0].min, places.offsets[0].offset, bounds.bounds[0].end


def _redriver(topic: str) -> str:
    """The consumer group whose position says which dead letters were sent again."""
    return REDRIVE_PREFIX + topic.removeprefix(DEAD_LETTER_PREFIX)


def _has(route: BrokerRoute, topic: str) -> Task[bool]:
    try:
        _: TopicDetail = yield Ask(route.address, DescribeTopic(topic), TopicDetail)
    except TopicNotFound:
        return False
    return True


def _none(group: str) -> TopicNotFound:
    return TopicNotFound(
        f"group {group!r} has no dead letters", hint="`penstock dlq list` shows groups with dead letters"
    )


def broker_named(name: str, error: type[PenstockError]) -> Task[BrokerRoute]:
    """The broker of a name, or the only one where none is named. Raises the error, and ``InvalidRequest``."""
    routes: Sequence[BrokerRoute] = yield ALL_BROKERS
    if not name and len(routes) == 1:
        return routes[0]
    if not name:
        raise InvalidRequest(f"say at which broker: {', '.join(route.broker for route in routes)}")
    for route in routes:
        if route.broker == name:
            return route
    raise error(f"there is no broker {name!r}; there are {', '.join(route.broker for route in routes)}")
