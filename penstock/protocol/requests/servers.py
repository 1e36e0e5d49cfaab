"""What every server answers: who is there, and its figures. Codes 1 to 9 and 90 to 99."""

from __future__ import annotations

from typing import ClassVar

from penstock.protocol.requests.request import Reply, Request, value


@value
class ServerInfo(Reply):
    """``now_ms``: what time it is there, in milliseconds since 1970; 0: the server does not say."""

    role: str
    name: str
    version: str
    now_ms: int = 0


@value
class Ping(Request):
    """Is somebody there, and who?"""

    code: ClassVar[int] = 1
    reply: ClassVar[type[Reply]] = ServerInfo


@value
class BrokerFigures(Reply):
    """Counters since start and gauges, by metric name (docs/guide/metrics.md lists them)."""

    names: tuple[str, ...]
    values: tuple[float, ...]


@value
class ReadFigures(Request):
    code: ClassVar[int] = 90
    reply: ClassVar[type[Reply]] = BrokerFigures
    is_repeatable: ClassVar[bool] = True
