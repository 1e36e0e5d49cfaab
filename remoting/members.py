"""Connected clients of the front: their groups, their subscriptions and the queues that they have locked.

The members of a RocketMQ group deal the queues among themselves, so all that the broker sees is one native member per
front (``groups``). Everything here is in memory: after a restart clients say it again with their next heartbeat. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.errors import Busy, ProtocolError

LOCK_S: Final = 60.0
"""How long a lock of an ordered queue holds."""
LOCKS_MAX: Final = 100_000
"""Maximum number of locks; those that have ended make room."""
CLIENTS_MAX: Final = 1_000
"""Maximum number of clients of one connection."""
BROADCASTING: Final = "BROADCASTING"
_MODELS: Final = (BROADCASTING, "CLUSTERING")
_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
_WHERE: Final = ("CONSUME_FROM_LAST_OFFSET", "", "", "", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP")


class Subscription(NamedTuple):
    """A client's subscription to a topic: ``text`` are tags joined by ``||``, or a condition in SQL."""

    topic: str
    text: str = "*"
    is_sql: bool = False

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, none for all messages."""
        if self.is_sql or self.text.strip() in ("", "*"):
            return ()
        return tuple(dict.fromkeys([tag.strip() for tag in self.text.split("||") if tag.strip()]))

    @property
    def condition(self) -> str:
        """The condition, empty for all messages."""
        return self.text if self.is_sql else ""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A client as a member of a group, as its heartbeat says."""

    group: str
    model: str
    kind: str
    where: str
    subscriptions: dict[str, Subscription] = field(hash=False)

    @property
    def is_broadcasting(self) -> bool:
        """Whether it reads all queues and keeps its offsets itself."""
        return self.model == BROADCASTING


class Beat(NamedTuple):
    """A heartbeat: the client, the groups in which it produces, those in which it consumes."""

    client: str
    producers: tuple[str, ...]
    consumers: tuple[Consumer, ...]


def beat_of(row: Any) -> Beat:
    """The heartbeat in a body that is JSON. Raises ``ProtocolError``."""
    try:
        producers = tuple([str(one["groupName"]) for one in row.get("producerDataSet") or ()])
        consumers = tuple([_consumer(one) for one in row.get("consumerDataSet") or ()])
        client = str(row["clientID"])
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        raise ProtocolError("a heartbeat that is none") from None
    if not client:
        raise ProtocolError("a heartbeat without a client id")
    return Beat(client, producers, consumers)


def _consumer(row: Any) -> Consumer:
    found = {}
    for one in row.get("subscriptionDataSet") or ():
        is_sql = str(one.get("expressionType") or "TAG").upper() == "SQL92"
        found[str(one["topic"])] = Subscription(str(one["topic"]), str(one.get("subString") or "*"), is_sql)
    return Consumer(
        str(row["groupName"]),
        _named(row.get("messageModel"), _MODELS),
        _named(row.get("consumeType"), _TYPES),
        _named(row.get("consumeFromWhere"), _WHERE),
        found,
    )


def _named(value: Any, names: tuple[str, ...]) -> str:
    """An enumeration's value, which clients in C++ give as a number."""
    return names[value] if isinstance(value, int) else str(value or "")


class Client(NamedTuple):
    """A client that is connected. ``connection``: the number of its connection; ``user``: the user of its
    heartbeats, empty where no login is asked for."""

    id: str
    connection: int
    language: str
    version: int
    address: str
    user: str = ""


class Changed(NamedTuple):
    """The changes by a heartbeat or a goodbye: groups of consumers with other members or subscriptions."""

    groups: tuple[str, ...]


class Members:
    """The clients of one front."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._count_of: dict[int, int] = {}  # clients that each connection has brought
        self._consumers: dict[str, dict[str, Consumer]] = {}
        self._producers: dict[str, dict[str, None]] = {}
        self._locks: dict[tuple[str, str], tuple[str, float]] = {}

    def beat(self, client: Client, beat: Beat) -> Changed:
        """Takes in a heartbeat, which says all groups of its client. Raises ``Busy`` where its connection has too many
        clients."""
        known = self._clients.get(client.id)
        if known is None or known.connection != client.connection:
            count = self._count_of.get(client.connection, 0)
            if count >= CLIENTS_MAX:
                raise Busy(f"this connection has {count} clients")
            self._count_of[client.connection] = count + 1
        self._clients[client.id] = client
        changed = []
        wanted = {one.group: one for one in beat.consumers}
        for group in {*wanted, *[name for name, members in self._consumers.items() if client.id in members]}:
            if wanted.get(group) != self._consumers.get(group, {}).get(client.id):
                changed.append(group)
            self._set(self._consumers, group, client.id, wanted.get(group))
        for group in beat.producers:
            self._producers.setdefault(group, {})[client.id] = None
        return Changed(tuple(sorted(changed)))

    @staticmethod
    def _set(table: dict[str, dict[str, Consumer]], group: str, client: str, consumer: Consumer | None) -> None:
        if consumer is not None:
            table.setdefault(group, {})[client] = consumer
            return
        table.get(group, {}).pop(client, None)
        if not table.get(group):
            table.pop(group, None)

    def leave(self, client: str, producer_group: str, consumer_group: str) -> Changed:
        """A client leaves groups; empty names mean none."""
        members = self._producers.get(producer_group, {})
        members.pop(client, None)
        if not members:
            self._producers.pop(producer_group, None)
        was_there = client in self._consumers.get(consumer_group, {})
        self._set(self._consumers, consumer_group, client, None)
        self._unlock_all(client, consumer_group)
        return Changed((consumer_group,) if was_there else ())

    def disconnect(self, connection: int) -> Changed:
        """A connection has ended: its clients are gone at once, and their queues are free."""
        if not self._count_of.pop(connection, 0):
            return Changed(())
        gone = [client.id for client in self._clients.values() if client.connection == connection]
        changed: dict[str, None] = {}
        for client in gone:
            del self._clients[client]
            for group in [name for name, members in self._consumers.items() if client in members]:
                changed.update(dict.fromkeys(self.leave(client, "", group).groups))
            for group in [name for name, members in self._producers.items() if client in members]:
                self.leave(client, group, "")
        return Changed(tuple(changed))

    def client(self, client: str) -> Client | None:
        """A client that is connected."""
        return self._clients.get(client)

    def consumers(self, group: str) -> dict[str, Consumer]:
        """The members of a group of consumers, by client."""
        return self._consumers.get(group, {})

    def producers(self, group: str) -> list[Client]:
        """The clients that produce in a group."""
        return [self._clients[one] for one in self._producers.get(group, ()) if one in self._clients]

    @property
    def consumer_groups(self) -> list[str]:
        """Names of all groups of consumers."""
        return sorted(self._consumers)

    def topics(self, group: str) -> frozenset[str]:
        """The topics that members of a group want and whose offsets the broker keeps: none of broadcasting members."""
        members = [one for one in self.consumers(group).values() if not one.is_broadcasting]
        return frozenset([topic for one in members for topic in one.subscriptions])

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """A group's subscription to a topic, as one of its members has it."""
        for one in self.consumers(group).values():
            if topic in one.subscriptions:
                return one.subscriptions[topic]
        return None

    # ------------------------------------------------------------ locks

    def lock(self, group: str, client: str, queues: Iterable[str], now: float) -> list[str]:
        """Locks those of the queues that no other client has locked; returns them."""
        granted = []
        for queue in queues:
            holder, until = self._locks.get((group, queue), ("", 0.0))
            if (group, queue) not in self._locks and len(self._locks) >= LOCKS_MAX:
                self._forget_locks(now)
                if len(self._locks) >= LOCKS_MAX:
                    break
            if holder in ("", client) or until <= now:
                self._locks[group, queue] = client, now + LOCK_S
                granted.append(queue)
        return granted

    def unlock(self, group: str, client: str, queues: Iterable[str]) -> None:
        """Frees queues that a client has locked."""
        for queue in queues:
            if self._locks.get((group, queue), ("", 0.0))[0] == client:
                del self._locks[group, queue]

    def _forget_locks(self, now: float) -> None:
        """Removes the locks that have ended."""
        self._locks = {key: lock for key, lock in self._locks.items() if lock[1] > now}

    def _unlock_all(self, client: str, group: str) -> None:
        mine = [key for key, (holder, _until) in self._locks.items() if key[0] == group and holder == client]
        for key in mine:
            del self._locks[key]

    def connections_of(self, group: str) -> Iterator[int]:
        """The connections of a group's members, each once."""
        found = [self._clients[one].connection for one in self.consumers(group) if one in self._clients]
        yield from dict.fromkeys(found)
