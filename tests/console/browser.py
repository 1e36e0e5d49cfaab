"""A console in this process, and a browser that asks it without sockets; its brokers are real ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape

import httpx
from markupsafe import Markup

from console.application import application
from console.cluster import open_cluster
from console.logins import Attempts, Logins, Users
from console.visits import Console
from console.watch import Watch
from penstock.service.audit import Audit
from penstock.world import RealClock
from tests.patience import PATIENCE_S


class Browser:
    """Keeps its cookie; sends with each form the token that its last page had."""

    def __init__(self, client: httpx.AsyncClient, console: Console) -> None:
        self.client = client
        self.console = console
        self._csrf = ""

    async def get(self, path: str, status: int = 200) -> str:
        """The text of a page, with characters in place of entities."""
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        return self._take(answer)

    async def post(self, path: str, status: int = 200, **fields: str) -> str:
        """Sends a form, and follows where it leads."""
        answer = await self.client.post(path, data={"csrf": self._csrf, **fields}, follow_redirects=True)
        assert answer.status_code == status, answer.text
        return self._take(answer)

    def _take(self, answer: httpx.Response) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', answer.text)
        self._csrf = found[1] if found else self._csrf
        return unescape(answer.text)


def cells(page: str) -> list[list[str]]:
    """The rows of the tables of a page, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [
        [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def escaped(text: str) -> str:
    """Text as it stands in a page."""
    return str(Markup("{}").format(text))


class Site:
    """A console for a cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    @asynccontextmanager
    async def open(self, users: Users | None = None) -> AsyncIterator[Browser]:
        """A browser at a console that has looked at its cluster once."""
        clock = RealClock()
        async with open_cluster([self.servers], timeout_s=PATIENCE_S) as cluster:
            watch = Watch(cluster.reads, clock)
            await watch.look(with_groups=True)
            console = Console(
                cluster,
                watch,
                Logins(clock, 3600.0),
                Attempts(clock),
                users,
                False,
                Audit(clock.wall_ms, clock.monotonic),
            )
            transport = httpx.ASGITransport(application(console))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8090") as client:
                yield Browser(client, console)
