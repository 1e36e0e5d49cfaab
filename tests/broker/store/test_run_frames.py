"""A run's frames are those of its records, byte for byte."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from broker.store.queue_index import ENTRY20
from broker.store.run_frames import frame_bytes, layout_of
from penstock.protocol.message import encode_record, record_tail
from penstock.protocol.runs import Run
from tests.broker.store.store_rig import pack_frame

counts = st.sampled_from([1, 2, 31, 100])
alike_bodies = st.tuples(counts, st.integers(0, 300)).flatmap(
    lambda shape: st.lists(st.binary(min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
)


@given(
    alike_bodies,
    st.binary(min_size=1, max_size=255),
    st.binary(max_size=300),
    st.integers(0, 15),
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 40),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
@example([b""] * 100, b"t", b"", 0, (1 << 32) - 3, (1 << 32) - 500, -9)
def test_a_run_is_laid_out_as_its_records_would_be(
    bodies: list[bytes], topic: bytes, properties: bytes, flag: int, offset: int, position: int, tag: int
) -> None:
    run = Run(record_tail(topic, properties), flag, 77, bodies).placed(position, 0, 3, offset, 1234)
    layout = layout_of(run, 1, tag)
    pieces: list[bytes] = []
    entries = layout.frames(run, position // 2, pieces)
    assert layout.fits(run)
    at, wanted, wanted_entries = position, [], []
    for number, body in enumerate(bodies):
        record = encode_record(topic, body, properties, queue_id=3, flag=flag, born_ms=77)
        wanted.append(pack_frame(record, 3, offset + number, at, 1234, 1, position // 2))
        wanted_entries.append(ENTRY20.pack(at, len(wanted[-1]), tag))
        at += len(wanted[-1])
    assert b"".join(pieces) == b"".join(wanted)
    assert entries == b"".join(wanted_entries)
    assert [len(frame) for frame in wanted] == [frame_bytes(run)] * len(bodies)
