"""History for a new subscription: messages of its topic's queues from some place on, sent before the first live
message.

A light queue begins when its filter is opened, so history comes from the queues of the topic of the filter's names
(``topicmap.queues.TopicMap.topic_of``), each message matched by its name. The filter is opened first, at a log
position: messages before it are replayed, those after it come live, and the cursor is *held* until the replay is over.
So there is neither gap nor duplicate.

The queues are merged by log position, the order of live messages. A replay has at most ``BYTES`` in memory and pulls
nothing while some of them are not sent; each request waits for its turn (``gateway/delivery/lookups.py``). ``last=N``
searches backwards from the end, over at most ``LOOKED_AT_MAX`` entries of each queue, and keeps two numbers for each
that it may need, 128 KiB for a queue (``gateway/sessions/options.py``). For a session that outlives its connection the
offsets to continue at are saved with it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from gateway.delivery.lookups import LookupTurns
from gateway.delivery.named_positions import NamedPositions
from gateway.messages.envelope import HEAD_BYTES, Arrival, Heading, Origin, arrivals
from gateway.messages.outgoing import Variant, is_expired
from gateway.net.rounds import Rounds
from gateway.sessions.options import BEGINNING, EVERY_QUEUE, LAST, OFFSET, TIME, Start
from gateway.sessions.session import Cursor
from gateway.sessions.session_state import Owed
from gateway.sessions.subscriptions import Subscription
from penstock.errors import InvalidMessage, OffsetOutOfRange, PenstockError, QueueNotFound, TopicNotFound
from penstock.protocol.requests.groups import HeldOffsets
from penstock.protocol.requests.messages import BoundsReply, OffsetReply, Pull, Pulled, QueryBounds, SeekTime
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail
from penstock.world import Clock
from topicmap.names import matches

BYTES: Final = 128 * 1024
PAGE_BYTES_MIN: Final = 4 * 1024
PAGE_COUNT: Final = 128
LOOK_COUNT: Final = 512
"""Number of messages in a pull after one without a match for the filter."""
LOOKED_AT_MAX: Final = 100_000
STEP_MAX: Final = 4096
QUEUES_KEPT_MAX: Final = 256
"""Number of queues up to which the progress of a replay is saved with the session."""
_WORK: Final = 16
"""The cost of a request without its messages (``gateway.delivery.lookups.WORK_MAX``)."""
_WORK_OF_SEEKING: Final = 64
_WORK_OF_TOPIC: Final = 64  # and its queues, however many they are
_POSITION: Final = attrgetter("position")
_UNKNOWN: Final = -1


class Search:
    """The way back from a queue's end to the last few messages that match."""

    __slots__ = ("at", "begin", "found", "is_over", "looked_at", "stop", "window")

    def __init__(self, end: int) -> None:
        self.begin = self.at = self.stop = end  # the window that is being read
        self.window = array("q")  # of each message its position and its offset
        self.found = array("q")
        self.looked_at = 0
        self.is_over = False


class Source:
    """One queue of the topic. ``at``: the offset to pull next, unknown until it is clear where to begin; ``count``: how
    many messages with the next pull; ``low``: all before it is history, and ``step``: so far before ``at`` is the next
    look whether that is."""

    __slots__ = ("at", "count", "end", "low", "min", "origin", "page", "queue", "search", "step")

    def __init__(self, cursor: Cursor, queue: str, low: int, end: int) -> None:
        self.queue = queue
        self.origin = Origin(cursor.feed.broker, cursor.subscription.filter, queue)
        self.min = self.low = low
        self.end = end
        self.step = 1
        self.at = _UNKNOWN
        self.count = PAGE_COUNT
        self.page: list[Arrival] = []
        self.search: Search | None = None

    def leave(self) -> None:
        """The queue's topic was deleted: there is nothing more to read."""
        self.at = self.low = self.end
        self.search = None


class Replay:
    """Progress of one subscription's history at one broker. ``before``: from this log position on it is live."""

    __slots__ = ("batch", "before", "cursor", "has_begun", "knows_name", "sources", "start", "topic", "waiting")

    def __init__(self, cursor: Cursor, start: Start, topic: str, before: int) -> None:
        self.cursor = cursor
        self.start = start
        self.topic = topic
        self.before = before
        self.knows_name = not start.name
        self.has_begun = False
        self.sources: list[Source] | None = None
        self.batch: list[Arrival] = []
        self.waiting = 0

    @property
    def waits(self) -> bool:
        return self.waiting > 0

    def owed(self) -> Owed | None:
        rest = self.rest()
        if rest is not self.start and len(rest.offsets) > QUEUES_KEPT_MAX:
            return None
        return Owed(self.before, "", rest, self.topic)

    def rest(self) -> Start:
        """The start of the history that is not sent yet."""
        sources = self.sources
        if sources is None or self.start.name or any([source.at == _UNKNOWN for source in sources]):
            return self.start
        waiting = {id(one.origin): one.offset for one in reversed(self.batch)}
        offsets = []
        for source in sources:
            behind = source.page[0].offset if source.page else source.at
            offsets.append((int(source.queue.rpartition(":")[2]), waiting.get(id(source.origin), behind)))
        return Start(OFFSET, offsets=tuple(offsets))


class Replays:
    """The replays of one gateway. ``coming``: subscriptions on their way and the history that each is to be sent, which
    counts already, and of which nothing is sent before they stand."""

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Sequence[Cursor], Arrival, Variant, int], bool],
        go_on: Callable[[Cursor], None],
        rounds: Rounds,
        positions: NamedPositions,
        fail: Callable[[Cursor], None],
    ) -> None:
        """``send`` sends one message, or says that there is no room now. ``go_on`` leads to ``pump``. ``positions``:
        where subscriptions with a name begin. ``fail``: that of ``LookupTurns``."""
        self._clock = clock
        self._send = send
        self._positions = positions
        self._replays: dict[Cursor, Replay] = {}
        self._interrupted: dict[Cursor, tuple[Start, str]] = {}
        self.turns = LookupTurns(self._replays, go_on, rounds, fail)
        self.coming: dict[Subscription, tuple[Start, str]] = {}
        self.replayed = 0

    def __len__(self) -> int:
        return len(self._replays) + len(self.coming)

    def __contains__(self, cursor: Cursor) -> bool:
        return cursor in self._replays

    def begin(self, cursor: Cursor, start: Start, topic: str, before: int = -1) -> None:
        """Holds a cursor until its history is sent: messages stored before its first live message, or ``before``. One
        whose broker is still to open its filter begins then."""
        if not cursor.is_attached:
            self._interrupted[cursor] = start, topic
            return
        before = max(cursor.start, cursor.seen + 1) if before < 0 else before
        replay = self._replays[cursor] = Replay(cursor, start, topic, before)
        cursor.past = replay

    def resume(self, cursor: Cursor) -> bool:
        """Goes on where an earlier connection of the session ended, or where the broker closed the filter: then up to
        where that was opened again. One with a name goes on so also where its history had been sent, and begins so at
        a broker that joins later. One of a subscription that is on its way waits here until that stands, or what is
        live would come before its history, and again with it. False if nothing is owed."""
        self._positions.reads(cursor)
        rest = self._interrupted.pop(cursor, None) or self.coming.get(cursor.subscription)
        owed = cursor.left_owed(is_history=True, take=True) if rest is None else None
        if owed is not None and owed.start is not None:
            self.begin(cursor, owed.start, owed.topic, owed.before)
            return True
        rest = rest or self._positions.behind(cursor)
        if rest is not None:
            self.begin(cursor, *rest)
        return rest is not None

    def interrupt(self, cursor: Cursor) -> None:
        """The cursor reads no more, for now (``resume``) or for ever (``forget``)."""
        replay = self._replays.get(cursor)
        if replay is not None:
            self._interrupted[cursor] = replay.rest(), replay.topic
        self._stop(cursor)

    def forget(self, cursor: Cursor) -> None:
        """The subscription is over, or its connection is."""
        self._interrupted.pop(cursor, None)

    def _stop(self, cursor: Cursor) -> None:
        if self._replays.pop(cursor, None) is not None:
            cursor.past = None

    def pump(self, cursor: Cursor) -> bool:
        """Sends what there is room for, and sees that more comes. True when all is sent and the cursor held no more."""
        replay = self._replays[cursor]
        if replay.waiting or cursor.subscription in self.coming:
            return False
        if replay.sources is None:
            self._ask(replay, DescribeTopic(replay.topic), _WORK_OF_TOPIC, self._described)
            return False
        if not replay.has_begun:
            if not self._knows_places(replay, replay.sources):
                return False
            replay.has_begun = True
            if replay.start.name:
                self._positions.begin(cursor, replay.start.name, {one.queue: one.at for one in replay.sources})
                replay.start = replay.start._replace(name="")
        while self._refill(replay, replay.sources):
            if not self._send_batch(replay):
                return False
        return self._is_over(replay)

    def _is_over(self, replay: Replay) -> bool:
        if replay.waiting or replay.batch:
            return False
        if any([source.page or source.at < source.end for source in replay.sources or ()]):
            return False
        self._stop(replay.cursor)
        return True

    # ------------------------------------------------------------ asking

    def _ask(self, replay: Replay, request: Request, work: int, told: Callable[..., None], *about: Source) -> None:
        replay.waiting += 1
        self.turns.ask(replay.cursor, replay, request, work, partial(self._answered, replay, told, about))

    def _pull(self, replay: Replay, source: Source, pull: Pull, told: Callable[..., None]) -> None:
        self._ask(replay, pull, _WORK + min(pull.count_max, pull.bytes_max // HEAD_BYTES), told, source)

    def _answered(self, replay: Replay, told: Callable[..., None], about: tuple[Source, ...], result: Result) -> None:
        replay.waiting -= 1
        if isinstance(result, TopicNotFound):  # there is no history without a publication
            replay.sources = []
        elif isinstance(result, QueueNotFound) and about:
            about[0].leave()
        elif isinstance(result, OffsetOutOfRange) and about:  # retention has passed it
            self._ask(replay, QueryBounds((about[0].queue,)), _WORK, self._bounded, *about)
        elif isinstance(result, PenstockError):
            self.turns.failed(replay.cursor)
            return
        else:
            told(replay, result, *about)
        if not replay.waiting:
            self.turns.ready(replay.cursor)

    def _described(self, replay: Replay, detail: TopicDetail) -> None:
        self.turns.spent(replay.cursor, len(detail.bounds))
        replay.sources = [Source(replay.cursor, bounds.queue, bounds.min, bounds.end) for bounds in detail.bounds]

    def _bounded(self, replay: Replay, reply: BoundsReply, source: Source) -> None:
        source.min = reply.bounds[0].min
        source.low = max(source.low, source.min)
        source.at = min(max(source.at, source.min), source.end) if source.at != _UNKNOWN else _UNKNOWN
        source.search = None

    # ------------------------------------------------------------ where to begin

    def _knows_places(self, replay: Replay, sources: Sequence[Source]) -> bool:
        """Whether every queue knows its place; if not, it is asked for."""
        if not replay.knows_name:
            queues = [source.queue for source in sources]
            request, answer = self._positions.find(replay.cursor, replay.start.name, queues)
            self._ask(replay, request, _WORK + len(sources), partial(self._named, answer))
            return False
        unknown = [source for source in sources if source.at == _UNKNOWN]
        if replay.start.kind == LAST:
            self._search_all(replay, unknown)
        elif replay.start.kind == TIME:
            for source in unknown:
                self._ask(replay, SeekTime(source.queue, replay.start.number), _WORK_OF_SEEKING, self._sought, source)
        else:
            offsets = dict(replay.start.offsets)
            for source in unknown:
                source.at = _within(source, self._begin_of(replay.start, offsets, source))
        return all([source.at != _UNKNOWN for source in sources]) and self._is_history_before(replay, sources)

    @staticmethod
    def _begin_of(start: Start, offsets: dict[int, int], source: Source) -> int:
        if start.kind == BEGINNING:
            return source.min
        if start.kind != OFFSET:
            return source.end
        queue_id = int(source.queue.rpartition(":")[2])
        return offsets.get(queue_id, offsets.get(EVERY_QUEUE, source.end))

    def _named(self, answer: Callable[[Result], Result], replay: Replay, result: Result) -> None:
        """Of a queue without an offset nothing was acknowledged, if there are offsets of others."""
        reply = answer(result)
        assert isinstance(reply, HeldOffsets)
        replay.knows_name = True
        is_kept = any([kept.offset >= 0 for kept in reply.progress])
        for source, kept in zip(replay.sources or (), reply.progress, strict=True):
            if is_kept:
                source.at = source.low = _within(source, kept.offset)

    def _sought(self, replay: Replay, reply: OffsetReply, source: Source) -> None:
        source.at = _within(source, reply.offset)

    def _is_history_before(self, replay: Replay, sources: Sequence[Source]) -> bool:
        """A new name begins before all live messages; otherwise its position would be past some that are still to be
        sent: those that were stored between the opening of the filter and the look at the queue's end. Whether that is
        known; if not, it is looked for, back from where the queue was to begin."""
        for source in sources if replay.start.name else ():
            if source.low < source.at:
                pull = Pull(source.queue, max(source.low, source.at - source.step), PAGE_BYTES_MIN, 1)
                self._pull(replay, source, pull, self._looked_back)
        return not replay.waiting

    def _looked_back(self, replay: Replay, pulled: Pulled, source: Source) -> None:
        at = max(source.low, source.at - source.step)
        if any([one.position < replay.before for one in _decoded(pulled, source)]):
            source.low, source.step = at + 1, 1
        else:
            source.at, source.step = at, source.step * 2
            source.end = min(source.end, at)

    # ------------------------------------------------------------ the last N

    def _search_all(self, replay: Replay, unknown: Sequence[Source]) -> None:
        for source in unknown:
            if source.search is None:
                source.search = Search(source.end)
            self._search(replay, source, source.search)
        if not unknown or not all([source.search is not None and source.search.is_over for source in unknown]):
            return
        found = sorted(
            [
                (position, offset, source)
                for source in unknown
                if source.search
                for position, offset in zip(source.search.found[::2], source.search.found[1::2], strict=True)
            ],
            key=_first,
        )
        chosen = found[len(found) - replay.start.number :] if replay.start.number < len(found) else found
        for source in unknown:
            source.at = min([offset for _, offset, other in chosen if other is source], default=source.end)
            source.search = None

    def _search(self, replay: Replay, source: Source, search: Search) -> None:
        """Goes on looking where that makes sense."""
        count = replay.start.number
        if search.at >= search.stop:
            search.found = (search.window + search.found)[-2 * count :] if count else array("q")
            search.window = array("q")
            if len(search.found) >= 2 * count or search.begin <= source.min or search.looked_at >= LOOKED_AT_MAX:
                search.is_over = True
                return
            step = min(max(count, search.looked_at, 64), STEP_MAX)
            search.stop, search.begin = search.begin, max(source.min, search.begin - step)
            search.at = search.begin
        pull = Pull(source.queue, search.at, BYTES, search.stop - search.at)
        self._pull(replay, source, pull, self._looked)

    def _looked(self, replay: Replay, pulled: Pulled, source: Source) -> None:
        search = source.search
        if search is None:
            return
        for one in self._wanted(replay, source, pulled):
            search.window.append(one.position)
            search.window.append(one.offset)
        after = min(pulled.next, search.stop) if pulled.next > search.at else search.stop
        search.looked_at += after - search.at
        search.at = after

    # ------------------------------------------------------------ reading

    def _refill(self, replay: Replay, sources: Sequence[Source]) -> bool:
        """Whether there is something to send. If not it was asked for, or all is over."""
        if replay.batch:
            return True
        self.turns.spent(replay.cursor, len(sources) // 8)  # all of them are looked through, mostly for one page
        size = max(PAGE_BYTES_MIN, BYTES // max(1, len(sources)))
        for source in sources:
            if not source.page and source.at < source.end:
                self._pull(replay, source, Pull(source.queue, source.at, size, source.count), self._pulled)
        if replay.waiting or any([not source.page and source.at < source.end for source in sources]):
            return False  # what came held nothing for this filter: there is more, and others get their turn first
        limit = min([source.page[-1].position for source in sources if source.at < source.end], default=1 << 63)
        for source in sources:
            cut = bisect_left(source.page, limit + 1, key=_POSITION)
            replay.batch += source.page[:cut]
            del source.page[:cut]
        replay.batch.sort(key=_POSITION)
        return bool(replay.batch)

    def _pulled(self, replay: Replay, pulled: Pulled, source: Source) -> None:
        source.page = self._wanted(replay, source, pulled)
        source.count = PAGE_COUNT if source.page else LOOK_COUNT
        is_past = pulled.next <= source.at or pulled.next >= source.end
        source.at = source.end if is_past else pulled.next

    @staticmethod
    def _wanted(replay: Replay, source: Source, pulled: Pulled) -> list[Arrival]:
        filter, before, end = replay.cursor.subscription.filter, replay.before, source.end
        judged: dict[Heading, bool] = {}  # few names, of many messages
        wanted = []
        for one in _decoded(pulled, source):
            matched = judged.get(one.heading)
            if matched is None:
                matched = judged[one.heading] = matches(filter, one.name)
            if matched and one.position < before and one.offset < end:
                wanted.append(one)
        return wanted

    def _send_batch(self, replay: Replay) -> bool:
        cursor, batch = replay.cursor, replay.batch
        session, one = cursor.session, cursor.subscription
        device = session.device
        assert device is not None
        identifiers = (one.identifier,) if one.identifier else ()
        now_ms = self._clock.wall_ms()
        for at, arrival in enumerate(batch):
            if is_expired(arrival, now_ms) or (one.no_local and arrival.sender == session.client_id_bytes):
                continue
            retain = one.as_published and arrival.retain
            variant = Variant(device.is_v5, min(arrival.qos, one.qos), retain, identifiers, one.shows_place)
            if session.is_full or not self._send((cursor,), arrival, variant, now_ms):
                del batch[:at]
                return False
            self.replayed += 1
        batch.clear()
        return True


def _decoded(pulled: Pulled, source: Source) -> list[Arrival]:
    try:
        return arrivals(pulled.count, pulled.body, source.origin)
    except InvalidMessage:
        return []


def _within(source: Source, offset: int) -> int:
    return min(max(offset, source.min), source.end)


def _first(row: tuple[int, int, Source]) -> int:
    return row[0]
