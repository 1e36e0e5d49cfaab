"""Producers of linked clusters, and messages in them, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.client.producer import Producer
from penstock.errors import (
    PenstockError,
    Unavailable,
)
from penstock.protocol.message import Message, decode_message
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.request import Request
from penstock.protocol.runs import decode_runs, record_of
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster


def producer(cluster: LinkedCluster, **given: Any) -> Producer:
    return Producer(servers=LinkedCluster.SERVERS, links=cluster, **given)


def put(broker: LinkedBroker, *bodies: bytes, queue: int = 0, tag: str = "") -> None:
    """Stores messages of the topic ``orders``."""
    broker.put(*[Message("orders", body, tag=tag) for body in bodies], queue=queue)


def appends(broker: LinkedBroker) -> list[AppendRuns]:
    return [request for request in broker.asked if isinstance(request, AppendRuns)]


def unreachable_when_written(*, unknown: bool) -> Callable[[Request], PenstockError | None]:
    def refuse(request: Request) -> PenstockError | None:
        if not isinstance(request, AppendRuns):
            return None
        error = Unavailable("lost")
        error.unknown = unknown
        return error

    return refuse


def appended(broker: LinkedBroker) -> Sequence[Message]:
    """The messages of all appends, in order, those that were refused too."""
    runs = [run for request in appends(broker) for run in decode_runs(bytes(request.body))]
    records = [record_of(run.of([body], at)) for run in runs for at, body in enumerate(run.bodies)]
    return [decode_message(record) for record in records]
