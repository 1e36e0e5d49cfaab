"""What is worked out once for messages with the same tail holds for each of their runs."""

from __future__ import annotations

from broker.store.destinations import Destination
from broker.store.level import Level
from penstock.protocol.message import record_tail
from penstock.protocol.runs import Run

TAIL = record_tail(b"t", b"")


def run(body: bytes, flag: int = 0, queue_id: int = 0) -> Run:
    return Run(TAIL, flag, 1, [body]).placed(0, 0, queue_id, 0, 0)


def test_the_layout_of_the_last_run_is_used_as_long_as_it_fits() -> None:
    destination = Destination("t", b"", Level.DISK)
    first = destination.layout_of(run(b"abc"), 1)
    assert destination.layout_of(run(b"xyz"), 1) is first
    others = [run(b"longer"), run(b"abc", flag=1), run(b"abc", queue_id=2)]
    for other in others:
        layout = destination.layout_of(other, 1)
        assert layout.fits(other, 1)
        assert not first.fits(other, 1)
    assert destination.layout_of(run(b"abc"), 1).fits(run(b"abc"), 1)


def test_a_new_destination_leads_nowhere_yet() -> None:
    destination = Destination("t", b"properties", Level.CACHE)
    assert (destination.topic, destination.properties, destination.level) == ("t", b"properties", Level.CACHE)
    assert (destination.queue, destination.light, destination.keys) == (None, [], ())
    assert destination.light_as_of == -1, "no number of changes that there has ever been"
