"""The ways of the console to the cluster: one ``Admin`` that reads what there is, one that acts on all or nothing, and
those who publish and search."""

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
        links: the ways to its servers.
        reads: for pages; what a broker has that is away is left out.
        acts: for changes; a broker that is away refuses them.
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
async def open_cluster(servers: Sequence[str], credentials: Credentials | None = None) -> AsyncIterator[Cluster]:
    """A cluster to which the ways are open. ``credentials``: with what they begin; left out: with those of the
    environment."""
    async with (
        lasting_links(credentials=credentials_of() if credentials is None else credentials) as links,
        Admin(list(servers), timeout_s=TIMEOUT_S, allow_incomplete=True, links=links) as reads,
        Admin(list(servers), timeout_s=TIMEOUT_S, links=links) as acts,
    ):
        yield Cluster(tuple(servers), links, reads, acts)
