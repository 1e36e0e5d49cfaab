"""What every server answers: who is there, and its figures. Codes 1 to 9 and 90 to 99."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.requests.request import Reply, Request


@dataclass(frozen=True, slots=True)
class ServerInfo(Reply):
    role: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Ping(Request):
    """Is somebody there, and who?"""

    code: ClassVar[int] = 1
    reply: ClassVar[type[Reply]] = ServerInfo


@dataclass(frozen=True, slots=True)
class BrokerFigures(Reply):
    """Counters since start and gauges, by metric name (docs/guide/operator.md lists them)."""

    names: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ReadFigures(Request):
    code: ClassVar[int] = 90
    reply: ClassVar[type[Reply]] = BrokerFigures
