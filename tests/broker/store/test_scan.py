"""The damage catalogue of the log: for each way in which it can be broken, what a scan makes of it."""

from __future__ import annotations

import pytest

from broker.store.frames import blank_frame, crc_of
from broker.store.scan import Scan, Window
from broker.store.segment import Segment, segment_path
from penstock.errors import DataFolderUnusable
from penstock.protocol.message import encode_record
from tests.broker.store.store_rig import pack_frame
from tests.simulation.disk import PAGE, SimDisk

SIZE = 4096


class Log:
    """Segments that are written frame by frame, with whatever watermark a test wants."""

    def __init__(self, count: int = 1) -> None:
        self.disk = SimDisk()
        self.segments = [
            Segment(number * SIZE, self.disk.open(segment_path(number * SIZE), create=True), SIZE)
            for number in range(count)
        ]
        self.end = 0

    def frame(self, watermark: int, size: int = 100) -> tuple[int, int]:
        record = encode_record(b"t", b"x" * size, b"")
        data = pack_frame(record, 0, 0, self.end, 0, 1, watermark)
        return self.put(data)

    def blank(self) -> None:
        room = SIZE - self.end % SIZE
        self.put(blank_frame(room, 1, self.end))
        self.end += room - 24

    def put(self, data: bytes) -> tuple[int, int]:
        start = self.end
        self.segments[start // SIZE].file.pwrite(data, start % SIZE)
        self.end += len(data)
        return start, self.end

    def flip(self, position: int) -> None:
        self.disk.flip(segment_path(position // SIZE * SIZE), position % SIZE)

    def scan(self, position: int = 0) -> tuple[list[int], int, list[tuple[int, int]]]:
        scan = Scan(self.segments, position)
        return [position for position, _ in scan], scan.end, scan.damage


def test_a_frame_that_a_running_broker_finishes_meanwhile_is_no_damage() -> None:
    log = Log()
    places = [log.frame(0)[0], log.end]
    data = pack_frame(encode_record(b"t", b"x" * 100, b""), 0, 0, log.end, 0, 1, 0)
    log.put(data[:50])

    def finish(kind: str) -> None:
        if kind == "pread":
            log.disk.on_call = lambda kind: None
            log.put(data[50:])
            places.append(log.frame(log.end)[0])

    log.disk.on_call = finish
    assert log.scan() == (places, log.end, [])
    assert len(places) == 3


def test_a_sound_log_is_walked_to_its_end() -> None:
    log = Log(2)
    places = [log.frame(0)[0] for _ in range(5)]
    log.blank()
    places += [log.frame(0)[0] for _ in range(3)]
    assert log.scan() == (places, log.end, [])
    assert log.scan(places[3]) == (places[3:], log.end, [])


def test_reserved_zeros_end_the_log() -> None:
    log = Log()
    start, end = log.frame(0)
    log.segments[0].file.reserve(SIZE)
    assert log.scan() == ([start], end, [])


def test_garbage_ends_the_log() -> None:
    log = Log()
    start, end = log.frame(0)
    log.put(b"\xa5" * 300)
    assert log.scan() == ([start], end, [])


@pytest.mark.parametrize("kept", [1, 4, 23, 24, 60, 150, 215])
def test_half_a_frame_ends_the_log(kept: int) -> None:
    log = Log()
    start, end = log.frame(0)
    second = log.frame(end)
    log.segments[0].file.truncate(end + kept)
    assert second[1] - end > kept
    assert log.scan() == ([start], end, [])


def test_an_unsynced_batch_with_its_first_frame_torn_is_a_torn_tail() -> None:
    log = Log()
    first, end = log.frame(0)
    torn, _ = log.frame(end)
    log.frame(end)
    log.frame(end)
    log.flip(torn + 50)
    assert log.scan() == ([first], end, [])


def test_a_bad_frame_before_one_that_knew_it_durable_is_rot_and_passed_over() -> None:
    log = Log()
    first, _ = log.frame(0)
    bad, after = log.frame(0)
    third, _ = log.frame(0)
    fourth, end = log.frame(after)
    for at in (bad, bad + 4, bad + 8, bad + 16, bad + 30, bad + 100, after - 1):
        log.flip(at)
        assert log.scan() == ([first, third, fourth], end, [(bad, third)]), f"byte {at - bad}"
        log.flip(at)
    assert log.scan()[2] == []


def test_what_is_bad_before_a_point_that_is_known_durable_is_rot_without_a_witness() -> None:
    log = Log()
    first, bad = log.frame(0)
    _, after = log.frame(0)
    third, end = log.frame(0)
    log.flip(bad + 40)
    for durable in (after, end):
        scan = Scan(log.segments, 0, durable)
        assert [position for position, _ in scan] == [first, third]
        assert (scan.end, scan.damage) == (end, [(bad, third)])
    log.flip(third + 40)
    scan = Scan(log.segments, 0, after)
    assert ([position for position, _ in scan], scan.end, scan.damage) == ([first], after, [(bad, after)])


def test_the_witness_of_rot_may_stand_in_a_later_segment() -> None:
    log = Log(3)
    first, bad = log.frame(0)
    log.frame(0)
    log.blank()
    second, _ = log.frame(0)
    log.blank()
    third, end = log.frame(2 * SIZE)
    log.flip(bad + 40)
    assert log.scan() == ([first, second, third], end, [(bad, second)])


def test_a_rotten_blank_frame_is_passed_over() -> None:
    log = Log(2)
    first, blank = log.frame(0)
    log.blank()
    second, _ = log.frame(0)
    third, end = log.frame(SIZE + 10)
    log.flip(blank + 5)
    assert log.scan() == ([first, second, third], end, [(blank, SIZE)])


def test_a_missing_segment_in_the_middle_is_damage_and_named_as_missing() -> None:
    log = Log(3)
    first, _ = log.frame(0)
    log.blank()
    log.frame(0)
    log.blank()
    last, end = log.frame(2 * SIZE)
    segments = [log.segments[0], log.segments[2]]
    segments[0].size = 2 * SIZE
    scan = Scan(segments, 0)
    assert ([position for position, _ in scan], scan.end) == ([first, last], end)
    assert scan.damage == scan.missing == [(SIZE, 2 * SIZE)]


def test_a_missing_segment_is_no_torn_tail_though_no_frame_behind_it_knows_of_it() -> None:
    log = Log(3)
    first, _ = log.frame(0)
    log.blank()
    log.frame(0)
    log.blank()
    last, end = log.frame(0)
    segments = [log.segments[0], log.segments[2]]
    segments[0].size = 2 * SIZE
    scan = Scan(segments, 0)
    assert ([position for position, _ in scan], scan.end) == ([first, last], end)
    assert scan.damage == scan.missing == [(SIZE, 2 * SIZE)]


def test_a_segment_without_its_end_is_damage_and_what_is_in_no_file_is_named_as_missing() -> None:
    log = Log(2)
    first, cut = log.frame(0)
    log.frame(0)
    log.blank()
    last, end = log.frame(cut + 1)
    for left, missing in ((cut, [(cut, SIZE)]), (cut + 50, [])):
        log.segments[0].file.truncate(left)
        scan = Scan(log.segments, 0)
        assert ([position for position, _ in scan], scan.end) == ([first, last], end)
        assert (scan.damage, scan.missing) == ([(cut, SIZE)], missing)
        log.segments[0].file.truncate(cut)
        log.segments[0].file.pwrite(b"\xa5" * 50, cut)


def newer_frame(log: Log, position: int) -> bytes:
    """As a later version may write it: another magic, and a checksum that is right."""
    old = pack_frame(encode_record(b"t", b"x" * 100, b""), 0, 0, position, 0, 1, 0)
    rest = b"PEN2" + old[8:]
    return crc_of([rest]).to_bytes(4, "big") + rest


@pytest.mark.parametrize("garbage", [0, 70])
def test_a_frame_of_a_newer_format_refuses_the_log(garbage: int) -> None:
    log = Log()
    log.frame(0)
    log.put(b"\xa5" * garbage)
    position = log.end
    log.put(newer_frame(log, position))
    with pytest.raises(DataFolderUnusable, match=rf"a frame of format 2 at position {position}, .* reads up to 1"):
        log.scan()


def test_what_only_looks_like_a_frame_of_a_newer_format_is_garbage() -> None:
    log = Log()
    first, end = log.frame(0)
    log.put(newer_frame(log, log.end + 1))  # written for another place
    log.put(newer_frame(log, log.end)[:-1] + b"?")
    log.put(b"0000PEN")
    assert log.scan() == ([first], end, [])


def test_two_rotten_places_are_two_reports() -> None:
    log = Log()
    frames = [log.frame(0) for _ in range(6)]
    log.frame(frames[5][1])
    log.flip(frames[1][0] + 30)
    log.flip(frames[3][0] + 30)
    found, _, damage = log.scan()
    assert damage == [frames[1], frames[3]]
    assert frames[2][0] in found


def test_a_frame_that_was_written_to_the_wrong_place_is_damage() -> None:
    log = Log()
    log.frame(0)
    second, third = log.frame(0)
    _, fourth = log.frame(0)
    witness, end = log.frame(fourth)
    data = log.segments[0].file.pread(third - second, second)
    log.segments[0].file.pwrite(data, third)
    found, _, damage = log.scan()
    assert damage == [(third, witness)]
    assert third not in found
    assert log.scan()[1] == end


def test_a_frame_inside_a_payload_is_no_message_of_the_log() -> None:
    log = Log()
    inner = pack_frame(encode_record(b"t", b"inner", b""), 0, 0, 124, 0, 1, 1 << 60)
    record = encode_record(b"t", inner, b"")
    start, end = log.put(pack_frame(record, 0, 0, 0, 0, 1, 0))
    assert log.scan() == ([start], end, [])


def test_a_page_that_cannot_be_read_is_rot_if_it_had_been_synced() -> None:
    log = Log(2)
    first, bad = log.frame(0, PAGE // 2)
    log.blank()
    second, end = log.frame(SIZE)
    log.disk.spoil_page(segment_path(0), bad)
    found, where, damage = log.scan()
    assert (found, where, damage) == ([second], end, [(first, second)])


def test_a_page_at_the_end_that_cannot_be_read_stops_the_start_rather_than_be_cut() -> None:
    log = Log(2)
    log.frame(0)
    log.disk.spoil_page(segment_path(0), 0)
    with pytest.raises(DataFolderUnusable, match="from position 0 on"):
        log.scan()


def test_a_window_reads_ahead_and_never_beyond_the_file() -> None:
    log = Log()
    log.put(bytes(range(200)))
    window = Window(log.segments[0])
    assert window.get(10, 5) == bytes(range(10, 15))
    assert window.get(100, 5) == bytes(range(100, 105))
    assert log.disk.calls["pread"] == 1
    assert window.get(195, 50) == bytes(range(195, 200))
    assert window.get(5000, 10) == b""


def test_a_frame_longer_than_its_segment_is_damage() -> None:
    log = Log(2)
    first, bad = log.frame(0)
    second, _ = log.frame(0)
    log.blank()
    log.frame(0)
    witness, end = log.frame(SIZE + 10)
    head = bytearray(log.segments[0].file.pread(24, bad))
    head[8:12] = (1 << 30).to_bytes(4, "big")
    log.segments[0].file.pwrite(head, bad)
    read = log.disk.calls.get("pread", 0)
    found, where, damage = log.scan()
    assert (found, where, damage) == ([first, SIZE, witness], end, [(second, SIZE)])
    assert Window(log.segments[0]).size <= SIZE
    assert log.disk.calls["pread"] - read < 20
