"""Chooses from what was read for a pull the messages that a selector wants.

One pull looks at 4 MiB or 20,000 messages, and at fewer the more a selector has to do for each, so that no filter keeps
the broker busy; its reply then says where to go on, as with tags. Pure.
"""

from __future__ import annotations

from typing import Final

from broker.settings import BrokerSettings
from penstock.errors import InvalidRequest
from penstock.protocol.message import BODY_AT, ENTRY, FRAME_HEAD_BYTES
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.runs import checksum_of
from penstock.protocol.selectors.compiling import Selector, selector_of
from topicmap.queues import RETRY_PREFIX, parse_topic_queue

LOOK_BYTES_MAX: Final = 4 << 20
LOOK_MAX: Final = 20_000
LOOK_NODES: Final = 16
"""Selectors of more nodes look at fewer messages."""
CHUNK: Final = 2_000
"""Number of messages read at once."""
CHUNK_BYTES: Final = 1 << 20
CHECKED_FROM: Final = 64
"""A reply with at least this number of messages has a checksum."""
_ENTRY_BYTES: Final = ENTRY.size
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


class Choice:
    """What one pull has looked at and chosen so far."""

    def __init__(self, selector: Selector, count_max: int, bytes_max: int) -> None:
        self._selector = selector
        self._count_left = count_max
        self._bytes_left = bytes_max
        self._look_left = max(1, LOOK_MAX * LOOK_NODES // max(LOOK_NODES, selector.nodes))
        self._look_bytes_left = LOOK_BYTES_MAX
        self._rows: list[bytes] = []
        self._frames: list[bytes] = []
        self.next = -1

    @property
    def count_max(self) -> int:
        """How many messages are to be read next; 0 when the pull has enough, or has looked at enough."""
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
                self._rows.append(body[row_at : row_at + _ENTRY_BYTES])
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
        document = data[at + BODY_AT : topic_at] if self._selector.reads_body else b""
        return self._selector.matches(data[properties_at:end], document)

    def pulled(self, last: Pulled) -> Pulled:
        """The reply; ``last``: what was read last."""
        body = b"".join(self._rows + self._frames)
        checksum = checksum_of(body) if len(self._rows) >= CHECKED_FROM else 0
        return Pulled(len(self._rows), self.next, last.min, last.end, body, checksum)


def _u32(data: bytes, at: int) -> int:
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
