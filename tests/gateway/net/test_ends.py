"""Whoever stands at the end of a line is called, also one that is not compiled."""

from __future__ import annotations

from functools import partial

import pytest

from gateway.connections.device import Device
from gateway.net.ends import Occupant, Output
from gateway.net.shard import Line
from gateway.publishing.broker_batch import Publisher
from penstock.protocol.requests.topics import DescribeTopic
from tests.gateway.rig import Gateway


class Settled(Publisher):
    """A publisher that notes what became of its records."""

    def __init__(self) -> None:
        self.unstored = self.kept = self.sequence = 0
        self.is_v5 = self.is_over = False
        self.told: list[object] = []
        self.holds = 0

    def hold_reading(self) -> None:
        self.holds += 1

    def release_reading(self) -> None:
        self.holds -= 1

    def ask_to_make(self, topic: str) -> DescribeTopic:
        return DescribeTopic(topic, create=True)

    def stored(self, first: int, marks: list[bytes], size: int, exact: bool) -> None:
        self.unstored -= size
        self.told.append((first, marks, exact))


def test_a_device_is_at_one_end_of_a_line_and_the_line_is_the_other() -> None:
    assert issubclass(Device, Occupant)
    assert issubclass(Line, Output)


@pytest.mark.parametrize("end", [Occupant(), Output()])
def test_an_end_does_nothing_by_itself(end: Occupant | Output) -> None:
    if isinstance(end, Occupant):
        calls = [partial(end.receive, b"x"), end.writable, end.broken]
    else:
        calls = [partial(end.write, b"x"), partial(end.set_reading, True), end.close]
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()


def test_a_publisher_that_is_no_device_hears_of_its_records() -> None:
    gateway, publisher = Gateway(), Settled()
    route = gateway.upstream.route("a/b", "client")
    gateway.upstream.publish(publisher, route, b"first", 1, b"\x40\x02\x00\x01")
    gateway.upstream.publish(publisher, route, b"second", 1, b"\x40\x02\x00\x02")
    assert publisher.unstored > 0
    gateway.round()
    gateway.upstream.publish(publisher, route, b"third", 1, b"\x40\x02\x00\x03")
    gateway.round()
    assert publisher.told == [
        (0, [b"\x40\x02\x00\x01", b"\x40\x02\x00\x02"], False),
        (2, [b"\x40\x02\x00\x03"], False),
    ]
    assert (publisher.unstored, publisher.holds) == (0, 0)
