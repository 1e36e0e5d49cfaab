"""The console's access to the cluster: an ``Admin`` that reads from the brokers that answer, an ``Admin`` whose changes
need all brokers, and functions that publish and search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.client.admin import Admin
from penstock.client.credentials import Credentials, credentials_of
from penstock.client.finding import find
from penstock.client.lasting_links import WireLinks, lasting_links
from penstock.client.producer import Producer
from penstock.client.retry import TIMEOUT_S
from penstock.client.sending import Receipt
from penstock.protocol.message import Message
from penstock.protocol.received import ReceivedMessage

PUBLISH_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster.

    Attributes:
        servers: its name servers.
        links: connections to its servers.
        reads: for pages; leaves out brokers that are away.
        acts: for changes; fails if a broker is away.
    """

    servers: Sequence[str]
    links: WireLinks
    reads: Admin
    acts: Admin

    async def publish(self, message: Message) -> Receipt:
        """Stores a message. Raises what ``Producer.send`` raises."""
        async with Producer(servers=list(self.servers), timeout_s=PUBLISH_S, links=self.links) as producer:
            return await producer.send(message)

    async def find(self, topic: str, key: str, since: datetime | int, count: int) -> list[ReceivedMessage]:
        """The latest messages of a topic with a key or unique id. Raises what ``find`` raises."""
        found: list[ReceivedMessage] = []
        links, servers = self.links, list(self.servers)
        async with find(topic, key, servers=servers, since=since, allow_incomplete=True, links=links) as messages:
            async for message in messages:
                found.append(message)
                if len(found) >= count:
                    break
        return found


@asynccontextmanager
async def open_cluster(
    servers: Sequence[str], credentials: Credentials | None = None, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Cluster]:
    """A cluster with open connections. ``credentials``: for their logins; left out, those of the environment.
    ``timeout_s``: the deadline of each task of an ``Admin``."""
    async with (
        lasting_links(credentials=credentials_of() if credentials is None else credentials) as links,
        Admin(list(servers), timeout_s=timeout_s, allow_incomplete=True, links=links) as reads,
        Admin(list(servers), timeout_s=timeout_s, links=links) as acts,
    ):
        yield Cluster(tuple(servers), links, reads, acts)
