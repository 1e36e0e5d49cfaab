"""Runs of messages: they come back as they were, any bytes give runs or an error, and never more than a bound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.protocol.compression import COMPRESSED, LZ4
from penstock.protocol.message import RECORD_HEAD, encode_record, record_tail
from penstock.protocol.runs import (
    RECORDS_BYTES_MAX,
    RUN_HEAD,
    Run,
    checksum_of,
    decode_runs,
    encode_runs,
    flagged,
    record_of,
    run_of,
)

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "runs.md").read_text()
TAIL = record_tail(b"t", b"")

RUN = st.integers(0, 40).flatmap(
    lambda size: st.builds(
        Run,
        st.binary(max_size=20),
        st.integers(0, 15),
        st.integers(0, 1 << 60),
        st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=5),
        st.booleans(),
    )
)


def parts(runs: list[Run]) -> list[tuple[bytes, bool, int, int, list[bytes]]]:
    """What makes runs the same."""
    return [(run.tail, run.counts, run.flag, run.born_ms, list(run.bodies)) for run in runs]


@given(st.lists(RUN, max_size=6))
def test_runs_come_back_as_they_were(runs: list[Run]) -> None:
    assert parts(decode_runs(encode_runs(runs))) == parts(runs)


@given(st.binary(max_size=200))
def test_any_bytes_are_runs_or_an_error_and_nothing_else(data: bytes) -> None:
    try:
        runs = decode_runs(data)
    except InvalidRequest:
        return
    assert encode_runs(runs) == data


@given(st.lists(RUN, min_size=1, max_size=4), st.data())
def test_a_batch_that_was_cut_is_never_taken_for_more_than_whole_runs(runs: list[Run], data: st.DataObject) -> None:
    stream = encode_runs(runs)
    whole = {len(encode_runs(runs[:count])) for count in range(len(runs) + 1)}
    at = data.draw(st.integers(0, len(stream)))
    if at in whole:
        assert parts(decode_runs(stream[:at])) == parts(runs[: sorted(whole).index(at)])
    else:
        with pytest.raises(InvalidRequest, match="nothing was stored"):
            decode_runs(stream[:at])


def test_a_few_bytes_cannot_stand_for_more_records_than_the_bound() -> None:
    run = Run(TAIL, 1, 0, [b""])
    most = RECORDS_BYTES_MAX // run.size
    head = RUN_HEAD.pack(len(TAIL), 1, 0, most, 0) + TAIL
    assert len(decode_runs(head)[0].bodies) == most
    with pytest.raises(InvalidRequest):
        decode_runs(head + encode_runs([run]))


def test_the_worked_example_and_the_damage_of_the_page_are_right() -> None:
    [block] = re.findall(r"^```hex batch\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
    batch = bytes.fromhex("".join(re.sub(r"#.*", "", line) for line in block.splitlines()))
    assert batch == encode_runs([Run(TAIL, 1, 1000, [b"a", b"b"]), Run(TAIL, 0, 1001, [b"xyz"])])
    assert f"`{checksum_of(batch):08x}`" in PAGE
    [block] = re.findall(r"^```hex batch with ids\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
    batch = bytes.fromhex("".join(re.sub(r"#.*", "", line) for line in block.splitlines()))
    with_id = record_tail(b"t", b"UNIQ_KEY\x01p-0000000000ff")
    run = Run(with_id, 1, 1000, [b"a", b"b"], counts=True)
    assert batch == encode_runs([run])
    assert [run.tail_of(at)[-12:] for at in range(2)] == [b"0000000000ff", b"000000000100"]
    [block] = re.findall(r"^```hex batch with a flag\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
    batch = bytes.fromhex("".join(re.sub(r"#.*", "", line) for line in block.splitlines()))
    run = Run(TAIL, 1, 1000, [b"a"])
    run.unusual = flagged(COMPRESSED | LZ4)
    assert batch == encode_runs([run])
    [again] = decode_runs(batch)
    assert (again.unusual, again.bodies, again.tail, again.counts) == (run.unusual, [b"a"], TAIL, False)
    assert f"at most {RECORDS_BYTES_MAX:,} bytes" in PAGE
    cases = re.findall(r"^\| `([0-9a-f ]+)` \|", PAGE, re.MULTILINE)
    assert len(cases) == 4
    for case in cases:
        with pytest.raises(InvalidRequest):
            decode_runs(bytes.fromhex(case))


def test_a_part_of_a_stored_run_is_where_it_was_and_keeps_nothing_of_the_others() -> None:
    run = Run(TAIL, 1, 77, [b"a", b"b", b"c", b"d"]).placed(1000, 150, 3, 20, 1234)
    part = run.part(1, 3)
    assert (part.position, part.step, part.bodies, part.offset) == (1150, 150, [b"b", b"c"], 21)
    assert (part.tail, part.flag, part.queue_id, part.stored_ms) == (TAIL, 1, 3, 1234)


@given(
    st.binary(max_size=40),
    st.lists(st.integers(0, (1 << 31) - 1), min_size=5, max_size=5),
    st.binary(min_size=8, max_size=8),
)
def test_a_record_is_a_run_of_one_and_that_is_the_record_again(body: bytes, numbers: list[int], host: bytes) -> None:
    usual = encode_record(b"t", body, b"a\x01b", queue_id=numbers[0], flag=numbers[1], born_ms=77)
    fields = list(RECORD_HEAD.unpack_from(usual))
    fields[7], fields[9], fields[12], fields[13] = numbers[2], host, numbers[3], numbers[4]
    record = RECORD_HEAD.pack(*fields) + usual[RECORD_HEAD.size :]
    assert (record_of(run_of(record)), record_of(run_of(usual))) == (record, usual)
