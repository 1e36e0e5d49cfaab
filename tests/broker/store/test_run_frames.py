"""A run's frames are those of its records, byte for byte."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from broker.store.queue_index import ENTRY20
from broker.store.run_frames import entries_of, frame_bytes, layout_of
from penstock.protocol.message import RECORD_HEAD, encode_record, record_tail
from penstock.protocol.runs import Run, run_of
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
    assert layout.fits(run, 1)
    at, wanted, wanted_entries = position, [], []
    for number, body in enumerate(bodies):
        record = encode_record(topic, body, properties, queue_id=3, flag=flag, born_ms=77)
        wanted.append(pack_frame(record, 3, offset + number, at, 1234, 1, position // 2))
        wanted_entries.append(ENTRY20.pack(at, len(wanted[-1]), tag))
        at += len(wanted[-1])
    assert b"".join(pieces) == b"".join(wanted)
    assert entries == b"".join(wanted_entries)
    assert [len(frame) for frame in wanted] == [frame_bytes(run)] * len(bodies)
    assert entries_of(position, len(wanted[0]), len(bodies), tag) == entries


@given(st.sampled_from([1, 2, 31, 300]), st.integers(0, (1 << 40)), st.binary(max_size=20))
@example(3, 0xFE, b"")
@example(2, 0xFFFF, b"x")
@example(300, 0, b"x")
def test_a_run_whose_ids_count_is_laid_out_as_records_with_ids_of_their_own(
    count: int, first: int, more: bytes
) -> None:
    def properties(number: int) -> bytes:
        return b"a\x01" + more.hex().encode() + b"\x02UNIQ_KEY\x01p-%012x" % (first + number)

    run = Run(record_tail(b"t", properties(0)), 1, 77, [b"%06d" % at for at in range(count)], counts=True)
    run.placed(5000, 0, 3, 20, 1234)
    pieces: list[bytes] = []
    layout_of(run, 1, 0).frames(run, 4000, pieces)
    at, wanted = 5000, []
    for number, body in enumerate(run.bodies):
        record = encode_record(b"t", body, properties(number), queue_id=3, flag=1, born_ms=77)
        wanted.append(pack_frame(record, 3, 20 + number, at, 1234, 1, 4000))
        at += len(wanted[-1])
    assert b"".join(pieces) == b"".join(wanted)


@given(st.integers(0, (1 << 32) - 1), st.binary(min_size=8, max_size=8), st.integers(0, 99), st.integers(0, 1 << 60))
def test_what_is_unusual_in_the_head_of_a_record_stays(
    system_flag: int, born_host: bytes, reconsumed: int, prepared: int
) -> None:
    usual = encode_record(b"t", b"body", b"a\x01b", queue_id=3, flag=1, born_ms=77)
    fields = list(RECORD_HEAD.unpack_from(usual))
    fields[7], fields[9], fields[12], fields[13] = system_flag, born_host, reconsumed, prepared
    record = RECORD_HEAD.pack(*fields) + usual[RECORD_HEAD.size :]
    run = run_of(record).placed(500, 0, 3, 9, 1234)
    pieces: list[bytes] = []
    layout_of(run, 1, 0).frames(run, 400, pieces)
    assert b"".join(pieces) == pack_frame(record, 3, 9, 500, 1234, 1, 400)
