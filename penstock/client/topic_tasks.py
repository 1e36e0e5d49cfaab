"""What administrators ask of topics and of brokers: their configuration, permissions and end. Pure; tasks as in
``administration.py``."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.administration import ALL_BROKERS, Ask, Task, broker_named
from penstock.client.arguments import check_flag, check_integer, check_text
from penstock.errors import InvalidRequest, NoRoute, TopicNotFound
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.servers import ChangeSetting, Ping, ServerInfo
from penstock.protocol.requests.topics import (
    UNCHANGED,
    AllowBroker,
    Bounds,
    BrokerAllows,
    ChangeTopic,
    CountTopics,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    PurgeTopic,
    QueryAllowed,
    TopicCount,
    TopicCounts,
    TopicDetail,
    TopicInfo,
    TopicList,
)
from penstock.protocol.topic_names import topic_of
from penstock.values import value
from topicmap.queues import readable


@value
class TopicAt:
    """A topic at one broker.

    Attributes:
        topic, name: its name, and the first level of the MQTT names that it stores.
        queues: number of queues that take messages; ``draining``: number of further queues that are only read, and are
            removed when all groups have read them.
        level: what an acknowledged message has reached: ``cache``, ``disk``, or ``quorum`` where the broker's log has
            copies, which is the default there.
        retention_s: seconds for which messages are kept; 0: as long as the broker keeps its log.
        access: what clients may do now: ``rw``, ``r``, ``w`` or ``none``.
        trace_every: one message in this number is traced; 0: none.
        bounds: first and end offset of each queue; empty in a list of all topics.
        retained: number of retained messages; 0 in a list of all topics.
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
    retained: int = 0

    @property
    def messages(self) -> int:
        """Number of messages in the queues of ``bounds``."""
        return sum([bound.end - bound.min for bound in self.bounds])


@value
class BrokerState:
    """A live broker: its address and version, and whether clients may read and write its topics."""

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


def topic_counts() -> Task[list[TopicCount]]:
    """The contents of each topic of all brokers in numbers, by name."""
    found: dict[str, TopicCount] = {}
    for route in (yield ALL_BROKERS):
        after = ""
        while True:
            page: TopicCounts = yield Ask(route.address, CountTopics(after), TopicCounts)
            for row in page.topics:
                before = found.get(row.topic, TopicCount(row.topic, 0, 0))
                found[row.topic] = TopicCount(row.topic, before.stored + row.stored, before.messages + row.messages)
            after = page.after
            if not after:
                break
    return [found[name] for name in sorted(found)]


def topic(name: str) -> Task[list[TopicAt]]:
    """A topic at each broker that has it, with the bounds of its queues. Raises ``TopicNotFound``."""
    return (yield from _at_each(name, "", DescribeTopic(_topic(name))))


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
    """Creates a topic at all brokers, or at ``broker``. An argument that is left out is the broker's default;
    ``retention_s`` is in seconds. Args as for ``change_topic``. Raises ``TopicExists`` if the topic exists with another
    configuration, ``InvalidTopic`` and ``InvalidRequest``."""
    _check_config(queues, level, retention_s, access, trace_every)
    request = CreateTopic(_topic(name), queues, level, retention_s or UNCHANGED, access, trace_every or UNCHANGED)
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
    """Changes a topic at each broker that has it, or at one. An argument that is left out changes nothing.

    Args:
        queues: queues per broker. Producers write to new queues at once. If the number is lower, the last queues take
            no more messages and are removed when every group that reads the topic has read them. Either way a key may
            map to another queue.
        level: what an acknowledged message has reached: ``cache``, ``disk``, or ``quorum`` where the broker's log has
            copies, which is the default there.
        retention_s: seconds for which messages are kept; 0: as long as the broker keeps its log.
        access: ``rw``, ``r``, ``w`` or ``none``.
        trace_every: one message in this number is traced; 0: none.
        broker: the broker's name; all brokers if left out.

    Raises:
        TopicNotFound: no broker has the topic.
        InvalidRequest: an argument is illegal.
    """
    kept, trace = (UNCHANGED if one is None else one for one in (retention_s, trace_every))
    _check_config(queues, level, kept, access, trace)
    request = ChangeTopic(_topic(name), queues, level, kept, access, trace)
    return (yield from _at_each(name, broker, request))


def purge_topic(name: str, *, retained: bool = False) -> Task[dict[str, int]]:
    """Removes all messages of a topic and returns their number by broker. Offsets continue; messages that wait for MQTT
    sessions stay. Retained messages are values of MQTT names: they stay unless ``retained`` is true. Raises
    ``TopicNotFound`` and ``InvalidTopic``."""
    was = yield from purge(name, retained=retained)
    return {one.broker: one.messages for one in was}


def purge(name: str, *, retained: bool = False) -> Task[list[TopicAt]]:
    """As ``purge_topic``, and returns the topic as it was at each broker."""
    check_flag("retained", retained)
    return (yield from _at_each(name, "", PurgeTopic(_topic(name), retained)))


def delete_topic(name: str) -> Task[dict[str, int]]:
    """Deletes a topic at all brokers, with its messages, retained messages and committed offsets, and returns the
    number of messages by broker. If it is created again, its offsets continue where they ended. Raises
    ``TopicNotFound`` and ``InvalidTopic``."""
    was = yield from _at_each(name, "", DeleteTopic(_topic(name)))
    return {one.broker: one.messages for one in was}


def brokers() -> Task[list[BrokerState]]:
    """All live brokers."""
    found: list[BrokerState] = []
    for route in (yield ALL_BROKERS):
        info: ServerInfo = yield Ask(route.address, Ping(), ServerInfo)
        allows: BrokerAllows = yield Ask(route.address, QueryAllowed(), BrokerAllows)
        found.append(BrokerState(route.broker, route.address, info.version, allows.read, allows.write))
    return found


def allow_broker(broker: str, *, read: bool | None = None, write: bool | None = None) -> Task[None]:
    """Allows or forbids clients to read or write the topics of a broker, until the next change; an argument that is
    left out changes nothing. With ``write=False`` producers use other brokers; this one still processes delayed
    messages, retries, begun transactions and messages that wait for MQTT sessions. Raises ``NoRoute`` if the broker is
    not live, and ``InvalidRequest`` if both are left out."""
    if read is None and write is None:
        raise InvalidRequest("give read, write or both")
    check_text("broker", broker)
    route = yield from broker_named(broker, NoRoute)
    now: BrokerAllows = yield Ask(route.address, QueryAllowed(), BrokerAllows)
    wanted = AllowBroker(now.read if read is None else read, now.write if write is None else write)
    yield Ask(route.address, wanted, Done)


def change_setting(broker: str, name: str, value: str) -> Task[None]:
    """Changes a setting of a running broker until its next start: ``log_level`` (``debug``, ``info``, ``warning``,
    ``error``) or ``connection_log`` (``off``, ``sampled``, ``on``); empty is its own again. Raises ``NoRoute`` if the
    broker is not live, and ``InvalidRequest`` for another setting or value."""
    check_text("broker", broker)
    route = yield from broker_named(broker, NoRoute)
    yield Ask(route.address, ChangeSetting(name, value), Done)


def topic_at(broker: str, one: TopicInfo | TopicDetail) -> TopicAt:
    """A topic as a broker describes it."""
    bounds, retained = (one.bounds, one.retained) if isinstance(one, TopicDetail) else ((), 0)
    kept = (one.queues - one.draining, one.draining, one.level, one.retention_s, one.access, one.trace)
    return TopicAt(one.topic, readable(one.topic), broker, *kept, bounds, retained)


def _topic(name: object) -> str:
    """The topic that a program named. Raises ``InvalidRequest`` and ``InvalidTopic``."""
    if not isinstance(name, str):
        raise InvalidRequest(f"the name of a topic is a str, not {name!r:.100}")
    return topic_of(name)


def _check_config(queues: object, level: object, retention_s: object, access: object, trace_every: object) -> None:
    """Raises ``InvalidRequest`` where an argument is of a wrong type; what it may say is the broker's to judge."""
    for name, whole in (("queues", queues), ("retention_s", retention_s), ("trace_every", trace_every)):
        check_integer(name, whole)
    for name, text in (("level", level), ("access", access)):
        if not isinstance(text, str):
            raise InvalidRequest(f"{name} is a str, not {text!r:.100}")


def _at_each(name: str, broker: str, request: Request) -> Task[list[TopicAt]]:
    """The answers of the brokers that have a topic, all or the one named. Raises ``TopicNotFound`` where none has
    it."""
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
