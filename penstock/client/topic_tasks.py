"""What administrators ask of topics and of brokers: their configuration, permissions and end. Pure; tasks as in
``administration.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.administration import ALL_BROKERS, Ask, Task, broker_named
from penstock.errors import InvalidRequest, NoRoute, TopicNotFound
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.topics import (
    UNCHANGED,
    AllowBroker,
    Bounds,
    BrokerAllows,
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    PurgeTopic,
    QueryAllowed,
    TopicDetail,
    TopicInfo,
    TopicList,
)
from penstock.protocol.topic_names import topic_of
from topicmap.queues import readable


@dataclass(frozen=True, slots=True)
class TopicAt:
    """A topic at one broker.

    Attributes:
        topic, name: its name, and the first level of MQTT names that it stands for.
        queues: how many messages are written to; ``draining``: how many more are read out, and go then.
        level: ``disk`` or ``cache``.
        retention_s: how long messages stay, in seconds; 0: as long as the broker keeps its log.
        access: what clients may do just now: ``rw``, ``r``, ``w`` or ``none``.
        trace_every: of every so-many-th message it is told what becomes of it; 0: of none.
        bounds: where each queue begins and ends; none in a list of all topics.
    """

    topic: str
    name: str
    broker: str
    queues: int
    draining: int
    level: str
    retention_s: int
    access: str
    trace_every: int
    bounds: tuple[Bounds, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages are in the queues of ``bounds``."""
        return sum([bound.end - bound.min for bound in self.bounds])


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker that lives: where it is, its version, and whether clients may read and write its topics."""

    broker: str
    address: str
    version: str
    read: bool
    write: bool


def topics() -> Task[list[TopicAt]]:
    """All topics of all brokers, by name."""
    found: list[TopicAt] = []
    for route in (yield ALL_BROKERS):
        listed: TopicList = yield Ask(route.address, ListTopics(), TopicList)
        found += [topic_at(route.broker, one) for one in listed.topics]
    return sorted(found, key=lambda one: (one.topic, one.broker))


def topic(name: str) -> Task[list[TopicAt]]:
    """A topic at each broker that has it, with the bounds of its queues. Raises ``TopicNotFound``."""
    return (yield from _at_each(name, "", DescribeTopic(topic_of(name))))


def create_topic(
    name: str,
    *,
    queues: int = 0,
    level: str = "",
    retention_s: int = 0,
    access: str = "",
    trace_every: int = 0,
    broker: str = "",
) -> Task[list[TopicAt]]:
    """Creates a topic at all brokers, or at one, or makes sure that it is so. What is left out is the broker's default.
    Raises ``TopicExists`` where it is there and otherwise, ``InvalidTopic`` and ``InvalidRequest``."""
    request = CreateTopic(topic_of(name), queues, level, retention_s or UNCHANGED, access, trace_every or UNCHANGED)
    return (yield from _at_each(name, broker, request))


def change_topic(
    name: str,
    *,
    queues: int = 0,
    level: str = "",
    retention_s: int | None = None,
    access: str = "",
    trace_every: int | None = None,
    broker: str = "",
) -> Task[list[TopicAt]]:
    """Changes what is given of a topic, at each broker that has it, or at one.

    More queues are written to at once, so keys change their queues. Of fewer the last ones take no more messages, and
    go when every group that reads the topic has read them. ``access``: ``rw``, ``r``, ``w`` or ``none``.
    ``trace_every``: of every so-many-th message ``trace`` tells what becomes of it; 0: of none. Raises
    ``TopicNotFound`` and ``InvalidRequest``.
    """
    kept, trace = (UNCHANGED if one is None else one for one in (retention_s, trace_every))
    request = ChangeTopic(topic_of(name), queues, level, kept, access, trace)
    return (yield from _at_each(name, broker, request))


def purge_topic(name: str) -> Task[dict[str, int]]:
    """Removes all messages of a topic: how many, by broker. Offsets go on; retained messages, and what waits for MQTT
    sessions, stay. Raises ``TopicNotFound`` and ``InvalidTopic``."""
    was = yield from _at_each(name, "", PurgeTopic(topic_of(name)))
    return {one.broker: one.messages for one in was}


def delete_topic(name: str) -> Task[dict[str, int]]:
    """Deletes a topic at all brokers, with its messages, retained messages and committed offsets: how many messages
    were in it, by broker. Made again, its offsets go on where they ended. Raises ``TopicNotFound`` and
    ``InvalidTopic``."""
    was = yield from _at_each(name, "", DeleteTopic(topic_of(name)))
    return {one.broker: one.messages for one in was}


def brokers() -> Task[list[BrokerState]]:
    """All brokers that live."""
    found: list[BrokerState] = []
    for route in (yield ALL_BROKERS):
        info: ServerInfo = yield Ask(route.address, Ping(), ServerInfo)
        allows: BrokerAllows = yield Ask(route.address, QueryAllowed(), BrokerAllows)
        found.append(BrokerState(route.broker, route.address, info.version, allows.read, allows.write))
    return found


def allow_broker(broker: str, *, read: bool | None = None, write: bool | None = None) -> Task[None]:
    """Gives, or takes away, what clients may do with the topics of a broker, until it is said otherwise; what is left
    out stays as it is. Without ``write`` producers go to other brokers; what this one has promised it keeps. Raises
    ``NoRoute``."""
    if read is None and write is None:
        raise InvalidRequest("say what is allowed: read, write or both")
    route = yield from broker_named(broker, NoRoute)
    now: BrokerAllows = yield Ask(route.address, QueryAllowed(), BrokerAllows)
    wanted = AllowBroker(now.read if read is None else read, now.write if write is None else write)
    yield Ask(route.address, wanted, Done)


def topic_at(broker: str, one: TopicInfo | TopicDetail) -> TopicAt:
    """A topic as a broker describes it."""
    bounds = one.bounds if isinstance(one, TopicDetail) else ()
    kept = (one.queues - one.draining, one.draining, one.level, one.retention_s, one.access, one.trace)
    return TopicAt(one.topic, readable(one.topic), broker, *kept, bounds)


def _at_each(name: str, broker: str, request: Request) -> Task[list[TopicAt]]:
    """What brokers answer that have a topic, all or the one named. Raises ``TopicNotFound`` where none has it."""
    routes: Sequence[BrokerRoute] = yield ALL_BROKERS
    if broker:
        routes = [(yield from broker_named(broker, NoRoute))]
    found: list[TopicAt] = []
    for route in routes:
        try:
            detail: TopicDetail = yield Ask(route.address, request, TopicDetail)
        except TopicNotFound:
            continue
        found.append(topic_at(route.broker, detail))
    if not found:
        raise TopicNotFound(f"there is no topic {name}", hint="`penstock topic list` shows all")
    return found
