"""Pulled batches: what goes out for an even one is what goes out message by message, and for runs what goes out for
their frames."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from making import BROKER, arrival, batch_of, pulled

from gateway.messages.batch import EVEN_FROM, Batch, FrameStretch, RunStretch, given_batch, pulled_batch
from gateway.messages.envelope import Arrival, Origin, arrivals, record_properties
from gateway.messages.outgoing import LIGHT_BYTES, PACKET_ID_MAX, PacketRun, Variant, blob
from gateway.sessions.session import Session
from penstock.errors import InvalidMessage
from penstock.protocol.compression import COMPRESSED, ZSTD, compress
from penstock.protocol.message import ENTRY, FLAG_RETAIN, encode_record, record_tail
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.given import GivenPull, GivenPulled, GivenRuns
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import Run, flagged
from tests.broker.broker_rig import Rig

FIELDS = (
    "offset",
    "position",
    "qos",
    "retain",
    "payload",
    "heading",
    "stored_ms",
    "queue_id",
    "queue_offset",
    "expires_ms",
    "origin",
)


def fields(one: Arrival) -> list[object]:
    return [getattr(one, name) for name in FIELDS]


@given(
    count=st.integers(1, 200),
    size=st.sampled_from([0, 1, 64, 700, 5000]),
    first=st.sampled_from([0, 7, PACKET_ID_MAX - 3, 3 * PACKET_ID_MAX - 100]),
    qos=st.integers(0, 2),
    granted=st.integers(0, 2),
    is_v5=st.booleans(),
    retain=st.booleans(),
    as_published=st.booleans(),
    identifier=st.sampled_from([0, 5, 200]),
    odd=st.sampled_from(["", "size", "name", "qos", "retain", "sender", "expiry", "application", "gap"]),
    where=st.integers(0, 199),
)
@example(30, 64, 7, 1, 1, False, False, False, 0, "", 0)
@example(30, 64, PACKET_ID_MAX - 3, 2, 2, True, True, True, 5, "", 0)
@example(10, 64, PACKET_ID_MAX - 3, 2, 2, True, True, True, 5, "", 0)
def test_a_batch_goes_out_as_its_messages_would_one_by_one(
    count: int,
    size: int,
    first: int,
    qos: int,
    granted: int,
    is_v5: bool,
    retain: bool,
    as_published: bool,
    identifier: int,
    odd: str,
    where: int,
) -> None:
    messages = []
    for at in range(count):
        is_odd = at == where % count
        payload = bytes([at % 256]) * (size + 1 if is_odd and odd == "size" else size)
        name = "other" if is_odd and odd == "name" else "a/b"
        a_qos = (qos + 1) % 3 if is_odd and odd == "qos" else qos
        is_kept = retain != (is_odd and odd == "retain")
        sender = "somebody" if is_odd and odd == "sender" else "me"
        expiry_s = 5 if is_odd and odd == "expiry" else -1
        application = b"\x01\x01" if is_odd and odd == "application" else b""
        offset = first + at + (1 if odd == "gap" and at >= where % count else 0)
        messages.append(
            arrival(
                offset,
                name=name,
                payload=payload,
                qos=a_qos,
                retain=is_kept,
                sender=sender,
                expiry_s=expiry_s,
                application=application,
            )
        )
    batch = pulled(*messages)
    assert (batch.even is not None) == (count >= EVEN_FROM and (not odd or (odd == "gap" and where % count == 0)))
    run = PacketRun(batch, is_v5, granted, as_published, identifier)
    assert run.expiring == (odd == "expiry")
    assert run.senders == {one.sender for one in messages}
    if run.expiring:
        return
    identifiers = (identifier,) if identifier else ()
    packets, held = [], []
    for one in messages:
        variant = Variant(is_v5, min(one.qos, granted), as_published and one.retain, identifiers)
        packet_id = one.offset % PACKET_ID_MAX + 1
        packets.append(blob(one, variant, 0).packet(packet_id))
        if variant.qos:
            held.append((packet_id, packets[-1]))
    assert run.data == b"".join(packets)
    in_flight = [(packet_id, one.blob(packet_id)) for packet_id, one in run.in_flight.items()]
    light = [(packet_id, one.packet(packet_id)) for packet_id, one in in_flight if one.weight <= LIGHT_BYTES]
    assert light == [(packet_id, packet) for packet_id, packet in held if len(packet) - 2 <= LIGHT_BYTES]
    assert [packet_id for packet_id, _ in in_flight] == [packet_id for packet_id, _ in held]
    assert [made.packet(packet_id) for packet_id, made in run.blobs] == packets
    assert (run.count, run.qos) == (count, max(min(one.qos, granted) for one in messages))
    assert max(map(len, packets)) <= run.largest <= max(map(len, packets)) + 2
    assert run.weight == sum(one.weight for one in run.in_flight.values())
    assert (batch.first, batch.last) == (messages[0].position, messages[-1].position)
    for seen, one in zip(batch.arrivals, messages, strict=True):
        assert fields(seen)[:6] == fields(one)[:6]


def test_messages_of_an_even_batch_are_those_that_are_read_one_by_one() -> None:
    properties = record_properties("a/b", "", "me")
    records = [encode_record(b"a", bytes([at]), properties, flag=1, queue_id=at) for at in range(9)]
    body = batch_of(*records)
    batch = pulled_batch(9, body)
    assert batch.even is not None
    assert [fields(one) for one in batch.arrivals] == [fields(one) for one in arrivals(9, body)]


@given(st.integers(EVEN_FROM, 2 * EVEN_FROM), st.data())
def test_whatever_a_batch_says_its_messages_are_those_that_are_read_one_by_one(count: int, data: st.DataObject) -> None:
    record = encode_record(b"a", b"payload", record_properties("a/b", "", "me"), flag=1)
    body = bytearray(batch_of(*[record] * count))
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=3)):
        if at >= count * ENTRY.size or at % ENTRY.size >= 8:  # that offsets rise is the broker's word
            body[at] ^= data.draw(st.integers(1, 255))
    try:
        expected = arrivals(count, bytes(body))
    except InvalidMessage:
        with pytest.raises(InvalidMessage):
            pulled_batch(count, bytes(body))
        return
    assert [fields(one)[:5] for one in pulled_batch(count, bytes(body)).arrivals] == [
        fields(one)[:5] for one in expected
    ]


@given(st.integers(0, EVEN_FROM + 1), st.integers(0, 1500))
def test_a_batch_cut_short_anywhere_is_refused_and_nothing_else_happens(count: int, length: int) -> None:
    record = encode_record(b"a", b"payload", record_properties("a/b", "", "me"), flag=1)
    body = batch_of(*[record] * count)
    if length >= len(body):
        assert len(pulled_batch(count, body)) == count
    else:
        with pytest.raises(InvalidMessage):
            pulled_batch(count, body[:length])


def frames_of(first: int, count: int) -> Batch:
    return pulled(*[arrival(first + at, payload=bytes(64)) for at in range(count)])


def run_of(first: int, count: int) -> Batch:
    tail = record_tail(b"a", record_properties("a/b", "", ""))
    bodies = [bytes([at]) * 64 for at in range(count)]
    return given_batch(first, [Run(tail, 1, 0, bodies).placed(1000 + 200 * first, 200, 0, first, 0)])


@pytest.mark.parametrize("batch_of_some", [frames_of, run_of])
def test_what_a_session_holds_of_an_even_batch_is_bounded_by_what_it_may_hold(
    batch_of_some: Callable[[int, int], Batch],
) -> None:
    """A client that leaves one message of every batch unacknowledged keeps what stands together with it."""
    session = Session("c", window=1000, window_bytes=300_000)
    first = 0
    while True:
        run = PacketRun(batch_of_some(first, 60), False, 1, False, 0)
        if session.send_run(run) is None:
            break
        session.acknowledged_all(range(first + 2, first + 61))
        first += 60
    assert len(session.in_flight) == first // 60 > 1
    assert session.in_flight_bytes == sum(one.weight for one in session.in_flight.values())
    together = len(run._several[0].ids)
    assert together * 64 * len(session.in_flight) <= session.in_flight_bytes <= 300_000


def test_a_message_of_a_run_weighs_what_its_body_takes_in_memory() -> None:
    for size in range(100):
        even = given_batch(0, [Run(b"\0\1a\0\0", 1, 0, [bytes(size)] * 9).placed(0, 200, 0, 0, 0)]).even
        assert even is not None
        allocated = -(-sys.getsizeof(bytes(size)) // 16) * 16
        assert allocated + 8 <= even.weight <= allocated + 32


# ------------------------------------------------------------ runs and their frames

NAMES = st.tuples(st.sampled_from(["a", "a/b"]), st.sampled_from(["", "me"]), st.sampled_from([-1, -1, 5]))
PUBLISHED = st.lists(
    st.builds(
        lambda name, flag, size, count: Run(
            record_tail(b"a", record_properties(name[0], name[1], name[1], name[2])),
            flag,
            0,
            [bytes([at]) * size for at in range(count)],
        ),
        NAMES,
        st.sampled_from([0, 1, 2, 3, 1 | FLAG_RETAIN]),
        st.sampled_from([0, 1, 64, 3000]),
        st.integers(1, 2 * EVEN_FROM),
    ),
    min_size=1,
    max_size=3,
)
KINDS = ((False, 1, False, 0), (True, 2, True, 5), (False, 0, True, 0))


@given(PUBLISHED, st.integers(0, 3), st.data())
def test_a_batch_of_runs_is_that_of_their_frames(runs: list[Run], before: int, data: st.DataObject) -> None:
    rig = Rig(segment_bytes=1 << 20)
    rig.ask(CreateTopic("a", 1, "disk"))
    for _ in range(before):  # so that the offsets of the two queues differ
        rig.ask(GivenRuns(1, [Run(record_tail(b"a", b""), 1, 0, [b"earlier"])]))
    [opened] = rig.ask(OpenFilters("gw", ("a/#",))).opened
    rig.ask(GivenRuns(sum(len(run.bodies) for run in runs), runs))
    origin = Origin(BROKER, "a/#", opened.queue)
    by_runs = rig.ask(GivenPull(opened.queue, opened.offset, 1 << 20, 1000, 0.0))
    by_frames = rig.ask(Pull(opened.queue, opened.offset, 1 << 20))
    assert isinstance(by_runs, GivenPulled)
    assert isinstance(by_frames, Pulled)
    first = given_batch(by_runs.next - by_runs.count, by_runs.runs, origin)
    second = pulled_batch(by_frames.count, by_frames.body, origin)
    assert (first.count, first.first, first.last) == (second.count, second.first, second.last)
    if len(runs) == 1:
        assert (first.even is None) == (second.even is None)
    kinds = [(PacketRun(first, *kind), PacketRun(second, *kind)) for kind in KINDS]
    for one, other in kinds:
        assert one.data == other.data
        for name in ("qos", "senders", "largest", "expiring", "count"):
            assert getattr(one, name) == getattr(other, name)
        sent = [
            [(packet_id, held.blob(packet_id).packet(packet_id)) for packet_id, held in run.in_flight.items()]
            for run in (one, other)
        ]
        assert sent[0] == sent[1]
    if first.even is not None:
        assert isinstance(first.even, RunStretch)
        assert isinstance(second.even, FrameStretch)
        start = data.draw(st.integers(0, first.count - 1))
        stop = data.draw(st.integers(start + 1, first.count))
        parts = [even.part(start, stop) for even in (first.even, second.even)]
        assert parts[0].behind(b"ab") == parts[1].behind(b"ab")
        assert parts[0].bodies() == parts[1].bodies()
        assert [(part.first, part.count, part.body_bytes) for part in parts] == [
            (by_runs.next - by_runs.count + start, stop - start, len(runs[0].bodies[0]))
        ] * 2
        for number in range(stop - start):
            assert fields(parts[0].arrival(number)) == fields(parts[1].arrival(number))
            assert parts[0].position(number) == parts[1].position(number)
    assert [fields(one) for one in first.arrivals] == [fields(one) for one in second.arrivals]


@pytest.mark.parametrize("count", [1, 3 * EVEN_FROM])
def test_devices_are_sent_what_a_producer_compressed_as_it_was(count: int) -> None:
    rig = Rig(segment_bytes=1 << 20)
    rig.ask(CreateTopic("a", 1, "disk"))
    [opened] = rig.ask(OpenFilters("gw", ("a",))).opened
    flag = COMPRESSED | ZSTD
    good, bad = (
        Run(record_tail(b"a", b""), 1, 0, [body] * count) for body in (compress(b"long " * 2000, flag), b"bad")
    )
    for run in (good, bad):
        run.unusual = flagged(flag)
        rig.ask(GivenRuns(count, [run]))
    rig.sync()
    for start, wanted in ((0, b"long " * 2000), (count, b"bad")):  # what cannot be undone goes out as it is
        offset = opened.offset + start
        given = rig.ask(GivenPull(opened.queue, offset, 1 << 20, count, 0.0))
        pulled = rig.ask(Pull(opened.queue, offset, 1 << 20, count))
        for batch in (given_batch(offset, given.runs), pulled_batch(pulled.count, pulled.body)):
            assert batch.even is None
            assert [one.payload for one in batch.arrivals] == [wanted] * count
