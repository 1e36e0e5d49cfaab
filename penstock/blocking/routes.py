"""Asks name servers for a topic's brokers, blocking, and keeps a link to every server in use. Name servers do not talk
to each other: the first answer counts, and a topic that this server does not know is asked of the others.

It keeps no answers: a caller that needs a route often keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from penstock.blocking.link import BlockingLink
from penstock.client.addressing import NameServers
from penstock.client.arguments import check_wait
from penstock.client.completeness import Holders, check_whole, holders_to_delete, joined
from penstock.client.credentials import Credentials, credentials_of
from penstock.client.following import KnownCopies
from penstock.client.retry import TIMEOUT_S
from penstock.client.sending import check_makeable, maker_of, nobody_has
from penstock.errors import NoRoute, PenstockError, ProtocolError, TimedOut, Unavailable, UnknownRequest
from penstock.protocol.addresses import no_name_server, nobody_answers
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, QueryTopics, Route, TopicNames
from penstock.protocol.requests.topics import DeleteTopic, DescribeTopic, TopicDetail
from penstock.world import RealClock

_R = TypeVar("_R", bound=Reply)


class Routes:
    """The name servers' routes; every method asks them anew."""

    def __init__(
        self, servers: str | Sequence[str], timeout_s: float = TIMEOUT_S, credentials: Credentials | None = None
    ) -> None:
        """``credentials``: for the logins of connections; left out: those of the environment."""
        check_wait("timeout_s", timeout_s)
        self._credentials = credentials_of() if credentials is None else credentials
        self._names = NameServers(servers, RealClock())
        self._timeout_s = timeout_s
        self._links: dict[str, BlockingLink] = {}
        self._copies = KnownCopies()

    @property
    def servers(self) -> tuple[str, ...]:
        """The name servers. Raises ``Unavailable`` where an address server has them and does not answer."""
        if self._names.is_due:
            self._names.fetch()
        return self._names.addresses

    def __enter__(self) -> Routes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections to all servers."""
        for link in self._links.values():
            link.close()

    def link(self, address: str) -> BlockingLink:
        """The connection to a server, and on to its leader; the same one every time."""
        found = self._links.get(address)
        if found is None:
            found = self._links[address] = BlockingLink(
                address,
                self._timeout_s,
                credentials=self._credentials,
                leader_at=self.link,
                copies_of=self._copies.of,
            )
        return found

    def topic(self, topic: str) -> tuple[BrokerRoute, ...]:
        """Brokers that hold queues of a topic. Raises ``NoRoute`` or ``Unavailable``."""
        found = self._holders(topic)
        if not found:
            raise nobody_has(topic)
        return found

    def _holders(self, topic: str) -> tuple[BrokerRoute, ...]:
        """The same, but empty if no broker has the topic; raises ``NoRoute`` only if a broker that is away has it."""
        for route in self._answers(QueryRoute(topic), Route):
            if route.brokers:
                return route.brokers
        return ()

    def holders(self, topic: str = "") -> Holders:
        """Brokers that hold queues of a topic, or all brokers, as all name servers together know, and those of them
        that are away. Raises ``NoRoute``, ``BrokerAway`` where all are away, or ``Unavailable``."""
        answers: list[Route | NoRoute] = []
        for answer in self._all_answers(QueryRoute(topic), Route):
            answers.append(answer)
            if isinstance(answer, Route) and answer.brokers and not answer.away:
                break  # else another name server may see one that this one misses
        found = joined(answers)
        if not found.brokers:
            check_whole(found.away, f"topic {topic!r}" if topic else "all that is stored")
            raise nobody_has(topic) if topic else self._none_lives()
        return found

    def _none_lives(self) -> NoRoute:
        return NoRoute(f"no live broker is registered at {', '.join(self.servers)}")

    def find_or_create(self, topic: str) -> tuple[BrokerRoute, ...]:
        """As ``topic``; if no broker has it, the cluster's policy may create it at the broker that every client would
        choose. Raises what that broker answers as well."""
        found = self._holders(topic)
        if found:
            return found
        check_makeable(topic)
        chosen = maker_of(topic, self.brokers())
        detail = self.link(chosen.address).ask(DescribeTopic(topic, create=True), TopicDetail)
        return (BrokerRoute(chosen.broker, chosen.address, detail.queues),)

    def delete_topic(self, topic: str, *, allow_incomplete: bool = False) -> dict[str, TopicDetail]:
        """Deletes a topic at all brokers that have it; what it was at each, by the broker's name.

        Raises ``TopicNotFound``, ``InvalidTopic`` for one of the system's, and ``BrokerAway`` with nothing deleted
        where a broker that may have some of it is away, unless ``allow_incomplete``.
        """
        holders = holders_to_delete(self._topic_holders(topic), topic, allow_incomplete)
        return {one.broker: self.link(one.address).ask(DeleteTopic(topic), TopicDetail) for one in holders}

    def _topic_holders(self, topic: str) -> Holders | NoRoute:
        try:
            return self.holders(topic)
        except NoRoute as error:
            return error

    def brokers(self) -> tuple[BrokerRoute, ...]:
        """All live brokers. Raises ``NoRoute`` or ``Unavailable``."""
        for route in self._answers(QueryRoute(""), Route):
            if route.brokers:
                return route.brokers
        raise self._none_lives()

    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted. Raises ``Unavailable``."""
        return self.topic_names().topics

    def topic_names(self) -> TopicNames:
        """All topics, as all name servers together know, with those that only brokers have which are away. Raises
        ``Unavailable``."""
        topics: set[str] = set()
        absent: set[str] = set()
        away: set[str] = set()
        for found in self._answers(QueryTopics(), TopicNames):
            topics.update(found.topics)
            absent.update(found.absent)
            away.update(found.away)
        if away:
            away -= {route.broker for found in self._answers(QueryRoute(""), Route) for route in found.brokers}
        return TopicNames(tuple(sorted(topics)), tuple(sorted(absent - topics)), tuple(sorted(away)))

    def _answers(self, request: Request, kind: type[_R]) -> Iterator[_R]:
        """The answer of each name server that is there; ``Unavailable`` or ``InvalidConfig`` when none is, ``NoRoute``
        after the others, when one says that a broker that is away has the topic."""
        away: NoRoute | None = None
        for answer in self._all_answers(request, kind):
            if isinstance(answer, NoRoute):
                away = answer
            else:
                yield answer
        if away is not None:
            raise away

    def _all_answers(self, request: Request, kind: type[_R]) -> Iterator[_R | NoRoute]:
        """The answer of each name server that is there; ``Unavailable`` or ``InvalidConfig`` when none is."""
        failures: list[PenstockError] = []
        for address in self.servers:
            try:
                reply = self.link(address).ask(request, kind)
            except NoRoute as error:
                yield error
                continue
            except (Unavailable, TimedOut) as error:
                failures.append(error)
                continue
            except (ProtocolError, UnknownRequest):
                failures.append(no_name_server(address))
                continue
            if isinstance(reply, Route):
                self._copies.learn(reply.brokers)
            yield reply
        if len(failures) == len(self.servers):
            raise nobody_answers(failures)


def bootstrap(servers: str | Sequence[str]) -> Routes:
    """Routes from name servers ``"host:port,host:port"``; asks at once, so that a wrong address fails here."""
    routes = Routes(servers)
    try:
        routes.topics()
    except BaseException:
        routes.close()
        raise
    return routes
