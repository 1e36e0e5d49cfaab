"""Producers of small clusters, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.client.producer import Producer
from penstock.errors import (
    PenstockError,
    Unavailable,
)
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.request import Request
from tests.penstock.small_cluster import SmallBroker, SmallCluster


def producer(cluster: SmallCluster, **given: Any) -> Producer:
    return Producer(servers=SmallCluster.SERVERS, links=cluster, **given)


def appends(broker: SmallBroker) -> list[AppendRuns]:
    return [request for request in broker.asked if isinstance(request, AppendRuns)]


def unreachable_when_written(*, unknown: bool) -> Callable[[Request], PenstockError | None]:
    def refuse(request: Request) -> PenstockError | None:
        if not isinstance(request, AppendRuns):
            return None
        error = Unavailable("lost")
        error.unknown = unknown
        return error

    return refuse
