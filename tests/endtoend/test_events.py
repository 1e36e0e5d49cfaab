"""Event bridges as processes of their own, two of them, that are killed under load, and so is the broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from penstock.blocking import Reader
from tests.endtoend.conftest import Service, System
from tests.events.sink import Sink
from tests.patience import PATIENCE_S, poll

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]
EVENTS = 120
BATCH = 10
KINDS = {"rule": "rules", "target": "targets"}


@pytest.fixture
def api() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.end()


def call(address: str, method: str, path: str, value: Any, kind: str = "application/json") -> int:
    connection = HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, json.dumps(value), {"content-type": kind})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0  # it died meanwhile
    finally:
        connection.close()


def delivered(address: str) -> int:
    """Events that an instance has delivered itself."""
    connection = HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/v1/buses/default/rules/r")
        return int(json.load(connection.getresponse())["here"]["delivered"])
    finally:
        connection.close()


def send(addresses: Callable[[], list[str]], first: int) -> set[str]:
    """Sends a batch until one of the bridges has taken it; returns its ids."""
    events = [
        {"specversion": "1.0", "id": f"e{number}", "source": "/s", "type": "t", "data": number}
        for number in range(first, first + BATCH)
    ]

    def is_taken() -> bool:
        """Tries one bridge after the other."""
        asked = ("POST", "/v1/buses/default/events", events, "application/cloudevents-batch+json")
        return any(call(address, *asked) == 202 for address in addresses())

    poll("a bridge that takes events", is_taken)
    return {str(one["id"]) for one in events}


def test_every_event_reaches_its_target_whatever_is_killed(system: Callable[..., System], api: Sink) -> None:
    place = system().start()
    settings = {"namesrv": place.namesrv, "private_targets": "127.0.0.1/32", "session_s": "1"}
    bridges = [Service("events", port="0", **settings) for _ in range(2)]
    try:
        first, second = (one.address for one in bridges)
        assert call(first, "PUT", "/v1/buses/default/targets/t", {"kind": "http", "url": api.url}) == 201
        retry = {"kind": "decay", "first_s": 0.1, "cap_s": 0.1}
        assert call(second, "PUT", "/v1/buses/default/rules/r", {"target": "t", "retry": retry}) in (201, 409)
        assert call(first, "PUT", "/v1/buses/default/rules/r", {"target": "t", "retry": retry}) in (200, 201)
        copies = {"kind": "topic", "topic": "copies"}
        assert call(first, "PUT", "/v1/buses/default/targets/copies", copies) in (200, 201)
        assert call(first, "PUT", "/v1/buses/default/rules/copy", {"target": "copies", "retry": retry}) in (200, 201)
        alive, taken = [first, second], set[str]()
        for number in range(0, EVENTS, BATCH):
            if number == EVENTS // 3:
                bridges[0].kill()
                alive.remove(first)
            if number == EVENTS // 2:
                place.kill()
                place.start()
            if number == EVENTS * 2 // 3:
                bridges.append(Service("events", port="0", **settings))
                alive.append(bridges[-1].address)
            taken |= send(lambda: alive[::-1], number)

        def all_work() -> bool:
            taken.update(send(lambda: alive, len(taken)))
            return all(delivered(one) for one in alive)

        poll("work that all instances do", all_work)
        keys = {f"{one}/r" for one in taken}
        assert len(keys) >= EVENTS
        api.wait(lambda got: keys <= {one.headers["idempotency-key"] for one in got})
        with Reader("default", servers=place.namesrv, until_end=True) as reader:
            sent = sorted(str(one.properties["CE_id"]) for batch in reader for one in batch)
        with Reader("copies", servers=place.namesrv) as reader:
            found = list[str]()
            while len(found) < len(sent):
                found += [str(one.properties["CE_id"]) for one in reader.poll(PATIENCE_S)]
            found += [str(one.properties["CE_id"]) for one in reader.poll(0.0)]
        assert sorted(found) == sent, "a topic gets what is in its bus, each message once"
    finally:
        for one in bridges[1:]:
            one.kill()
        place.end()
