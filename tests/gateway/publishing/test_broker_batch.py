"""What is on its way to a broker, and what of it is left out or put off."""

from __future__ import annotations

from rig import Gateway

from gateway.brokers import Broker, Nowhere
from gateway.publishing.broker_batch import Batch, BrokerBatch, NameRoute, Publisher, TopicLanes
from penstock.protocol.message import record_tail
from penstock.protocol.runs import Run


class Whose(Publisher):
    """A device that notes what it is told."""

    def __init__(self, *, is_over: bool = False) -> None:
        self.is_over = is_over
        self.unstored = self.kept = self.sequence = 0
        self.holds = 0

    def answered(self, size: int) -> None:
        self.unstored -= size

    def hold_reading(self) -> None:
        self.holds += 1


def lane() -> BrokerBatch:
    return BrokerBatch(Broker("", Nowhere(), Gateway().brokers))


def run(*bodies: bytes, qos: int = 1) -> Run:
    return Run(record_tail(b"t", b""), qos, 1000, list(bodies))


def batch(lane: BrokerBatch, *parts: tuple[Publisher | None, Run]) -> Batch:
    """One with these runs; the marks of those with a QoS are their bodies, and the first mark of a run its number."""
    lane.runs, lane.devices, lane.marks = [part[1] for part in parts], [part[0] for part in parts], []
    lane.firsts = [int(one.bodies[0]) for _, one in parts]
    for _, one in parts:
        lane.marks += one.bodies if one.flag else [b""] * len(one.bodies)
    return Batch(lane, 7, 0.0)


def left(batch: Batch) -> list[tuple[Publisher | None, list[bytes]]]:
    assert batch.firsts == [int(one.bodies[0]) for one in batch.runs]
    return [(device, one.bodies) for device, one in zip(batch.devices, batch.runs, strict=True)]


def test_what_is_of_connections_that_are_over_is_left_out() -> None:
    here, gone = Whose(), Whose(is_over=True)
    made = batch(lane(), (gone, run(b"1", b"2")), (here, run(b"3")), (None, run(b"4", qos=0)), (gone, run(b"5")))
    assert made.drop_absent() == 3
    assert left(made) == [(here, [b"3"]), (None, [b"4"])]
    assert made.marks == [b"3", b""]
    assert made.drop_absent() == 0


def test_who_has_something_kept_queues_up_behind_it_and_nobody_else_does() -> None:
    waits, other = Whose(), Whose()
    waits.unstored = run(b"1").size + run(b"3", b"4").size
    of = lane()
    of.keep(waits, run(b"1"), [b"1"], 6, 1)
    parts = [(other, run(b"2")), (waits, run(b"3", b"4")), (waits, run(b"5", qos=0)), (None, run(b"6", qos=0))]
    made = batch(of, *parts)
    made.queue_up()
    assert left(made) == [(other, [b"2"]), (waits, [b"5"]), (None, [b"6"])]
    assert made.marks == [b"2", b"", b""]
    assert [(kept.device, kept.run.bodies, kept.mark, kept.number, kept.first) for kept in of.kept] == [
        (waits, [b"1"], b"1", 6, 1),
        (waits, [b"3"], b"3", 7, 3),
        (waits, [b"4"], b"4", 7, 4),
    ]
    assert (waits.holds, other.holds) == (3, 0)
    assert (waits.kept, other.kept) == (3, 0)
    assert waits.unstored == 0, "what is kept counts as unstored no more"


def test_a_key_has_one_lane_of_its_topics() -> None:
    topic = TopicLanes("t")
    routes = [NameRoute(f"t/{number}", "c", str(number), topic) for number in range(50)]
    assert [route.lane() for route in routes] == [None] * 50
    topic.lanes = [lane()]
    assert {route.lane() for route in routes} == set(topic.lanes)
    topic.lanes = [lane(), lane(), lane()]
    chosen = [route.lane() for route in routes]
    assert set(chosen) == set(topic.lanes)
    assert [route.lane() for route in routes] == chosen
