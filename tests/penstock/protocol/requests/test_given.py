"""Requests for the same process, and what goes over a wire for them."""

from __future__ import annotations

from penstock.protocol.requests.given import GivenPull, GivenRuns
from penstock.protocol.requests.messages import AppendRuns, Pull
from penstock.protocol.runs import Run, checksum_of, decode_runs
from penstock.protocol.wire import encode_request


def test_given_runs_go_over_a_wire_as_encoded_ones() -> None:
    given = GivenRuns(3, [Run(b"t1", 1, 1000, [b"a", b"b"]), Run(b"t2", 0, 1001, [b"xyz"])])
    sent = given.for_wire()
    assert isinstance(sent, AppendRuns)
    body = bytes(sent.body)
    assert (sent.count, sent.checksum) == (3, checksum_of(body))
    assert [(run.tail, list(run.bodies)) for run in decode_runs(body)] == [(b"t1", [b"a", b"b"]), (b"t2", [b"xyz"])]
    assert encode_request(7, given) == encode_request(7, sent)
    assert sent.for_wire() is sent


def test_a_pull_of_runs_goes_over_a_wire_as_one_of_frames() -> None:
    given = GivenPull("t:0", 7, bytes_max=100, count_max=10, wait_s=5.0)
    assert given.for_wire() == Pull("t:0", 7, bytes_max=100, count_max=10, wait_s=5.0)
    assert encode_request(7, given) == encode_request(7, given.for_wire())
