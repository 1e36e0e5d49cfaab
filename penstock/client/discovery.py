"""The brokers of a topic: asks the name servers, keeps fresh answers, and hands out links.

Any of several name servers will do: the one that answered last is asked first. They never talk to each other, so a
topic that one of them does not know is asked of the others. It keeps one answer per topic for ``fresh_s`` seconds, and
a stale one while no name server answers. A topic that no broker has may be created at the broker that every client
would choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from penstock.client.addressing import NameServers
from penstock.client.completeness import Holders, check_whole, holders_to_delete, joined
from penstock.client.following import FollowingLink, KnownCopies
from penstock.client.sending import ROUTE_FRESH_S, check_makeable, maker_of, nobody_has
from penstock.client.wire_link import ask
from penstock.errors import (
    InvalidConfig,
    NoRoute,
    PenstockError,
    ProtocolError,
    TimedOut,
    Unavailable,
    UnknownRequest,
)
from penstock.protocol.addresses import no_name_server, nobody_answers
from penstock.protocol.link import Link, Links
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, QueryTopics, Route, TopicNames
from penstock.protocol.requests.topics import DeleteTopic, DescribeTopic, TopicDetail
from penstock.world import Clock, RealClock

NAMESRV_S: Final = 3.0
"""How long one name server may take to answer before the next is asked."""
FOLLOW_S: Final = 1.0
"""Seconds between two checks whether a node that owes an answer is still registered; only where logs have copies."""

_R = TypeVar("_R", bound=Reply)


@dataclass(slots=True)
class _Answer:
    brokers: tuple[BrokerRoute, ...]
    until: float


class Discovery:
    """Routes by topic.

    Args:
        servers: addresses of name servers, ``"host:port,host:port"`` or a list; or the URL of an address server.
        links: the ways to servers.
    """

    def __init__(
        self, servers: str | Sequence[str], links: Links, *, clock: Clock | None = None, fresh_s: float = ROUTE_FRESH_S
    ) -> None:
        self._links = links
        self._clock = clock or RealClock()
        self._names = NameServers(servers, self._clock)
        self._servers = list(self._names.addresses)
        self._fresh_s = fresh_s
        self._answers: dict[str, _Answer] = {}
        self._following: dict[str, FollowingLink] = {}
        self._copies = KnownCopies()

    def link(self, address: str) -> Link:
        """The way to a broker: where it has copies, to the node that leads, and for reads to any."""
        link = self._following.get(address)
        if link is None:
            link = FollowingLink(address, self._links, self._copies.of, self.moved)
            self._following[address] = link
        return link

    async def read(self, address: str, request: Request, kind: type[_R]) -> _R:
        """A broker's answer to a request that changes nothing; where its log has copies, that of the first node that
        answers."""
        for _ in self._copies.of(address):
            try:
                return await ask(self.link(address), request, kind)
            except Unavailable:
                continue
        return await ask(self.link(address), request, kind)

    async def keep_following(self) -> None:
        """To be run as long as links are used: gives up a node that does not answer and whose group goes on without it.
        A host that is gone, or a process that is stopped, does not close its connection; requests would wait on."""
        while True:
            await anyio.sleep(FOLLOW_S)
            waits_at = {link.waits_at for link in self._following.values()}
            silent = [address for address in waits_at if self._copies.of(address)]
            try:
                routes = await self.all_brokers() if silent else ()
            except PenstockError:
                continue
            there = {address for route in routes for address in (route.address, *route.readers)}
            for address in silent:
                if address not in there and not there.isdisjoint(self._copies.of(address)):
                    self._links.give_up(address)

    def moved(self, address: str) -> None:
        """A broker is led elsewhere than at this address: its topics are asked for anew the next time."""
        now = self._clock.monotonic()
        for topic, answer in self._answers.items():
            if answer.until > now and any([one.address == address for one in answer.brokers]):
                self.forget(topic)

    def known(self, topic: str) -> tuple[BrokerRoute, ...]:
        """The fresh answer in memory, empty if there is none; sends no request."""
        answer = self._answers.get(topic)
        return answer.brokers if answer is not None and self._clock.monotonic() < answer.until else ()

    def forget(self, topic: str) -> None:
        """Has the topic asked anew the next time; the answer stays in reserve."""
        answer = self._answers.get(topic)
        if answer is not None:
            answer.until = self._clock.monotonic()

    async def brokers(self, topic: str, *, create: bool = False) -> tuple[BrokerRoute, ...]:
        """Brokers that hold queues of a topic; with ``create`` the cluster's policy may make it.

        Raises:
            NoRoute: no live broker has it.
            Unavailable, InvalidConfig: no name server answers and nothing is known.
            PenstockError: what the broker said that was asked to create it.
        """
        known = self.known(topic)
        if known:
            return known
        try:
            found = await self._find(QueryRoute(topic))
        except (Unavailable, InvalidConfig):
            stale = self._answers.get(topic)
            if stale is None:
                raise
            return stale.brokers
        if not found and create:
            found = await self._create(topic)
        if not found:
            self._answers.pop(topic, None)
            raise nobody_has(topic)
        self._answers[topic] = _Answer(found, self._clock.monotonic() + self._fresh_s)
        return found

    async def all_brokers(self) -> tuple[BrokerRoute, ...]:
        """All live brokers. Raises ``NoRoute`` or ``Unavailable``."""
        found = await self._find(QueryRoute(""))
        if not found:
            raise NoRoute(f"no live broker is registered at {', '.join(self._servers)}")
        return found

    async def holders(self, topic: str) -> Holders:
        """Brokers that hold queues of a topic, as all name servers together know, and those of them that are away.

        Raises:
            NoRoute: no broker has it.
            BrokerAway: all that have it are away.
            Unavailable, InvalidConfig: no name server answers.
        """
        answers: list[Route | PenstockError] = []
        for address in await self.name_servers():
            answers.append(await self._answer(address, QueryRoute(topic), Route))
            if isinstance(answers[-1], Route) and answers[-1].brokers and not answers[-1].away:
                break  # else another name server may see one that this one misses
        told = [one for one in answers if isinstance(one, Route | NoRoute)]
        if not told:
            raise nobody_answers([one for one in answers if isinstance(one, PenstockError)])
        found = joined(told)
        if not found.brokers:
            check_whole(found.away, f"topic {topic!r}")
            raise nobody_has(topic)
        return found

    async def delete_topic(self, topic: str, *, allow_incomplete: bool = False) -> dict[str, TopicDetail]:
        """Deletes a topic at all brokers that have it; what it was at each, by the broker's name.

        Raises ``TopicNotFound``, ``InvalidTopic`` for one of the system's, and ``BrokerAway`` with nothing deleted
        where a broker that may have some of it is away, unless ``allow_incomplete``.
        """
        self._answers.pop(topic, None)
        found: Holders | NoRoute
        try:
            found = await self.holders(topic)
        except NoRoute as error:
            found = error
        deleted: dict[str, TopicDetail] = {}
        for one in holders_to_delete(found, topic, allow_incomplete):
            deleted[one.broker] = await ask(self.link(one.address), DeleteTopic(topic), TopicDetail)
        return deleted

    async def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted. Raises ``Unavailable``."""
        return (await self._ask_any(QueryTopics(), TopicNames)).topics

    async def _create(self, topic: str) -> tuple[BrokerRoute, ...]:
        check_makeable(topic)
        chosen = maker_of(topic, await self.all_brokers())
        detail = await ask(self.link(chosen.address), DescribeTopic(topic, create=True), TopicDetail)
        return (BrokerRoute(chosen.broker, chosen.address, detail.queues),)

    async def _find(self, request: QueryRoute) -> tuple[BrokerRoute, ...]:
        """The first answer that names a broker; an empty one only if no name server knows more."""
        failures: list[PenstockError] = []
        for address in await self.name_servers():
            route = await self._answer(address, request, Route)
            if isinstance(route, PenstockError):
                failures.append(route)
            elif route.brokers:
                self._prefer(address)
                return route.brokers
        away = [one for one in failures if isinstance(one, NoRoute)]
        if away:
            raise away[0]
        if len(failures) == len(self._servers):
            raise nobody_answers(failures)
        return ()

    async def _ask_any(self, request: Request, kind: type[_R]) -> _R:
        failures: list[PenstockError] = []
        for address in await self.name_servers():
            reply = await self._answer(address, request, kind)
            if not isinstance(reply, PenstockError):
                self._prefer(address)
                return reply
            failures.append(reply)
        raise nobody_answers(failures)

    async def _answer(self, address: str, request: Request, kind: type[_R]) -> _R | PenstockError:
        """A name server's answer, or its error."""
        try:
            reply = await ask(self._links.link(address), request, kind, NAMESRV_S)
            if isinstance(reply, Route):
                self._copies.learn(reply.brokers)
            return reply
        except NoRoute as error:  # the topic is at a broker that is away; another name server may know more
            return error
        except TimedOut:
            return Unavailable(f"{address} did not answer in time")
        except Unavailable as error:
            return no_name_server(address) if isinstance(error.__cause__, ProtocolError) else error
        except (ProtocolError, UnknownRequest):
            return no_name_server(address)

    async def name_servers(self) -> tuple[str, ...]:
        """The name servers, the one that answered last first."""
        if self._names.is_due:
            await anyio.to_thread.run_sync(self._names.fetch, abandon_on_cancel=True)
            kept = [one for one in self._servers if one in self._names.addresses]
            self._servers = list(dict.fromkeys([*kept, *self._names.addresses]))
        return tuple(self._servers)

    def _prefer(self, address: str) -> None:
        self._servers.remove(address)
        self._servers.insert(0, address)
