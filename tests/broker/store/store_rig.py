"""What the store's tests share: small folds, records, and a store on a simulated disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgpack

from broker.lineage.owner import LogOwner
from broker.lineage.removals import Removals
from broker.store.destinations import Incoming, incoming_of
from broker.store.frames import crc_of
from broker.store.index_chunk import ChunkReader, Row, Sealed, check_chunk
from broker.store.level import Level
from broker.store.message_store import MessageStore
from broker.store.records import NO_CHANGE, REMOVED_TOPIC, Change, Removed, Stored
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from penstock.protocol.message import (
    FLAG_RETAIN,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_MAGIC,
    KEYS,
    OFFSETS,
    OFFSETS_AT,
    QUEUE_ID_AT,
    RECORD_HEAD,
    STORED,
    STORED_AT,
    TAGS,
    decode_batch,
    encode_properties,
    encode_record,
    record_body,
)
from penstock.protocol.runs import UNUSUAL
from tests.simulation.disk import SimDisk

FILTER_TOPIC = "%sys%filter"
SMALL = StoreSettings(
    segment_bytes=8192,
    reserve_step_bytes=2048,
    emergency_bytes=0,
    chunk_bytes=3000,
    retention_bytes=0,
    retention_s=0.0,
    fresh_bytes=0,  # what is read is read from the disk
)


class SmallFolds:
    """Light queues of topics, retained bodies, what is removed: the least that shows whether replay is exact.

    A system record "+name topic" opens light queue ``~name`` on a topic, "-name" ends it.
    """

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self.retained: dict[str, bytes] = {}
        self.last = -1
        self.changes = 0
        self.epoch = 0
        self.topics: list[tuple[str, int]] = []  # what a real one has learned from the log
        self._removals = Removals()

    @property
    def removed(self) -> Removed:
        return self._removals.latest

    def apply(self, record: Stored) -> Change:
        self.last = record.position
        if record.topic == REMOVED_TOPIC:
            return self._removals.apply(record)
        body = record_body(memoryview(record.frame)[FRAME_HEAD_BYTES:])
        if record.topic != FILTER_TOPIC:
            assert record.flag & FLAG_RETAIN
            self.retained[record.topic] = body
            return NO_CHANGE
        sign, words = body[:1], body[1:].decode().split(" ")
        key = "~" + words[0]
        self.changes += 1
        if sign == b"+":
            self.open[key] = words[1]
            return Change(opened=(key,))
        self.open.pop(key, None)
        return Change(ended=(key,))

    def note_ids(self, producer: bytes, first: int, count: int, stored_ms: int, position: int, step: int) -> None:
        """Not known here."""

    def queues_of(self, topic: str, properties: bytes) -> Sequence[str]:
        return [key for key, wanted in self.open.items() if wanted == topic]

    def topic_queues(self) -> Sequence[tuple[str, int]]:
        return self.topics

    def floors(self) -> Sequence[tuple[str, int]]:
        return ()

    def freeze(self) -> Iterator[bytes]:
        """One piece, made at once: what is applied later does not show."""
        state = [sorted(self.open.items()), sorted(self.retained.items()), self.last, self.removed]
        packed = msgpack.packb(state)
        assert isinstance(packed, bytes)
        return iter((packed,))

    def restore(self, snapshot: bytes) -> None:
        opened, retained, self.last, removed = msgpack.unpackb(snapshot) if snapshot else ([], [], -1, ())
        self._removals.restore(removed)
        self.open = {key: topic for key, topic in opened}
        self.retained = {topic: body for topic, body in retained}


def incoming(
    body: bytes | str,
    topic: str = "t",
    queue_id: int = 0,
    *,
    tag: str = "",
    key: str = "",
    retain: bool = False,
    cache: bool = False,
) -> Incoming:
    """A record to append."""
    raw = body.encode() if isinstance(body, str) else body
    properties = encode_properties({name: value for name, value in ((KEYS, key), (TAGS, tag)) if value})
    flag = FLAG_RETAIN if retain else 0
    record = encode_record(topic.encode(), raw, properties, queue_id=queue_id, flag=flag)
    return incoming_of(record, Level.CACHE if cache else Level.DISK)


def record_of(one: Incoming) -> bytes:
    """The record of a run of one, made the simple way."""
    run, to = one.run, one.destination
    topic = to.topic.encode()
    record = encode_record(
        topic, run.bodies[0], to.properties, queue_id=run.queue_id, flag=run.flag, born_ms=run.born_ms
    )
    fields = list(RECORD_HEAD.unpack_from(record))
    fields[7], fields[9], fields[12], fields[13] = UNUSUAL.unpack(run.unusual or bytes(UNUSUAL.size))
    return RECORD_HEAD.pack(*fields) + record[RECORD_HEAD.size :]


def pack_frame(
    record: bytes, queue_id: int, queue_offset: int, position: int, stored_ms: int, epoch: int, watermark: int
) -> bytes:
    """The frame of a record, made the simple way."""
    stamped = bytearray(record)
    stamped[QUEUE_ID_AT : QUEUE_ID_AT + 4] = queue_id.to_bytes(4, "big")
    OFFSETS.pack_into(stamped, OFFSETS_AT, queue_offset, position)
    STORED.pack_into(stamped, STORED_AT, stored_ms, bytes(8))
    head = FRAME_HEAD.pack(0, FRAME_MAGIC, FRAME_HEAD_BYTES + len(record), epoch, watermark)[4:]
    return crc_of([head, bytes(stamped)]).to_bytes(4, "big") + head + stamped


class ReadChunk(NamedTuple):
    """An index chunk and its directory."""

    sealed: Sealed
    witness: int
    rows: list[Row]


def segment_paths(disk: SimDisk) -> list[str]:
    """The files of the log's segments, in order."""
    return [path for path in disk.paths("log") if path.endswith(".log")]


def log_bytes(disk: SimDisk, end: int) -> dict[str, bytes]:
    """The files of a log that ends there; the last one ends where the log does."""
    found = {path: disk.read(path) for path in segment_paths(disk)}
    last = max(found)
    found[last] = found[last][: end - int(last[4:24])]
    return found


def read_chunk(disk: SimDisk, number: int) -> ReadChunk | None:
    """The chunk with that number, None if it is not good."""
    if check_chunk(disk, number) is None:
        return None
    with contextlib.closing(ChunkReader(disk, number)) as reader:
        return ReadChunk(reader.sealed, reader.witness, list(reader.rows()))


def command(text: str) -> Incoming:
    """A system record for ``SmallFolds``."""
    return incoming(text, FILTER_TOPIC)


def opened(disk: SimDisk, settings: StoreSettings = SMALL, now_ms: int = 1000) -> MessageStore:
    return open_store(disk, settings, SmallFolds(), now_ms)


def sync(store: MessageStore) -> None:
    point = store.sync_point()
    store.sync()
    store.mark_durable(point)
    store.mark_committed(point)


def stored(store: MessageStore, *batch: Incoming, now_ms: int = 1000) -> None:
    """Appends and syncs."""
    store.append(batch, now_ms)
    sync(store)


def tick(store: MessageStore, now_ms: int = 1000, *, needed_from: int | None = None) -> None:
    """A tick of a store whose log is this node's."""
    store.tick(now_ms)
    LogOwner(store, store._folds).tick(now_ms, now_ms, needed_from)


def retain(store: MessageStore, now_ms: int = 1000, *, needed_from: int | None = None) -> None:
    """Retention as it goes: it is decided, said in the log, committed, carried out."""
    for _ in range(2):
        tick(store, now_ms, needed_from=needed_from)
        sync(store)


def messages(
    store: MessageStore, queue: str, *, count_max: int = 7, bytes_max: int = 2000, tags: frozenset[int] = frozenset()
) -> Iterator[tuple[int, bytes]]:
    """Offset and body of every readable message of a queue."""
    bounds = store.bounds(queue)
    offset = bounds.min
    while offset < bounds.end:
        pulled = store.read(queue, offset, count_max, bytes_max, tags)
        assert pulled.next > offset
        for place, message in decode_batch(pulled.count, pulled.body):
            assert offset <= place < pulled.next
            yield place, message.body
        offset = pulled.next


def bodies(store: MessageStore, queue: str = "t:0") -> list[bytes]:
    return [body for _, body in messages(store, queue)]


def fill(store: MessageStore, count: int, size: int = 100, topic: str = "t", start: int = 0) -> list[bytes]:
    """Stores ``count`` messages one by one, ticking; returns their bodies."""
    sent = []
    for number in range(start, start + count):
        body = str(number).encode().ljust(size, b".")
        stored(store, incoming(body, topic))
        tick(store)
        sync(store)
        sent.append(body)
    return sent
