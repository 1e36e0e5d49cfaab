"""docs/formats/log.md shows exactly what the store writes, and a reader written from that page alone agrees."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from broker.store.frames import blank_frame
from penstock.protocol.message import encode_record
from tests.broker.store.store_rig import command, fill, incoming, opened, pack_frame, segment_paths, stored
from tests.simulation.disk import SimDisk

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "log.md"


def test_the_pages_frame_is_what_the_store_writes() -> None:
    rows = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} )*[0-9a-f]{2})", PAGE.read_text(), re.MULTILINE)
    record = encode_record(b"telemetry", b"21.5", b"TAGS\x01hot", flag=1, born_ms=1_700_000_000_000)
    frame = pack_frame(record, 3, 7, 4096, 1_700_000_000_250, 1, 3900)
    assert bytes.fromhex(" ".join(rows)) == frame


def test_the_pages_blank_is_what_the_store_writes() -> None:
    found = re.search(r"same watermark: `([0-9a-f ]+)`", PAGE.read_text())
    assert found is not None
    assert bytes.fromhex(found[1]) == blank_frame(500, 1, 3900)


def second_reader(files: dict[int, bytes]) -> Iterator[tuple[str, int, int, bytes]]:
    """Topic, queue id, offset and body of every record of a sound log; nothing here is the store's code."""
    for base, data in sorted(files.items()):
        at = 0
        while at + 24 <= len(data):
            crc, magic, length, _, _ = struct.unpack_from(">I4sIIQ", data, at)
            if magic == b"PENB":
                assert crc == google_crc32c.value(data[at + 4 : at + 24])
                assert at + length == len(data)
                break
            if magic != b"PEN1":
                assert not any(data[at:]), "only reserved zeros may follow the last frame"
                break
            frame = data[at : at + length]
            assert crc == google_crc32c.value(frame[4:])
            size, _, _, queue_id, _, offset, position = struct.unpack_from(">IIIIIQQ", frame, 24)
            assert (size, position) == (length - 24, base + at)
            body_bytes = struct.unpack_from(">I", frame, 108)[0]
            topic_at = 112 + body_bytes
            topic_bytes = struct.unpack_from(">H", frame, topic_at)[0]
            topic = frame[topic_at + 2 : topic_at + 2 + topic_bytes].decode()
            yield topic, queue_id, offset, frame[112:topic_at]
            at += length


def test_a_second_reader_that_knows_only_the_page_reads_the_same() -> None:
    disk = SimDisk()
    store = opened(disk)
    stored(store, command("+all t"), incoming("one", queue_id=1, tag="x", key="k"))
    sent = fill(store, 120)
    files = {int(path[4:24]): disk.read(path) for path in segment_paths(disk)}
    assert len(files) > 2
    read = [one for one in second_reader(files) if not one[0].startswith("%sys%")]
    assert read[0] == ("t", 1, 0, b"one")
    assert read[1:] == [("t", 0, offset, body) for offset, body in enumerate(sent)]
