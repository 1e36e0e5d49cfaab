"""Accepts or refuses the messages of an append and finds their places: the broker's hottest code.

The tail of a run (topic and properties) repeats from run to run of a sender. Its meaning (topic, queue, level, name) is
worked out and checked once, and remembered under the tail's bytes, without an id that counts. The rest per run is its
size and its place. It stores nothing. Pure but for ``for_append``, which may create a topic.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from broker.messages.retained import Retained
from broker.messages.whole_records import runs_of
from broker.producers.repeats import Repeats, is_known
from broker.sessions.exchanges import exchange_of
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.destinations import Destination, Incoming
from broker.store.level import Level
from broker.store.run_frames import frame_bytes
from broker.topics.requests import TopicRequests
from penstock.errors import (
    Busy,
    Fenced,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NotAllowed,
    PenstockError,
    ReservedName,
    RetainedChanged,
    TooLarge,
    from_wire,
)
from penstock.protocol.message import (
    ANY_QUEUE,
    BODY_BYTES_MAX,
    CLIENT_ID,
    FLAG_GIVEN_BACK,
    FLAG_ONCE,
    FLAG_RETAIN,
    FLAG_SEQUENCED,
    FLAG_WOKEN,
    IF_RETAINED,
    KEYS,
    KEYS_BASE64,
    MQTT_ID,
    MQTT_TOPIC,
    SHARDING_KEY,
    UNIQUE_KEY,
    check_tail,
    decode_properties,
    lasts_from_ms,
    read_key,
)
from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.runs import DIGITS, Run, check_counts, check_digits
from topicmap.names import InvalidName, check_name, is_reserved, quoted
from topicmap.queues import is_own_topic, queue_for_key

REMEMBERED_MAX: Final = 8192
REMEMBERED_BYTES_MAX: Final = 1024
"""Longer tails are not remembered: together with the number it bounds the memory to 8 MiB."""

_ROUND_ROBIN: Final = -1
ANY_RETAINED: Final = -1
"""A message that replaces whatever is retained under its name."""
_OF_BROKER: Final = FLAG_WOKEN | FLAG_GIVEN_BACK
_SPECIAL: Final = _OF_BROKER | FLAG_ONCE | FLAG_RETAIN | FLAG_SEQUENCED
_NOT_YOURS: Final = "only the broker says of a message that it was delayed or given back"
_UNIQUE: Final = UNIQUE_KEY.encode() + b"\x01"
_EXCHANGE: Final = MQTT_ID.encode() + b"\x01"


Exchange = tuple[str, int, int, int]
"""Client, generation and epoch of its session, and packet id."""


class Tail(Destination):
    """The meaning of the bytes behind a record's body. ``key_queue``: the queue of the key, -1 without one. ``name``:
    as devices see it. ``queues``: how many of the topic are written to. ``is_open``: whether clients may write to it.
    ``replaces``: the position of the retained message that it may replace, 0 for none, -1 for any."""

    __slots__ = ("exchange", "is_open", "key_queue", "name", "queues", "replaces")

    def __init__(
        self,
        topic: str,
        properties: bytes,
        name: str,
        queues: int,
        key_queue: int,
        level: Level,
        exchange: Exchange | None,
        id_at: int,
        is_open: bool,
        replaces: int,
    ) -> None:
        super().__init__(topic, properties, level, id_at)
        self.name = name
        self.queues = queues
        self.key_queue = key_queue
        self.exchange = exchange
        self.is_open = is_open
        self.replaces = replaces


Accepted = tuple[list[Run], list[Destination], list[Refused], int, int, Level, list[Run]]
"""What is to be stored of a batch of runs, and where each goes; what is not stored; how many messages are stored and
the bytes of their records; the strongest level among them; and the batch, its runs cut where some messages are stored
already."""


class Acceptance:
    """Checks and places the messages of appends.

    Attributes:
        repeats: tells which of them are stored already.
    """

    def __init__(self, topics: TopicRequests, state: BrokerState, settings: BrokerSettings, repeats: Repeats) -> None:
        self._topics = topics
        self.repeats = repeats
        self._retained = state.retained
        self._state = state
        self._settings = settings
        self._tails: dict[bytes, Tail] = {}
        self._counting: dict[bytes, Tail] = {}  # by what stands before the digits that count
        self._round_robin = count()

    def forget(self) -> None:
        """Topics have changed: what was remembered may not hold any more."""
        self._tails.clear()
        self._counting.clear()

    def take_record(self, record: bytes, now_ms: int, *, is_promised: bool = False) -> Incoming:
        """A whole record that is good, and where it goes; its run ``counts`` if it has a number of its producer. Raises
        what it is refused with. ``is_promised``: it was accepted before, so that permissions do not count."""
        runs, _, bad = runs_of(record, 1)
        for run in runs:
            run.counts = run.flag & FLAG_SEQUENCED != 0
            run.flag &= ~FLAG_SEQUENCED  # it is stored once because its timer or half ends once
        taken, destinations, refused, *_ = self.take(runs, now_ms, is_promised)
        for one in (*bad, *refused):
            raise from_wire(one.code, one.message)
        if not taken:
            raise InvalidMessage("this message is stored already")
        return Incoming(taken[0], destinations[0])

    def take(self, runs: list[Run], now_ms: int, is_promised: bool = False) -> Accepted:
        """The messages of a batch of runs, each accepted or refused on its own."""
        accepted = self._take(runs, now_ms, is_promised, False)
        if accepted is None:
            accepted = self._take(self.repeats.sift(runs), now_ms, is_promised, True)
            assert accepted is not None
        return accepted

    def _take(self, runs: list[Run], now_ms: int, is_promised: bool, is_sifted: bool) -> Accepted | None:
        """The same. Gives nothing where a producer's messages may be stored already and are not sifted."""
        taken: list[Run] = []
        destinations: list[Destination] = []
        refused: list[Refused] = []
        room: RetainedRoom | None = None
        begun: set[Exchange] = set()
        ahead: dict[bytes, int] = {}
        repeated, first, size, level, known = 0, 0, 0, Level.CACHE, 0
        for run in runs:
            raw, flag, bodies = run.tail, run.flag, run.bodies
            count = len(bodies)
            body_bytes = len(bodies[0])
            try:
                if body_bytes > BODY_BYTES_MAX:
                    raise TooLarge(f"a body has at most {BODY_BYTES_MAX} bytes, not {body_bytes}")
                counts = run.counts or flag & FLAG_SEQUENCED
                tail = self._that_counts(run, now_ms) if counts else self._tails.get(raw) or self._learn(raw, now_ms)
                if is_sifted and flag & FLAG_SEQUENCED and is_known(run, tail.producer):
                    known += count
                    first += count
                    level = max(level, tail.level)  # it may still be on its way there
                    continue
                if not (tail.is_open or is_promised):
                    raise NotAllowed(f"nothing is written to topic {tail.topic} at this broker just now")
                is_free = run.queue_id == ANY_QUEUE
                if not is_free and run.queue_id >= tail.queues:
                    raise InvalidRequest(f"topic {tail.topic} has {tail.queues} queues, no queue {run.queue_id}")
                if flag & _SPECIAL:
                    if flag & _OF_BROKER:
                        raise InvalidMessage(_NOT_YOURS)
                    if not is_sifted and flag & FLAG_SEQUENCED and not self.repeats.is_ahead(run, tail.producer, ahead):
                        return None
                    if flag & FLAG_ONCE:  # such a message is of one exchange: the others of its run are the same
                        bodies = [] if self._is_repeated(tail, begun) else bodies[:1]
                        repeated += count - len(bodies)
                        run = run.of(bodies) if bodies and count > 1 else run
                    if flag & FLAG_RETAIN and bodies:
                        room = room or RetainedRoom(self._retained, self._settings, lasts_from_ms(run.born_ms, now_ms))
                        room.take(tail.name, frame_bytes(run) if body_bytes else 0, tail.replaces, len(bodies))
                if bodies:
                    if is_free:
                        run.queue_id = tail.key_queue if tail.key_queue >= 0 else next(self._round_robin) % tail.queues
                    taken.append(run)
                    destinations.append(tail)
                    size += run.size
                    if tail.level is not level and tail.level > level:
                        level = tail.level
            except PenstockError as error:
                refused += [Refused(at, error.code, error.message) for at in range(first, first + count)]
            first += count
        if repeated:  # a stored message may still be on its way to the disk
            level = max(level, Level.DISK)
        return taken, destinations, refused, first - len(refused) - repeated - known, size, level, runs

    def _is_repeated(self, tail: Tail, begun: set[Exchange]) -> bool:
        """Whether the message of an exchange is stored, or in this batch, already."""
        exchange = tail.exchange
        if exchange is None:
            raise InvalidMessage(f"a message that is stored once says of which exchange it is, in {MQTT_ID}")
        client, generation, epoch, packet_id = exchange
        if self._state.is_fenced(client, generation, epoch):
            raise Fenced("another gateway has this session by now")
        if exchange in begun or self._state.exchanges.holds(client, generation, packet_id):
            return True
        begun.add(exchange)
        return False

    def _that_counts(self, run: Run, now_ms: int) -> Tail:
        """What the tail of a run means whose id counts from message to message; notes on the run from where on."""
        raw, count = run.tail, len(run.bodies)
        tail = self._counting.get(raw[:-DIGITS])
        if tail is None:
            properties_at = check_tail(raw)
            tail = self._learn(raw, now_ms, check_counts(raw, properties_at, count) - properties_at)
        run.number = check_digits(raw, count)
        return tail

    def _learn(self, raw: bytes, now_ms: int, id_at: int = -1) -> Tail:
        """Checks a tail and works out what it means. ``id_at``: where in its properties an id that counts begins."""
        properties_at = check_tail(raw)
        properties = raw[properties_at:]
        try:
            topic = raw[2 : properties_at - 2].decode()
        except UnicodeDecodeError:
            raise InvalidMessage("the topic is not UTF-8") from None
        given = decode_properties(properties)
        name = _name_of(topic, given)
        if (topic in GATEWAYS_TOPICS or is_reserved(name)) and not given.get(CLIENT_ID):
            raise ReservedName(f"only gateways publish under {quoted(name)}")  # no native producer can say a CLIENT_ID
        if is_own_topic(topic):
            raise ReservedName(f"only the broker stores messages in {topic!r}")
        config = self._topics.for_append(topic, now_ms)
        key: str | bytes = given.get(SHARDING_KEY) or given.get(KEYS, "")
        if not key and KEYS_BASE64 in given:
            key = read_key(given[KEYS_BASE64])
        queues, topics = config.writing, self._state.topics
        queue_id = queue_for_key(key, queues) if key else _ROUND_ROBIN
        is_open = topic in GATEWAYS_TOPICS or (topics.may_write and "w" in config.access)
        exchange = exchange_of(given.get(MQTT_ID, ""))
        replaces = replaces_of(given.get(IF_RETAINED, ""))
        whose = None if exchange is None else (given.get(CLIENT_ID, ""), *exchange)
        tail = Tail(topic, properties, name, queues, queue_id, Level.of(config.level), whose, id_at, is_open, replaces)
        # A unique one never comes again.
        is_unique = (id_at < 0 and _UNIQUE in properties) or _EXCHANGE in properties or replaces >= 0
        if len(raw) <= REMEMBERED_BYTES_MAX and not is_unique:
            remembered = self._tails if id_at < 0 else self._counting
            if len(remembered) >= REMEMBERED_MAX:
                remembered.clear()
            remembered[raw if id_at < 0 else raw[:-DIGITS]] = tail
        return tail


def replaces_of(text: str) -> int:
    """The position that ``IF_RETAINED`` names; ``ANY_RETAINED`` where a message has none. Raises ``InvalidMessage``."""
    if not text:
        return ANY_RETAINED
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidMessage(f"{IF_RETAINED} is a log position, not {text!r:.60}")
    return int(text)


def _name_of(topic: str, given: dict[str, str]) -> str:
    """The MQTT name of a message with these properties."""
    name = given.get(MQTT_TOPIC)
    if name is None:
        return topic
    if next(iter(given)) != MQTT_TOPIC:
        raise InvalidMessage(f"the property {MQTT_TOPIC} must be the first one")  # all who route look for it there
    try:
        check_name(name)
    except InvalidName as error:
        raise InvalidTopic(f"{quoted(name)}: {error}") from None
    return name


class RetainedRoom:
    """The room that is left for retained messages while a batch is judged, before any of it is stored. Expired ones are
    removed with the first one that is stored."""

    def __init__(self, retained: Retained, settings: BrokerSettings, now_ms: int) -> None:
        self._retained = retained
        self._settings = settings
        self._sizes: dict[str, int] = {}  # names that the batch decides
        self._expired = retained.expired_by(now_ms)
        self._count = len(retained) - len(self._expired)
        self._bytes = retained.bytes - sum(self._expired.values())

    def take(self, name: str, size: int, replaces: int = ANY_RETAINED, count: int = 1) -> None:
        """A message of ``size`` bytes is retained under a name; 0 removes it. Raises ``Busy`` over a limit, and
        ``RetainedChanged`` where it ``replaces`` another message than stands there: 0 is none. Of ``count`` messages in
        one run only the first could replace the stored value."""
        if replaces != ANY_RETAINED:
            self._check(name, replaces, count)
        before = self._sizes.get(name)
        if before is None:
            before = 0 if name in self._expired else self._retained.size_of(name)
        messages = self._count + (size > 0) - (before > 0)
        total = self._bytes + size - before
        settings = self._settings
        more = messages > self._count or total > self._bytes
        if more and (messages > settings.retained_max or total > settings.retained_bytes_max):
            raise Busy(
                f"{self._count} retained messages with {self._bytes} bytes: the limit is reached",
                hint="remove some by publishing empty ones, or raise retained_max and retained_bytes_max",
            )
        self._sizes[name] = size
        self._count, self._bytes = messages, total

    def _check(self, name: str, replaces: int, count: int) -> None:
        stands = 0 if name in self._expired else self._retained.position_of(name)
        if name in self._sizes or count > 1 or stands != replaces:
            raise RetainedChanged(f"the retained message of {quoted(name)} is at position {stands}, not {replaces}")
