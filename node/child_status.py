"""Figures and health of services that run as processes of their own, read from their status ports.

The page is the OpenMetrics text that ``penstock/service/metrics.py`` writes, so reading it back, exemplars included,
takes no more than splitting lines. A child that does not answer in time has no figures, which
is a reason not to be ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from penstock.protocol.addresses import split_address
from penstock.service.histogram import Exemplar, ExemplifiedCount
from penstock.service.metrics import OPENMETRICS
from penstock.service.readiness import STARTING

READ_S: Final = 2.0
PAGE_BYTES_MAX: Final = 32 << 20
_EXEMPLAR: Final = ' # {trace_id="'


async def fetch(address: str, path: str) -> tuple[int, str]:
    """Status and body of a page. Raises ``OSError`` or ``trio.TooSlowError``."""
    host, port = split_address(address)
    got = bytearray()
    with trio.fail_after(READ_S):
        async with await trio.open_tcp_stream(host, port) as stream:
            asked = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {OPENMETRICS}, */*\r\nConnection: close\r\n\r\n"
            await stream.send_all(asked.encode())
            async for chunk in stream:
                got += chunk
                if len(got) > PAGE_BYTES_MAX:
                    raise OSError(f"the page {path} of {address} is too long")
    head, _, body = got.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        raise OSError(f"{address} does not speak HTTP")
    return int(words[1]), body.decode("utf-8", "replace")


def read_page(page: str) -> dict[str, float]:
    """The figures on a page of metrics, by name with labels."""
    figures: dict[str, float] = {}
    for line in page.splitlines():
        line, _, exemplar = line.partition(_EXEMPLAR)
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#"):
            figures[name] = float(value)
            if exemplar:
                trace_id, _, seconds = exemplar.partition('"} ')
                figures[name] = ExemplifiedCount(float(value), Exemplar(trace_id, float(seconds)))
    return figures


def labelled(figures: Mapping[str, float], who: str) -> dict[str, float]:
    """The same with labels that tell the children apart: the number of a gateway, where it has one, and, for what a
    process takes of the machine, the service."""
    service, _, number = who.partition(" ")
    of_part = f'gateway="{number}"' if number else ""
    of_process = ",".join([*([of_part] if of_part else []), f'service="{service}"'])
    found = {}
    for name, value in figures.items():
        family, _, labels = name.removesuffix("}").partition("{")
        added = of_process if family.startswith("process_") else of_part
        both = ",".join([one for one in (added, labels) if one])
        found[f"{family}{{{both}}}" if both else family] = value
    return found


async def _fetch_all(parts: Mapping[str, str], path: str) -> dict[str, tuple[int, str] | Exception]:
    """The answer of each child, or its error; all are asked at the same time."""
    found: dict[str, tuple[int, str] | Exception] = dict.fromkeys(parts, OSError("not asked"))

    async def read(who: str, address: str) -> None:
        try:
            found[who] = await fetch(address, path)
        except (OSError, trio.TooSlowError) as error:
            found[who] = error

    async with trio.open_nursery() as nursery:
        for who, address in parts.items():
            nursery.start_soon(read, who, address)
    return found


async def read_figures(parts: Mapping[str, str]) -> dict[str, float]:
    """Figures of all children that answer. ``parts``: where each has its pages, by its service and, of one of several
    gateways, its number: ``broker``, ``gateway 1``; empty of one that has none yet."""
    found: dict[str, float] = {}
    for who, answer in (await _fetch_all(_known(parts), "/metrics")).items():
        if not isinstance(answer, Exception):
            found |= labelled(read_page(answer[1]), who)
    return found


async def read_reasons(parts: Mapping[str, str]) -> list[str]:
    """The reasons why children are not ready, of all of them."""
    reasons = [f"{who}: {STARTING}" for who, address in parts.items() if not address]
    for who, answer in (await _fetch_all(_known(parts), "/readyz")).items():
        if isinstance(answer, Exception):
            reasons.append(f"{who}: does not answer: {str(answer) or f'nothing within {READ_S:g} s'}")
        elif answer[0] != 200:
            reasons += [f"{who}: {line}" for line in answer[1].splitlines()]
    return reasons


def _known(parts: Mapping[str, str]) -> dict[str, str]:
    return {who: address for who, address in parts.items() if address}
