"""Requests that store and read messages: append, pull, bounds, time, key.

An append is runs of messages (``penstock/protocol/runs.py``); one of whole records is taken for runs of one. Each is
checked (``acceptance.py``); the messages of a bad one are refused by their places in the batch, all others are stored
with one append of the store. The reply waits for the highest level that a stored message's topic asks for.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mypy_extensions import mypyc_attr

from broker.figures import Figures
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterRound, Now, Outcome, Parked, after_level
from broker.lineage.identity import Identity
from broker.messages.acceptance import Acceptance
from broker.messages.choosing import Choosing
from broker.messages.filtering import Selection, selection_of
from broker.messages.parts import cut_runs
from broker.messages.trace import Trace
from broker.messages.whole_records import in_places, runs_of
from broker.sessions.gateway_epochs import GatewayEpochs
from broker.settings import BrokerSettings
from broker.store.level import Level
from broker.store.message_store import MessageStore
from broker.store.queue_index import LIGHT
from broker.topics.requests import TopicRequests
from penstock.errors import Fenced, InvalidRequest, PenstockError, StorageFull, TooLarge
from penstock.protocol.message import BODY_AT, BORN_AT, ENTRY, FRAME_HEAD_BYTES, STORED_AT, tag_hash
from penstock.protocol.requests.given import GivenPull, GivenPulled, GivenRuns
from penstock.protocol.requests.messages import (
    SPARK,
    SPARK_GROUP,
    Append,
    Appended,
    AppendRuns,
    BoundsReply,
    FindByKey,
    ListReads,
    OffsetReply,
    Placed,
    PlacedRun,
    Pull,
    Pulled,
    QueryBounds,
    ReadAt,
    Refused,
    SeekTime,
    TopicRead,
    TopicsRead,
)
from penstock.protocol.requests.request import Result
from penstock.protocol.runs import SOMEWHERE, Run, checksum_of, decode_runs
from penstock.protocol.trace_context import recorded_id, trace_of_tail
from topicmap.queues import is_own_topic

COUNT_MAX: Final = 65_536
WAIT_S_MAX: Final = 60.0
READ_S: Final = 600.0
"""Seconds for which a read without a group is listed."""
REFUSED_MAX: Final = 1000
"""Number of gateways that are remembered because the log had no room for them, the last ones."""
_ROW_BYTES: Final = ENTRY.size
_NOT_STORED: Final = Placed(0, 0, 0)
_REACHED: Final = {level: Appended(level.word) for level in Level}
_DONE_IN_CACHE: Final = Now(_REACHED[Level.CACHE])


_ALL: Final[frozenset[int]] = frozenset()


@mypyc_attr(acyclic=True)
class _Again:
    """A parked pull is asked again. An object of its own, because every idle device has one: a closure weighs four
    times as much."""

    __slots__ = ("_messages", "_request", "_tags", "_wanted")

    def __init__(
        self, messages: MessageRequests, request: Pull, tags: frozenset[int], wanted: Selection | None
    ) -> None:
        self._messages = messages
        self._request = request
        self._tags = tags
        self._wanted = wanted

    def __call__(self, last: bool) -> Result | None:
        try:
            found = self._messages.read(self._request, self._tags, self._wanted)
        except PenstockError as error:
            return error.as_result()  # the queue was closed meanwhile
        return found if found.count or last or found.next != self._request.offset else None


@mypyc_attr(acyclic=True)
class _AgainGiven:
    """The same of a pull in this process."""

    __slots__ = ("_bytes_max", "_count_max", "_messages", "_offset", "_queue")

    def __init__(self, messages: MessageRequests, queue: str, offset: int, count_max: int, bytes_max: int) -> None:
        self._messages = messages
        self._queue = queue
        self._offset = offset
        self._count_max = count_max
        self._bytes_max = bytes_max

    def __call__(self, last: bool) -> Result | None:
        try:
            found = self._messages.read_given(self._queue, self._offset, self._count_max, self._bytes_max)
        except PenstockError as error:
            return error.as_result()  # the queue was closed meanwhile
        return GivenPulled(0, self._offset, []) if found is None and last else found


class MessageRequests:
    """Messages of one broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicRequests,
        acceptance: Acceptance,
        settings: BrokerSettings,
        figures: Figures,
        gateway_epochs: GatewayEpochs,
        identity: Identity,
        trace: Trace,
    ) -> None:
        self._store = store
        self._choosing = Choosing(store)
        self._trace = trace
        self._topics = topics
        self._acceptance = acceptance
        self._settings = settings
        self._pull_bytes_max = settings.pull_bytes_max
        self._figures = figures
        self._gateway_epochs = gateway_epochs
        self._identity = identity
        self._read: dict[str, float] = {}  # when topics were last read without a group
        self._refused: dict[str, int] = {}  # the last attempt for which there was no room, by the epoch of its gateway

    @handles(Append)
    def append(self, request: Append, now: float, now_ms: int) -> Outcome:
        """Stores the good records of a batch; the bad ones are ``refused`` one by one."""
        runs, places, bad = runs_of(request.body, request.count)
        self._figures.appended(0, 0, len(bad))
        level, refused, stored = self._store_runs(runs, now_ms)
        refused = sorted([*bad, *in_places(places, refused)])
        placed: list[Placed] = []
        if request.detail:
            placed = [_NOT_STORED] * request.count
            for at, run in zip(places, stored, strict=True):
                if run.position >= 0 or run.position == SOMEWHERE:
                    placed[at] = Placed(run.queue_id, run.offset, max(run.position, -1))
        return after_level(level, Appended(level.word, tuple(placed), tuple(refused)), self._store.written)

    @handles(AppendRuns)
    def append_runs(self, request: AppendRuns, now: float, now_ms: int) -> Outcome:
        """Stores the good messages of a batch of encoded runs; the bad ones are ``refused`` one by one."""
        self._check_gateway_epoch(request.gateway_epoch)
        self._check_turn(request.gateway_epoch, request.attempt)
        body = request.body if type(request.body) is bytes else bytes(request.body)
        if checksum_of(body) != request.checksum:
            raise InvalidRequest(f"the {len(body)} bytes of runs do not match their checksum; nothing was stored")
        runs = decode_runs(body)
        if sum([len(run.bodies) for run in runs]) != request.count:
            raise InvalidRequest(f"the runs do not hold {request.count} messages; nothing was stored")
        return self._append_runs(runs, now_ms, request.gateway_epoch, request.attempt, request.detail)

    @handles(GivenRuns)
    def append_given(self, request: GivenRuns, now: float, now_ms: int) -> Outcome:
        """The same for runs of a gateway in this process."""
        self._check_gateway_epoch(request.gateway_epoch)
        self._check_turn(request.gateway_epoch, request.attempt)
        return self._append_runs(request.runs, now_ms, request.gateway_epoch, request.attempt)

    def _check_gateway_epoch(self, gateway_epoch: str) -> None:
        """Raises ``Fenced`` if it is over: some of the sender's clients may be another gateway's by now."""
        if gateway_epoch in self._gateway_epochs.over:
            raise Fenced("this gateway has lost sessions, or was taken for dead; nothing was stored")

    def _check_turn(self, gateway_epoch: str, attempt: int) -> None:
        """Raises ``StorageFull`` for what was sent before its sender knew that there was no room for what is before
        it."""
        if self._refused and attempt <= self._refused.get(gateway_epoch, -1):
            raise StorageFull("the disk was full for what this gateway has sent before; nothing was stored")

    def _append_runs(
        self, runs: list[Run], now_ms: int, gateway_epoch: str, attempt: int, detail: bool = False
    ) -> Outcome:
        level, refused, stored = self._store_runs(runs, now_ms, gateway_epoch, attempt)
        if detail:
            return after_level(level, Appended(level.word, (), tuple(refused), _places(stored)), self._store.written)
        if level is Level.CACHE and not refused:
            return _DONE_IN_CACHE
        reply = Appended(level.word, (), tuple(refused)) if refused else _REACHED[level]
        return after_level(level, reply, self._store.written)

    def _store_runs(
        self, runs: list[Run], now_ms: int, gateway_epoch: str = "", attempt: int = 0
    ) -> tuple[Level, list[Refused], list[Run]]:
        """Stores what is good of runs; those returned, which are these or parts of them, say where."""
        try:
            return self._store_whole(runs, now_ms, gateway_epoch, attempt)
        except TooLarge:
            return self._store_parts(runs, now_ms, gateway_epoch, attempt)

    def _store_whole(
        self, runs: list[Run], now_ms: int, gateway_epoch: str, attempt: int
    ) -> tuple[Level, list[Refused], list[Run]]:
        taken, destinations, refused, stored, size, level, runs = self._acceptance.take(runs, now_ms)
        try:
            if taken:
                self._store.append_runs(taken, destinations, now_ms)
                if self._trace.is_on:
                    self._trace.stored(taken, destinations, now_ms)
        except StorageFull:
            self._figures.appended(0, 0, stored + len(refused))
            self._note_refused(gateway_epoch, attempt)
            raise
        self._figures.appended(stored, size, len(refused))
        return level, refused, runs

    def _store_parts(
        self, runs: list[Run], now_ms: int, gateway_epoch: str, attempt: int
    ) -> tuple[Level, list[Refused], list[Run]]:
        """The same of runs that do not fit one segment together. Where the disk is full behind the first part, all
        from there on are refused for it."""
        level, refused, most = Level.CACHE, list[Refused](), self._store.batch_bytes_max
        parts = cut_runs(runs, most)
        pieces: list[Run] = []
        for number, part in enumerate(parts):
            if part.size > most:
                pieces += part.runs
                refused.append(_refusal(part.first, _too_large(part.size, most)))
                self._figures.appended(0, 0, 1)
                continue
            try:
                its_level, its_refused, its_runs = self._store_whole(part.runs, now_ms, gateway_epoch, attempt)
            except StorageFull as error:
                if len(refused) == part.first:  # nothing is stored yet
                    raise
                end = parts[-1].first + parts[-1].messages
                refused += [_refusal(at, error) for at in range(part.first, end)]
                self._figures.appended(0, 0, end - part.first - part.messages)
                pieces += [run for other in parts[number:] for run in other.runs]
                break
            pieces += its_runs
            level = max(level, its_level)
            refused += [one._replace(at=part.first + one.at) for one in its_refused]
        return level, refused, pieces

    def _note_refused(self, gateway_epoch: str, attempt: int) -> None:
        if not gateway_epoch:
            return  # a producer's: it waits for each answer by itself
        self._refused.pop(gateway_epoch, None)
        if len(self._refused) >= REFUSED_MAX:  # of gateways that are gone: an epoch ends with its process, or before
            del self._refused[next(iter(self._refused))]
        self._refused[gateway_epoch] = attempt

    @handles(Pull)
    def pull(self, request: Pull, now: float, now_ms: int) -> Outcome:
        """Messages of a queue; parked while there is none and the caller wants to wait."""
        _check_limits(request.count_max, request.bytes_max, request.wait_s)
        if request.log_id:
            self._identity.check(request.log_id, f"offset {request.offset} of {request.queue}")
        tags = frozenset([tag_hash(tag) for tag in request.tags]) if request.tags else _ALL
        wanted = selection_of(self._settings, request) if request.filter or request.names else None
        pulled = self.read(request, tags, wanted)
        is_alone = request.reader in ("", SPARK) or request.reader.startswith(SPARK_GROUP)
        if is_alone and not request.queue.startswith(LIGHT):
            self._read[request.queue.rpartition(":")[0]] = now
        if pulled.count or pulled.next != request.offset or not request.wait_s:
            return Now(pulled)
        return Parked((request.queue,), now + min(request.wait_s, WAIT_S_MAX), _Again(self, request, tags, wanted))

    @handles(ListReads)
    def list_reads(self, request: ListReads, now: float, now_ms: int) -> Outcome:
        """The topics that were read without a group lately."""
        self._read = {topic: at for topic, at in self._read.items() if now - at <= READ_S}
        rows = [TopicRead(topic, now - at) for topic, at in sorted(self._read.items()) if not is_own_topic(topic)]
        return Now(TopicsRead(tuple(rows)))

    def read(self, request: Pull, tags: frozenset[int], wanted: Selection | None) -> Pulled:
        """The result of a pull now. Raises ``QueueNotFound``, ``OffsetOutOfRange`` or ``NotAllowed``."""
        self._topics.check_readable(request.queue)
        count_max, bytes_max = min(request.count_max, COUNT_MAX), min(request.bytes_max, self._pull_bytes_max)
        if wanted is None:
            pulled = self._store.read(request.queue, request.offset, count_max, bytes_max, tags)
        else:
            pulled = self._choosing.read(request.queue, request.offset, wanted, count_max, bytes_max, tags)
        self._count(pulled)
        if self._trace.is_on:
            self._trace.pulled(request.queue, request.offset, pulled, request.reader)
        return pulled

    @handles(GivenPull)
    def pull_given(self, request: GivenPull, now: float, now_ms: int) -> Outcome:
        """The same for a gateway in this process."""
        offset, count_max, bytes_max, wait_s = request.offset, request.count_max, request.bytes_max, request.wait_s
        _check_limits(count_max, bytes_max, wait_s)
        count_max, bytes_max = min(count_max, COUNT_MAX), min(bytes_max, self._pull_bytes_max)
        queue = request.queue
        found = self.read_given(queue, offset, count_max, bytes_max)
        if found is not None:
            return Now(found)
        if not wait_s:
            return Now(GivenPulled(0, offset, []))
        again = _AgainGiven(self, queue, offset, count_max, bytes_max)
        return Parked((queue,), now + min(wait_s, WAIT_S_MAX), again)

    def read_given(self, queue: str, offset: int, count_max: int, bytes_max: int) -> Pulled | GivenPulled | None:
        """The result of such a pull now; ``None`` without messages. Raises as ``read``."""
        self._topics.check_readable(queue)
        found = self._store.read_given(queue, offset, count_max, bytes_max)
        if isinstance(found, GivenPulled):
            size = 0
            for run in found.runs:
                size += len(run.bodies) * (_ROW_BYTES + run.step)
            self._figures.pulled(found.count, size)
            if found.runs:
                last = found.runs[-1]
                self._figures.delivered(last.stored_ms, last.born_ms, recorded_id(trace_of_tail(last.tail)))
        elif found is not None:
            self._count(found)
        if found is not None and self._trace.is_on:
            self._trace.pulled(queue, offset, found, "")
        return found

    def _count(self, pulled: Pulled) -> None:
        """A pull was answered: of all latencies that of its last message is observed, at the cost of one per pull."""
        body, count = pulled.body, pulled.count
        self._figures.pulled(count, len(body))
        if count:
            size = ENTRY.unpack_from(body, (count - 1) * ENTRY.size)[2]
            at = len(body) - size + FRAME_HEAD_BYTES
            stored_ms = int.from_bytes(body[at + STORED_AT : at + STORED_AT + 8], "big")
            born_ms = int.from_bytes(body[at + BORN_AT : at + BORN_AT + 8], "big")
            tail_at = at + BODY_AT + int.from_bytes(body[at + BODY_AT - 4 : at + BODY_AT], "big")
            self._figures.delivered(stored_ms, born_ms, recorded_id(trace_of_tail(bytes(body[tail_at:]))))

    @handles(QueryBounds)
    def bounds(self, request: QueryBounds, now: float, now_ms: int) -> Outcome:
        """Bounds of several queues."""
        for queue in request.queues:
            self._topics.note_asked(queue.rpartition(":")[0])
        return AfterRound(self._bounds_of(request.queues), again=partial(self._bounds_of, request.queues))

    def _bounds_of(self, queues: tuple[str, ...]) -> BoundsReply:
        return BoundsReply(tuple([self._store.bounds(queue) for queue in queues]), self._identity.log_id)

    @handles(SeekTime)
    def seek_time(self, request: SeekTime, now: float, now_ms: int) -> Outcome:
        """The first offset at or after a time."""
        self._topics.note_asked(request.queue.rpartition(":")[0])
        return Now(OffsetReply(self._store.seek_time(request.queue, request.stored_ms)))

    @handles(FindByKey)
    def find(self, request: FindByKey, now: float, now_ms: int) -> Outcome:
        """Messages by key or unique id."""
        if request.count_max < 1 or not request.key:
            raise InvalidRequest("a key has at least one character, and count_max is at least 1")
        self._topics.get(request.topic)
        self._topics.note_asked(request.topic)
        count_max = min(request.count_max, COUNT_MAX)
        return Now(
            self._store.find(request.topic, request.key, request.since_ms, request.until_ms, count_max, request.before)
        )

    @handles(ReadAt)
    def read_at(self, request: ReadAt, now: float, now_ms: int) -> Outcome:
        """The message at a log position."""
        topic, found = self._store.message_at(request.position)
        self._topics.check_readable(f"{topic}:0")
        return Now(found)


def _check_limits(count_max: int, bytes_max: int, wait_s: float) -> None:
    """Checks the limits of a pull. Raises ``InvalidRequest``."""
    if count_max < 1 or bytes_max < 1 or wait_s < 0:
        raise InvalidRequest("count_max and bytes_max are at least 1, wait_s at least 0")


def _too_large(size: int, most: int) -> TooLarge:
    return TooLarge(f"a message of {size} bytes does not fit a segment of this broker, which holds {most}")


def _refusal(at: int, error: PenstockError) -> Refused:
    return Refused(at, error.code, error.message)


def _places(runs: list[Run]) -> tuple[PlacedRun, ...]:
    """The places of the stored runs of a request."""
    places: list[PlacedRun] = []
    at = 0
    for run in runs:
        if run.position >= 0 or run.position == SOMEWHERE:
            places.append(PlacedRun(at, run.queue_id, run.offset, max(run.position, -1)))
        at += len(run.bodies)
    return tuple(places)
