"""Chooses the messages of a pull: by a selector, by MQTT filters, or by both.

One pull looks at 4 MiB or 20,000 messages, and at fewer if each costs more, so that no filter keeps the broker busy.
Its reply then says where to go on, as with tags. Pure.
"""

from __future__ import annotations

from typing import Final

from broker.settings import BrokerSettings
from penstock.errors import InvalidRequest, InvalidTopic
from penstock.protocol.message import BODY_AT, ENTRY, FRAME_HEAD_BYTES, MQTT_TOPIC, OFFSETS_AT, QUEUE_ID_AT
from penstock.protocol.requests.messages import NAMES_MAX, Pull, Pulled
from penstock.protocol.runs import checksum_of
from penstock.protocol.selectors.compiling import Selector, selector_of
from topicmap.names import InvalidName, check_filter, matches, quoted
from topicmap.queues import RETRY_PREFIX, TopicQueue, parse_topic_queue

LOOK_BYTES_MAX: Final = 4 << 20
LOOK_MAX: Final = 20_000
LOOK_NODES: Final = 16
"""Selectors of more nodes look at fewer messages."""
CHUNK: Final = 2_000
"""Number of messages read at once."""
CHUNK_BYTES: Final = 1 << 20
CHECKED_FROM: Final = 64
"""A reply with at least this number of messages has a checksum."""
NODES_PER_NAME: Final = 4
"""Cost of one MQTT filter, as the size of a selector that takes about as long."""
_REMEMBERED_MAX: Final = 4096
_ENTRY_BYTES: Final = ENTRY.size
_NAME_PREFIX: Final = MQTT_TOPIC.encode() + b"\x01"
ALL_TOPICS: Final = "*"


def allowed_selector(settings: BrokerSettings, text: str, queue: str) -> Selector | None:
    """The selector of a pull; ``None`` for a group's retries, which it has wanted before.

    Raises ``InvalidFilter``, and where it looks into bodies ``InvalidName`` and ``InvalidRequest``: the operator says
    of which topics that is allowed."""
    selector = selector_of(text)
    if queue.startswith(RETRY_PREFIX):
        return None
    if selector.reads_body and ALL_TOPICS not in settings.filter_bodies:
        topic = parse_topic_queue(queue).topic
        if topic not in settings.filter_bodies:
            raise InvalidRequest(
                f"filters do not look into the bodies of topic {topic}", hint="its broker's filter_bodies allows it"
            )
    return selector


class Names:
    """MQTT filters, of which one has to match the name of a message. Verdicts on recent names are remembered."""

    def __init__(self, filters: tuple[str, ...]) -> None:
        self._filters = filters
        self._verdicts: dict[bytes, bool] = {}

    def match(self, topic: bytes, properties: bytes) -> bool:
        """Whether the name of a message matches: its first property if that is ``MQTT_TOPIC``, else its topic."""
        name = topic
        if properties.startswith(_NAME_PREFIX):
            end = properties.find(b"\x02")
            name = properties[len(_NAME_PREFIX) :] if end < 0 else properties[len(_NAME_PREFIX) : end]
        verdict = self._verdicts.get(name)
        if verdict is None:
            text = name.decode("utf-8", "replace")
            verdict = any([matches(filter, text) for filter in self._filters])
            if len(self._verdicts) >= _REMEMBERED_MAX:
                self._verdicts.clear()
            self._verdicts[name] = verdict
        return verdict


class Selection:
    """A choice among the messages of a queue: by names, by a selector, or both.

    Attributes:
        names: MQTT filters, of which one matches; empty for all names.
        nodes: cost of one judgement.
        reads_body: whether it looks into bodies.
    """

    def __init__(self, selector: Selector | None, names: tuple[str, ...] = ()) -> None:
        self._selector = selector
        self.names = names
        self._names = Names(names) if names else None
        self.nodes = len(names) * NODES_PER_NAME + (0 if selector is None else selector.nodes)
        self.reads_body = selector is not None and selector.reads_body

    def includes(self, topic: bytes, properties: bytes, document: bytes) -> bool:
        """Whether it includes a message."""
        if self._names is not None and not self._names.match(topic, properties):
            return False
        return self._selector is None or self._selector.matches(properties, document)


def selection_of(settings: BrokerSettings, request: Pull) -> Selection | None:
    """The selection of a pull; ``None`` for all messages. Raises as ``allowed_selector``, and ``InvalidTopic`` for
    names that are no filters."""
    selector = allowed_selector(settings, request.filter, request.queue) if request.filter else None
    if len(request.names) > NAMES_MAX:
        raise InvalidRequest(f"a pull has at most {NAMES_MAX} MQTT filters, not {len(request.names)}")
    for filter in request.names:
        try:
            check_filter(filter)
        except InvalidName as error:
            raise InvalidTopic(f"{quoted(filter)}: {error}") from None
    return Selection(selector, request.names) if selector is not None or request.names else None


class Choice:
    """Messages that one pull has looked at and chosen so far.

    Args:
        only: chooses only messages of this topic queue, with their offsets there.
    """

    def __init__(self, wanted: Selection, count_max: int, bytes_max: int, only: TopicQueue | None = None) -> None:
        self._wanted = wanted
        self._topic = b"" if only is None else only.topic.encode()
        self._queue_id = -1 if only is None else only.queue_id
        self._count_left = count_max
        self._bytes_left = bytes_max
        self._look_left = max(1, LOOK_MAX * LOOK_NODES // max(LOOK_NODES, wanted.nodes))
        self._look_bytes_left = LOOK_BYTES_MAX
        self._rows: list[bytes] = []
        self._frames: list[bytes] = []
        self.next = -1

    @property
    def count_max(self) -> int:
        """The number of messages that are to be read next; 0 when the pull has enough, or has looked at enough."""
        return min(CHUNK, self._look_left) if self._count_left > 0 and self._look_bytes_left > 0 else 0

    def take(self, pulled: Pulled) -> None:
        """Looks at what was read. ``next`` is then the offset to go on from."""
        body = pulled.body if type(pulled.body) is bytes else bytes(pulled.body)
        self.next = pulled.next
        row_at, frame_at = 0, pulled.count * _ENTRY_BYTES
        for _ in range(pulled.count):
            size = _u32(body, row_at + 16)
            if self._is_wanted(body, frame_at + FRAME_HEAD_BYTES, frame_at + size):
                if self._rows and (size > self._bytes_left or self._count_left <= 0):
                    self.next = int.from_bytes(body[row_at : row_at + 8], "big")
                    self._count_left = 0
                    return
                row = body[row_at : row_at + _ENTRY_BYTES]
                if self._queue_id >= 0:
                    offset_at = frame_at + FRAME_HEAD_BYTES + OFFSETS_AT
                    row = body[offset_at : offset_at + 8] + row[8:]
                self._rows.append(row)
                self._frames.append(body[frame_at : frame_at + size])
                self._count_left -= 1
                self._bytes_left -= size
            row_at += _ENTRY_BYTES
            frame_at += size
        self._look_left -= pulled.count
        self._look_bytes_left -= len(body)
        if not pulled.count:
            self._count_left = 0  # nothing more just now, or nothing among many that tags have ruled out

    def _is_wanted(self, data: bytes, at: int, end: int) -> bool:
        """Whether the record in ``data[at:end]`` matches."""
        topic_at = at + BODY_AT + _u32(data, at + BODY_AT - 4)
        properties_at = topic_at + 4 + (data[topic_at] << 8 | data[topic_at + 1])
        topic = data[topic_at + 2 : properties_at - 2]
        if self._queue_id >= 0 and (self._queue_id != _u32(data, at + QUEUE_ID_AT) or topic != self._topic):
            return False
        document = data[at + BODY_AT : topic_at] if self._wanted.reads_body else b""
        return self._wanted.includes(topic, data[properties_at:end], document)

    def pulled(self, following: int, begin: int, end: int) -> Pulled:
        """The reply, with the offset to go on from and the bounds of the queue."""
        body = b"".join(self._rows + self._frames)
        checksum = checksum_of(body) if len(self._rows) >= CHECKED_FROM else 0
        return Pulled(len(self._rows), following, begin, end, body, checksum)


def _u32(data: bytes, at: int) -> int:
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
