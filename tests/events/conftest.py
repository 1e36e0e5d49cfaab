from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.events.bridge import Bridge
from tests.events.sink import Sink


@pytest.fixture(scope="package")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """One system for all tests, which have buses of their own."""
    bridge = Bridge.new(tmp_path_factory.mktemp("bridge"))
    yield bridge
    bridge.stop()


@pytest.fixture
def sink() -> Iterator[Callable[..., Sink]]:
    """Makes HTTP APIs that answer as planned; they end with the test."""
    sinks: list[Sink] = []

    def make(*plan: object) -> Sink:
        sinks.append(Sink(*plan))
        return sinks[-1]

    yield make
    for one in sinks:
        one.end()
