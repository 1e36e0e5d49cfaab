"""What a name server answers: which broker has which topic. Codes 10 to 29.

Where a name server has a cluster secret, ``RegisterBroker``, ``BrokerHeartbeat`` and ``UnregisterBroker`` are
``NotAuthorized`` until the connection has proved (``ProveBroker``) to be that broker.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.request import Done, Reply, Request, value

ORDERED_TOPICS: Final = "ORDER_TOPIC_CONFIG"
"""The namespace that says, topic by topic, which brokers keys are spread over (RocketMQ's name for it)."""
GATEWAY_SETTINGS: Final = "GATEWAY_SETTINGS"
"""The namespace of entries that change settings of running gateways."""


class TopicRoute(NamedTuple):
    """A topic as a broker offers it. In a heartbeat, one with 0 queues is gone."""

    topic: str
    queues: int
    writable: bool = True


class BrokerRoute(NamedTuple):
    """One broker that holds queues of a topic. ``address`` is ``host:port``. ``place``: its place among the ``places``
    brokers that an ordered topic's keys are spread over; -1: none. ``epoch``: in which the node at this address leads
    the broker's group; 0: a broker without copies. ``readers``: addresses of nodes with a copy that can be read. Where
    none leads, ``address`` is one of them, and the broker is not writable."""

    broker: str
    address: str
    queues: int
    writable: bool = True
    place: int = -1
    places: int = 0
    epoch: int = 0
    readers: tuple[str, ...] = ()


class ConfigEntry(NamedTuple):
    """An entry of the name server's key-value store."""

    namespace: str
    key: str
    value: str


@value
class RegisterBroker(Request):
    """Registers a broker and its topics; it repeats this every 30 s. The lease ends ``lease_s`` seconds
    later. ``peers``: the other brokers of its cluster that it knows of, by name. ``more``: further topics follow in
    heartbeats; until then it may have topics that it has not named.

    ``epoch``: in which this node leads the group of copies that has this name; a higher one takes the name at once, a
    lower one is ``Fenced``. 0: a broker without copies. ``is_reader``: the node does not lead; ``epoch`` is that of its
    leader, and it can be read up to ``committed``. ``log_id``: of its log; another log's broker never takes the name.
    """

    code: ClassVar[int] = 10
    reply: ClassVar[type[Reply]] = Done
    broker: str
    address: str
    version: int
    lease_s: float
    topics: tuple[TopicRoute, ...]
    peers: tuple[str, ...] = ()
    more: bool = False
    epoch: int = 0
    is_reader: bool = False
    committed: int = 0
    log_id: str = ""


@value
class HeartbeatReply(Reply):
    """``known`` is false where the broker must register again: lease gone, or another version of its topics is on
    file."""

    known: bool


@value
class BrokerHeartbeat(Request):
    """Renews a broker's lease without repeating its topics. ``topics``: those that are new, have changed or are gone
    since the version ``before``, which must be on file then; ``more``: that is not all of them yet. The rest as in the
    registration, which must be of the same epoch."""

    code: ClassVar[int] = 11
    reply: ClassVar[type[Reply]] = HeartbeatReply
    broker: str
    address: str
    version: int
    lease_s: float
    topics: tuple[TopicRoute, ...] = ()
    before: int = -1
    more: bool = False
    epoch: int = 0
    is_reader: bool = False
    committed: int = 0


@value
class UnregisterBroker(Request):
    """A broker's clean stop: the name server forgets it at once."""

    code: ClassVar[int] = 12
    reply: ClassVar[type[Reply]] = Done
    broker: str
    address: str


@value
class Route(Reply):
    """Brokers of a topic, ordered by name; empty when no live broker has it. ``away``: names of brokers that are away
    and have it, or may have it."""

    brokers: tuple[BrokerRoute, ...]
    away: tuple[str, ...] = ()


@value
class QueryRoute(Request):
    """Asks for the brokers of a topic. With an empty topic: all live brokers (``queues`` is then 0). ``NoRoute`` if a
    broker that is away has the topic, or may have it: it must not be created again meanwhile."""

    code: ClassVar[int] = 13
    reply: ClassVar[type[Reply]] = Route
    is_repeatable: ClassVar[bool] = True
    topic: str


@value
class TopicNames(Reply):
    """Sorted. ``absent``: topics that only brokers have which are away; ``away``: names of all brokers that are."""

    topics: tuple[str, ...]
    absent: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


@value
class Challenge(Reply):
    """The nonce for the next proof of this connection; empty if the name server asks for none."""

    nonce: bytes


@value
class QueryChallenge(Request):
    """Asks for a challenge. Each is good for one proof, and a new one replaces it."""

    code: ClassVar[int] = 15
    reply: ClassVar[type[Reply]] = Challenge


@value
class ProveBroker(Request):
    """Proves that this connection is the broker with this name and address: ``proof`` is made of the challenge and the
    cluster's secret (``penstock.service.cluster_secret.broker_proof``). ``NotAuthorized`` for a wrong one."""

    code: ClassVar[int] = 16
    reply: ClassVar[type[Reply]] = Done
    broker: str
    address: str
    proof: bytes


@value
class PutConfig(Request):
    """Sets an entry of the name server's key-value store; an empty value removes it. Each name server has its own."""

    code: ClassVar[int] = 17
    reply: ClassVar[type[Reply]] = Done
    namespace: str
    key: str
    value: str


@value
class ConfigEntries(Reply):
    """Sorted by namespace and key."""

    entries: tuple[ConfigEntry, ...]


@value
class QueryConfig(Request):
    """The entries of a namespace, or of all; with a key that one alone."""

    code: ClassVar[int] = 18
    reply: ClassVar[type[Reply]] = ConfigEntries
    is_repeatable: ClassVar[bool] = True
    namespace: str = ""
    key: str = ""


@value
class QueryTopics(Request):
    """Names of all topics of live brokers, sorted."""

    code: ClassVar[int] = 14
    reply: ClassVar[type[Reply]] = TopicNames
    is_repeatable: ClassVar[bool] = True
