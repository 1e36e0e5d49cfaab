"""The composition of a gateway: makes each object once, from what it uses, and rewires nothing later.

``build`` opens nothing and never waits. The running service (``gateway/server.py``) adds sockets, files and tasks; the
tests (``tests/gateway/rig.py``) build the same gateway on a broker in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gateway.brokers import Brokers
from gateway.connections.client_ids import ClientIds
from gateway.connections.connecting import Connecting, Rules, SessionParts
from gateway.connections.connections import Connections
from gateway.connections.disconnecting import Disconnecting
from gateway.connections.journal import Journal
from gateway.connections.lease import GatewayLease
from gateway.connections.lease_recovery import LeaseRecovery
from gateway.connections.operator_questions import OperatorQuestions
from gateway.connections.pending_connects import PendingConnects
from gateway.connections.refusals import Refusals
from gateway.connections.rejudging import Rejudging
from gateway.connections.removals import Removals
from gateway.connections.services import Services
from gateway.connections.takeover import Takeover
from gateway.connections.timeouts import ConnectionTimeouts
from gateway.connections.turns import Turns
from gateway.connections.wills import Wills
from gateway.delivery.downstream import Downstream
from gateway.limits.counters import Counters
from gateway.limits.creations import Creations
from gateway.limits.half_open import HalfOpens
from gateway.limits.limits import Limits, Stalls
from gateway.limits.memory_budget import MemoryBudget
from gateway.limits.quotas import Quotas
from gateway.limits.rates import Crowd, Door, Pacing, Takeovers
from gateway.login.auth import Authenticator
from gateway.mqtt.reason_codes import ReasonCode
from gateway.net.poller import Poller
from gateway.net.rounds import Rounds
from gateway.net.shard import Shard
from gateway.publishing.judging import Judge
from gateway.publishing.upstream import Spans, Upstream
from gateway.sessions.exchange_ids import ExchangeIds
from gateway.sessions.saver import SessionSaver
from gateway.sessions.session import Session
from gateway.sessions.store import SessionStore
from gateway.sessions.watch import SessionWatch
from gateway.settings import GatewaySettings, parse_rules
from penstock.protocol.link import Links
from penstock.world import Clock, Rng
from topicmap.queues import TopicMap


@dataclass(frozen=True, slots=True)
class Gateway:
    """All parts of one gateway.

    Attributes:
        name: under which brokers know it.
        sessions: those that are here, by client.
        ticks: what happens by the clock, in this order, about twice a second.
    """

    name: str
    settings: GatewaySettings
    rounds: Rounds
    shards: Sequence[Shard]
    brokers: Brokers
    quotas: Quotas
    upstream: Upstream
    downstream: Downstream
    sessions: dict[str, Session]
    home: SessionStore
    saver: SessionSaver
    wills: Wills
    lease: GatewayLease
    watch: SessionWatch
    lease_recovery: LeaseRecovery
    connections: Connections
    rejudging: Rejudging
    removals: Removals
    takeovers: Takeovers
    services: Services
    ticks: Sequence[Callable[[float], None]]

    def tick(self, now: float) -> None:
        """Everything that is due."""
        self.upstream.retry()
        for tick in self.ticks:
            tick(now)

    def judge_again(self) -> None:
        """The access rules have changed: what a connected client may no longer do ends."""
        self.rejudging.begin(self.connections)

    def users_changed(self) -> None:
        """There is another password file: connections of users who are not in it any more end."""
        self.removals.users_changed(self.rounds.now)


class _Kept(NamedTuple):
    """The session store with what saves, renews and recovers sessions."""

    home: SessionStore
    saver: SessionSaver
    exchanges: ExchangeIds
    wills: Wills
    pending_connects: PendingConnects
    lease: GatewayLease
    lease_recovery: LeaseRecovery


def build(
    settings: GatewaySettings,
    clock: Clock,
    links: Links,
    rng: Rng,
    authenticator: Authenticator,
    call: Callable[[], None],
    pollers: Sequence[Poller],
    quotas: Quotas,
    journal: Journal,
    spans: Spans | None = None,
) -> Gateway:
    """Makes a gateway. ``call``: how a round is called for from outside of one. ``pollers``: one for each shard.
    ``journal``: the log of connections. ``spans``: the recorder of traces; ``None`` without one."""
    name = settings.name or made_up_name(rng)
    rounds = Rounds(clock, call)
    shards = [Shard(poller, rounds, settings.output_bytes_max) for poller in pollers]
    brokers = Brokers(links, settings.namesrv, rounds.wake_last)
    epoch = _new_epoch(rng)
    names = TopicMap(parse_rules(settings.topic_rules))
    upstream = Upstream(brokers, names, settings.append_bytes_max, rounds, epoch, spans)
    limits, creations = Limits(settings, quotas), Creations(settings, quotas)
    judge = Judge(authenticator, upstream, limits)
    sessions: dict[str, Session] = {}
    kept = _kept(settings, name, rng, brokers, upstream, judge, creations, sessions)
    home, saver, exchanges, wills, pending_connects, lease, lease_recovery = kept
    may_publish = authenticator.may_publish
    downstream = Downstream(brokers, settings, name, clock, saver, rounds, upstream.topic_of, may_publish, spans)
    connections = _connections(settings, quotas, rounds, journal)
    takeovers = Takeovers(settings.takeovers_per_min_max)
    client_ids = ClientIds(settings, authenticator, home, quotas, rng)
    rejudging = Rejudging(judge, authenticator.may_stay, downstream, rounds.wake)
    refusals = Refusals(connections, Door(settings), limits, quotas, client_ids, rounds)
    rules = Rules(refusals, authenticator, client_ids, judge, rejudging, takeovers, limits, quotas)
    parts = SessionParts(home, pending_connects, exchanges, brokers, downstream)
    connecting = Connecting(settings, rules, parts, connections, sessions, rounds)
    disconnecting = Disconnecting(
        connections, sessions, pending_connects, home, saver, exchanges, wills, upstream, downstream, rounds
    )
    takeover = Takeover(sessions, pending_connects, wills, takeovers, rounds)
    watch = SessionWatch(home, takeover.called, OperatorQuestions(sessions, connections, rounds).answer, rounds.wake)
    turns, removals = Turns(rounds, connections.failed), Removals(authenticator.is_gone)
    pacing, room = Pacing(settings, quotas), MemoryBudget(settings, quotas, shards)
    services = Services(
        settings, rounds, authenticator, judge, limits, quotas, pacing, room, creations, upstream, downstream, saver,
        exchanges, connections, connecting, disconnecting, turns,
    )  # fmt: skip
    rounds.ends_with(lease_recovery, rejudging, turns, downstream, saver, exchanges, upstream, brokers)
    ticks = (downstream.tick, *_ticks(settings, quotas, connections, services, removals), *_kept_ticks(kept, watch))
    return Gateway(
        name, settings, rounds, shards, brokers, quotas, upstream, downstream, sessions, home, saver, wills, lease,
        watch, lease_recovery, connections, rejudging, removals, takeovers, services, ticks,
    )  # fmt: skip


def made_up_name(rng: Rng) -> str:
    """The name of a gateway that its settings give none."""
    return f"gateway-{rng.getrandbits(48):012x}"


def _new_epoch(rng: Rng) -> str:
    return f"{rng.getrandbits(64):016x}"


def _kept(
    settings: GatewaySettings,
    name: str,
    rng: Rng,
    brokers: Brokers,
    upstream: Upstream,
    judge: Judge,
    creations: Creations,
    sessions: dict[str, Session],
) -> _Kept:
    rounds = upstream.rounds
    home = SessionStore(brokers, name, rounds.wake, upstream.note_over)
    saver = SessionSaver(home, settings.output_bytes_max, rounds.wake)
    wills = Wills(home, upstream, rounds, judge.may_leave, creations)
    pending_connects = PendingConnects(home, wills)
    new_epoch = partial(_new_epoch, rng)
    lease = GatewayLease(home, wills, settings.session_lease_s, rounds.wake, upstream.epoch, new_epoch)
    lease_recovery = LeaseRecovery(lease, home, upstream, wills, pending_connects, sessions.values)
    return _Kept(home, saver, ExchangeIds(brokers, rounds.wake), wills, pending_connects, lease, lease_recovery)


def _connections(settings: GatewaySettings, quotas: Quotas, rounds: Rounds, journal: Journal) -> Connections:
    return Connections(
        Counters(),
        HalfOpens(),
        Crowd(settings.address_connections_max),
        ConnectionTimeouts(settings.connect_wait_s, quotas, rounds),
        journal,
        ReasonCode.SERVER_MOVED if settings.has_moved else 0,
    )


def _ticks(
    settings: GatewaySettings, quotas: Quotas, connections: Connections, services: Services, removals: Removals
) -> list[Callable[[float], None]]:
    """What is due of connections."""
    stalls = Stalls(settings, quotas)
    return [
        partial(stalls.tick, connections),
        partial(services.room.tick, connections),
        partial(removals.tick, connections),
        services.pacing.tick,
        connections.journal.tick,
        connections.timeouts.tick,
    ]


def _kept_ticks(kept: _Kept, watch: SessionWatch) -> list[Callable[[float], None]]:
    """What is due of sessions."""
    return [
        lambda now: kept.saver.tick(),
        lambda now: kept.lease_recovery.tick(),
        kept.wills.tick,
        lambda now: kept.home.tick(),
        kept.lease.tick,
        lambda now: watch.tick(),
    ]
