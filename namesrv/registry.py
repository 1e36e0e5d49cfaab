"""The live brokers and their topics: leases by broker name, and an index from topic to brokers.

Time is an argument, a call is a whole request. A broker is believed until its lease ends; nothing outlives the process.
A topic is never called unknown while a broker may have it, because a topic that is created twice has other messages and
sessions:

| broker | its topics |
|---|---|
| away | stay known for ``away_s_max``; answers name the broker, so that a client does not take a part for the whole |
| named as a peer, since this process began | it is waited for as long as a lease lasts |

The latest registration replaces the earlier one; a heartbeat with another version has to register again. Two brokers
share neither a name nor an address. Of a group of copies the node of the highest epoch has the name; the others can be
read (``namesrv/copies.py``).

Invariants: ``_holders`` has exactly the topics of the brokers in ``_brokers``; no answer names a broker whose lease has
ended; no broker is in two of ``_brokers``, ``_away`` and ``_unheard``; ``_expected`` has some of the last. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from namesrv.config_store import ConfigStore
from namesrv.copies import Copies
from penstock.errors import Busy, Fenced, InvalidConfig, InvalidRequest, InvalidTopic, NoRoute, PenstockError, TooLarge
from penstock.protocol.addresses import split_address
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import (
    BrokerHeartbeat,
    BrokerRoute,
    HeartbeatReply,
    PutConfig,
    QueryConfig,
    QueryRoute,
    QueryTopics,
    RegisterBroker,
    Route,
    TopicNames,
    TopicRoute,
    UnregisterBroker,
)
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from topicmap.names import InvalidName
from topicmap.queues import check_topic

QUEUES_MAX: Final = 1 << 16
_BROKER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")


@dataclass(slots=True)
class _Broker:
    address: str
    version: int
    topics: dict[str, TopicRoute]
    lease_ends: float
    epoch: int
    log_id: str
    is_whole: bool = True  # it has told all that it has

    def tell(self, request: RegisterBroker | BrokerHeartbeat) -> None:
        """It has told its topics, or some of them."""
        self.version, self.is_whole = request.version, not request.more

    def lead(self, request: RegisterBroker) -> None:
        """It has told in which epoch it leads which log."""
        self.epoch, self.log_id = request.epoch, request.log_id


@dataclass(slots=True)
class _Away:
    topics: frozenset[str]
    until: float
    epoch: int
    log_id: str


class Registry:
    """The brokers that live, and those that are away."""

    def __init__(
        self,
        lease_s_max: float = 600.0,
        brokers_max: int = 1_000,
        topics_max: int = 100_000,
        away_s_max: float = 86_400.0,
        config: ConfigStore | None = None,
    ) -> None:
        self.config = config or ConfigStore()
        self._lease_s_max = lease_s_max
        self._brokers_max = brokers_max
        self._topics_max = topics_max
        self._away_s_max = away_s_max
        self._away: dict[str, _Away] = {}
        self._expected: dict[str, float] = {}  # brokers that others have named, and until when they are waited for
        self._unheard: dict[str, float] = {}  # the same brokers, and until when answers name them as away
        self._brokers: dict[str, _Broker] = {}
        self._by_address: dict[str, str] = {}
        self._readers = Copies()
        self._holders: dict[str, dict[str, TopicRoute]] = {}  # topic -> broker -> what it offers
        self._next_end = math.inf  # no lease ends before this

    def __len__(self) -> int:
        return len(self._brokers)

    def answer(self, request: Request, now: float) -> Result | None:
        """The result of a request at ``now``; None if it is none of the name server's."""
        self.expire(now)
        try:
            match request:
                case QueryRoute():
                    return self._route(request.topic, now)
                case BrokerHeartbeat():
                    return self._heartbeat(request, now)
                case RegisterBroker():
                    return self._register(request, now)
                case UnregisterBroker():
                    return self._unregister(request, now)
                case QueryTopics():
                    return self._topics(now)
                case PutConfig() | QueryConfig():
                    return self.config.answer(request)
        except PenstockError as error:
            return error.as_result()
        return None

    def figures(self, now: float) -> dict[str, float]:
        """The numbers of live brokers, of absent ones whose topics wait for them, and of topics with a broker."""
        return {
            "namesrv_brokers": len(self._brokers),
            "namesrv_brokers_away": sum([away.until > now for away in self._away.values()]),
            "namesrv_readers": len(self._readers),
            "namesrv_topics": len(self._holders) - sum([topic in self._holders for topic in GATEWAYS_TOPICS]),
        }

    def expire(self, now: float) -> list[str]:
        """Takes out the brokers whose leases have ended, and returns their names."""
        self._readers.expire(now)
        if now < self._next_end:
            return []
        gone = [name for name, broker in self._brokers.items() if broker.lease_ends <= now]
        for name in gone:
            self._leave(name, now)
        self._next_end = min((broker.lease_ends for broker in self._brokers.values()), default=math.inf)
        return gone

    # ------------------------------------------------------------ brokers

    def _register(self, request: RegisterBroker, now: float) -> Done:
        lease_ends = now + self._checked_lease(request.lease_s)
        if request.is_reader:
            return self._register_reader(request, lease_ends, now)
        known = self._brokers.get(request.broker)
        self._check_name_is_free(request, known, now)
        if known is None or (known.address, *known.topics.values()) != (request.address, *request.topics):
            self._check(request)
            self._take_out(request.broker)
            # Only one process can listen at an address: a broker of another name there has ended.
            self._take_out(self._by_address.get(request.address, ""))
            self._put_in(request)
        self._readers.leave(request.broker, request.address)
        self._away.pop(request.broker, None)
        self._expected.pop(request.broker, None)
        self._unheard.pop(request.broker, None)
        self._expect(request.peers, lease_ends, now)
        broker = self._brokers[request.broker]
        broker.tell(request)
        broker.lead(request)
        self._renew(broker, lease_ends)
        return Done()

    def _check_name_is_free(self, request: RegisterBroker, known: _Broker | None, now: float) -> None:
        """Raises ``InvalidRequest`` where another broker has the name, and ``Fenced`` for a node that leads no more."""
        if known is not None and known.address != request.address:
            is_same_log = _may_be_one(known.log_id, request.log_id)
            if not (is_same_log and known.epoch and request.epoch > known.epoch):
                if is_same_log and request.epoch < known.epoch:
                    raise _led_since(request, known.epoch)
                rest_s = known.lease_ends - now
                raise InvalidRequest(
                    f"broker {request.broker!r} is registered at {known.address} for another {rest_s:.0f} s",
                    hint=f"give the broker at {request.address} a name of its own",
                )
        highest = self._epoch_of(request.broker, request.log_id)
        if request.epoch and request.epoch < highest:
            raise _led_since(request, highest)

    def _epoch_of(self, name: str, log_id: str) -> int:
        """The highest epoch in which this log of a broker is known to be led."""
        found = [one for one in (self._brokers.get(name), self._away.get(name), *self._readers.of(name)) if one]
        return max([one.epoch for one in found if _may_be_one(one.log_id, log_id)], default=0)

    def _register_reader(self, request: RegisterBroker, lease_ends: float, now: float) -> Done:
        """A node that follows. If it is the one on file, or follows a later leader, that one leads no more."""
        self._check(request)
        known = self._brokers.get(request.broker)
        if known is not None and known.address == request.address and request.epoch < known.epoch:
            raise _led_since(request, known.epoch)
        if self._by_address.get(request.address, request.broker) != request.broker:
            self._take_out(self._by_address[request.address])
        self._readers.register(request, lease_ends)
        if known is not None and (known.address == request.address or known.epoch < request.epoch):
            self._leave(request.broker, now)
        self._unheard.pop(request.broker, None)
        self._expect(request.peers, lease_ends, now)
        return Done()

    def _check(self, request: RegisterBroker) -> None:
        if not _BROKER_NAME.fullmatch(request.broker):
            raise InvalidRequest("a broker's name has 1 to 255 characters of A-Z a-z 0-9 . _ -")
        try:
            split_address(request.address)
        except InvalidConfig as error:
            raise InvalidRequest(error.message, hint=error.hint) from None
        names = self._brokers.keys() | self._readers.brokers
        if request.broker not in names and len(names) >= self._brokers_max:
            raise Busy(f"this name server has its {self._brokers_max} brokers")
        if len(request.peers) > self._brokers_max or not all(map(_BROKER_NAME.fullmatch, request.peers)):
            raise InvalidRequest(f"peers are the names of at most {self._brokers_max} brokers")
        self._check_topics(request.topics, len(request.topics))

    def _check_topics(self, topics: tuple[TopicRoute, ...], total: int, queues_min: int = 1) -> None:
        if total > self._topics_max:
            raise TooLarge(f"a broker registers at most {self._topics_max} topics here, not {total}")
        if len({route.topic for route in topics}) != len(topics):
            raise InvalidRequest("a topic is registered twice")
        for route in topics:
            _check_topic(route, queues_min)

    def _check_changes(self, held: Mapping[str, TopicRoute], changed: tuple[TopicRoute, ...]) -> None:
        new = sum([route.topic not in held for route in changed if route.queues])
        self._check_topics(changed, len(held) + new, 0)

    def _checked_lease(self, lease_s: float) -> float:
        if not 0 < lease_s < math.inf:  # also refuses a NaN
            raise InvalidRequest(f"a lease of {lease_s} s")
        return min(lease_s, self._lease_s_max)

    def _heartbeat(self, request: BrokerHeartbeat, now: float) -> HeartbeatReply:
        lease_s = self._checked_lease(request.lease_s)
        version = request.before if request.topics else request.version
        if request.is_reader:
            return self._beat_of_reader(request, version, now + lease_s)
        broker = self._brokers.get(request.broker)
        on_file = (request.address, version, request.epoch)
        if broker is None or (broker.address, broker.version, broker.epoch) != on_file:
            return HeartbeatReply(False)
        if request.topics:
            self._check_changes(broker.topics, request.topics)
            self._offer(request.broker, broker, request.topics)
            broker.tell(request)
        self._renew(broker, now + lease_s)
        return HeartbeatReply(True)

    def _beat_of_reader(self, request: BrokerHeartbeat, version: int, lease_ends: float) -> HeartbeatReply:
        reader = self._readers.get(request.broker, request.address)
        if reader is None or (reader.version, reader.epoch) != (version, request.epoch):
            return HeartbeatReply(False)
        self._check_changes(reader.topics, request.topics)
        self._readers.beat(reader, request, lease_ends)
        return HeartbeatReply(True)

    def _unregister(self, request: UnregisterBroker, now: float) -> Done:
        self._readers.leave(request.broker, request.address)
        broker = self._brokers.get(request.broker)
        if broker is not None and broker.address == request.address:
            self._leave(request.broker, now)
        return Done()  # it is not registered, as requested

    def _leave(self, name: str, now: float) -> None:
        """A broker is away; it may come back with all that it has."""
        broker = self._brokers[name]
        self._take_out(name)
        self._away[name] = _Away(frozenset(broker.topics), now + self._away_s_max, broker.epoch, broker.log_id)
        if len(self._away) > self._brokers_max:
            del self._away[next(iter(self._away))]

    def _expect(self, peers: tuple[str, ...], until: float, now: float) -> None:
        """Brokers that this one saw before this process began: they may have topics that are not registered yet."""
        for name in peers:
            is_known = name in self._brokers or name in self._away or name in self._readers.brokers
            if not is_known and len(self._unheard) < self._brokers_max:
                self._expected.setdefault(name, until)
                self._unheard.setdefault(name, now + self._away_s_max)

    def _renew(self, broker: _Broker, lease_ends: float) -> None:
        broker.lease_ends = lease_ends
        self._next_end = min(self._next_end, lease_ends)

    def _put_in(self, request: RegisterBroker) -> None:
        broker = self._brokers[request.broker] = _Broker(
            request.address, request.version, {}, math.inf, request.epoch, request.log_id
        )
        self._by_address[request.address] = request.broker
        self._offer(request.broker, broker, request.topics)

    def _offer(self, name: str, broker: _Broker, topics: tuple[TopicRoute, ...]) -> None:
        for route in topics:
            if route.queues:
                broker.topics[route.topic] = route
                self._holders.setdefault(route.topic, {})[name] = route
            elif broker.topics.pop(route.topic, None) is not None:
                self._withdraw(name, route.topic)

    def _take_out(self, name: str) -> None:
        broker = self._brokers.pop(name, None)
        if broker is None:
            return
        del self._by_address[broker.address]
        for topic in broker.topics:
            self._withdraw(name, topic)

    def _withdraw(self, name: str, topic: str) -> None:
        """A broker has a topic no more."""
        holders = self._holders[topic]
        del holders[name]
        if not holders:
            del self._holders[topic]

    # ------------------------------------------------------------ questions

    def _route(self, topic: str, now: float) -> Route:
        self._forget(now)
        if not topic:
            live = [self._led(name, TopicRoute("", 0)) for name in self._brokers]
            return Route(tuple(sorted([*live, *self._read_only("")])), self._all_away())
        holders = self._holders.get(topic, {})
        found = [self._led(name, held) for name, held in holders.items()] + self._read_only(topic)
        if not found:
            self._check_unknown(topic)
        fixed = self.config.brokers_of(topic)
        places = {name: place for place, name in enumerate(fixed)}
        placed = [one._replace(place=places.get(one.broker, -1), places=len(fixed)) for one in sorted(found)]
        return Route(tuple(placed), self._away_with(topic, {one.broker for one in found}))

    def _led(self, name: str, held: TopicRoute) -> BrokerRoute:
        broker = self._brokers[name]
        readers = self._readers.addresses(name)
        return BrokerRoute(name, broker.address, held.queues, held.writable, epoch=broker.epoch, readers=readers)

    def _read_only(self, topic: str) -> list[BrokerRoute]:
        """The routes to brokers without a leader whose readers have the topic; to all of them for an empty topic."""
        found = [self._readers.route(name, topic) for name in self._readers.brokers if name not in self._brokers]
        return [one for one in found if one]

    def _topics(self, now: float) -> TopicNames:
        self._forget(now)
        read_only = [self._readers.topics(name) for name in self._readers.brokers if name not in self._brokers]
        found = self._holders.keys() | frozenset().union(*read_only)
        absent = {topic for away in self._away.values() for topic in away.topics if topic not in found}
        return TopicNames(tuple(sorted(found)), tuple(sorted(absent)), self._all_away())

    def _all_away(self) -> tuple[str, ...]:
        """The absent brokers, without those that have no leader and can be read."""
        return tuple(sorted([name for name in (*self._away, *self._unheard) if name not in self._readers.brokers]))

    def _away_with(self, topic: str, holders: Collection[str]) -> tuple[str, ...]:
        """Names of those that have a topic, or may have it, and cannot be asked now."""
        away = [name for name, one in self._away.items() if topic in one.topics and name not in holders]
        telling = [name for name, broker in self._brokers.items() if not broker.is_whole and name not in holders]
        return tuple(sorted([*away, *telling, *self._unheard]))

    def _forget(self, now: float) -> None:
        """Forgets brokers that were away for too long."""
        self._away = {name: one for name, one in self._away.items() if one.until > now}
        self._expected = {name: until for name, until in self._expected.items() if until > now}
        self._unheard = {name: until for name, until in self._unheard.items() if until > now}

    def _check_unknown(self, topic: str) -> None:
        """Raises ``NoRoute`` where a topic that no live broker has told of is, or may be, at one that is away or has
        not told all."""
        for name, away in self._away.items():
            if topic in away.topics:
                raise NoRoute(f"topic {topic!r} is at broker {name}, which is away")
        telling = [name for name, broker in self._brokers.items() if not broker.is_whole]
        telling += [
            name for name in self._readers.brokers if name not in self._brokers and self._readers.tells_still(name)
        ]
        if telling:
            raise NoRoute(f"broker {telling[0]} may have topic {topic!r}, and has not told all that it has yet")
        if self._expected:
            names = ", ".join(sorted(self._expected))
            raise NoRoute(f"no live broker has topic {topic!r}; {names} may have it, and did not come back yet")


def _may_be_one(log_id: str, other: str) -> bool:
    """Whether two may be one log: a broker need not name its own."""
    return not (log_id and other) or log_id == other


def _led_since(request: RegisterBroker, epoch: int) -> Fenced:
    return Fenced(
        f"broker {request.broker!r} is led in epoch {epoch}: {request.address} led it in epoch {request.epoch}"
    )


def _check_topic(route: TopicRoute, queues_min: int) -> None:
    try:
        check_topic(route.topic)
    except InvalidName as error:
        raise InvalidTopic(str(error)) from None
    if not queues_min <= route.queues <= QUEUES_MAX:
        raise InvalidRequest(f"topic {route.topic!r} with {route.queues} queues", hint=f"1 to {QUEUES_MAX} are allowed")
