"""Figures and health of gateways that run as processes of their own, read from their status ports.

The page is the text format of Prometheus that ``penstock/metrics.py`` writes, so reading it back takes no more than
splitting lines. A gateway that does not answer in time has no figures, which is a reason not to be ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from penstock.addresses import split_address

READ_S: Final = 2.0
PAGE_BYTES_MAX: Final = 1 << 20


async def fetch(address: str, path: str) -> tuple[int, str]:
    """Status and body of a page. Raises ``OSError`` or ``trio.TooSlowError``."""
    host, port = split_address(address)
    got = b""
    with trio.fail_after(READ_S):
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
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
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#"):
            figures[name] = float(value)
    return figures


def labelled(figures: dict[str, float], gateway: int) -> dict[str, float]:
    """The same with the number of the gateway as a label."""
    found = {}
    for name, value in figures.items():
        family, brace, labels = name.partition("{")
        found[f'{family}{{gateway="{gateway}"{"," + labels if brace else "}"}'] = value
    return found


async def read_figures(addresses: Sequence[str]) -> dict[str, float]:
    """Figures of all gateways that answer: plain where there is one, with a label where there are several."""
    found: dict[str, float] = {}
    for number, address in enumerate(addresses):
        try:
            _, page = await fetch(address, "/metrics")
        except (OSError, trio.TooSlowError):
            continue
        figures = read_page(page)
        found |= labelled(figures, number) if len(addresses) > 1 else figures
    return found


async def read_reasons(addresses: Sequence[str]) -> list[str]:
    """Why gateways are not ready, of all of them."""
    reasons = []
    for number, address in enumerate(addresses):
        who = f"gateway {number}" if len(addresses) > 1 else "gateway"
        try:
            status, page = await fetch(address, "/readyz")
        except (OSError, trio.TooSlowError) as error:
            reasons.append(f"{who}: does not answer: {error}")
            continue
        if status != 200:
            reasons += [f"{who}: {line}" for line in page.splitlines()]
    return reasons
