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


async def _fetch_all(addresses: Sequence[str], path: str) -> list[tuple[int, str] | Exception]:
    """What each gateway answers, or why it does not; all are asked at the same time."""
    found: list[tuple[int, str] | Exception] = [OSError("not asked")] * len(addresses)

    async def read(number: int) -> None:
        try:
            found[number] = await fetch(addresses[number], path)
        except (OSError, trio.TooSlowError) as error:
            found[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(addresses)):
            nursery.start_soon(read, number)
    return found


async def read_figures(addresses: Sequence[str]) -> dict[str, float]:
    """Figures of all gateways that answer: plain where there is one, with a label where there are several."""
    found: dict[str, float] = {}
    for number, answer in enumerate(await _fetch_all(addresses, "/metrics")):
        if not isinstance(answer, Exception):
            figures = read_page(answer[1])
            found |= labelled(figures, number) if len(addresses) > 1 else figures
    return found


async def read_reasons(addresses: Sequence[str]) -> list[str]:
    """Why gateways are not ready, of all of them."""
    reasons = []
    for number, answer in enumerate(await _fetch_all(addresses, "/readyz")):
        who = f"gateway {number}" if len(addresses) > 1 else "gateway"
        if isinstance(answer, Exception):
            reasons.append(f"{who}: does not answer: {str(answer) or f'nothing within {READ_S:g} s'}")
        elif answer[0] != 200:
            reasons += [f"{who}: {line}" for line in answer[1].splitlines()]
    return reasons
