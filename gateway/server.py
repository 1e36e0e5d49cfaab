"""The running gateway: listener, shards, ticker, and an orderly end.

``run`` puts the parts together, serves until it is cancelled, and then says goodbye: the listener closes first,
every client is told 0x8B (MQTT 5) and closed, wills are published, and what was sent to the brokers has a moment to
be answered.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from gateway.brokers import Brokers
from gateway.devices.drain import Drain
from gateway.devices.front import Front
from gateway.devices.reception import Reception, SessionParts
from gateway.downstream import Downstream
from gateway.figures import Figures
from gateway.health import Health
from gateway.homes.exchanges import ExchangeIds
from gateway.homes.home import SessionHome
from gateway.homes.keeping import Keeping
from gateway.homes.wills import Wills
from gateway.limits.quotas import Quotas
from gateway.login.access import Access
from gateway.login.attempts import Attempts
from gateway.login.verifier import Verifier
from gateway.publishing.sys_topics import SysTopics
from gateway.publishing.upstream import Upstream
from gateway.settings import GatewaySettings, parse_rules, token_rules
from gateway.shards.poller import EpollPoller
from gateway.shards.rounds import Rounds
from gateway.shards.shard import Shard
from gateway.transports.listening import anonymous_at
from penstock.protocol.link import Links
from penstock.world import World, guarded, new_secret
from topicmap.queues import TopicMap

TICK_S: Final = 0.5
GOODBYE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that accepts connections. ``listeners``: name and address of those beside ``host`` and ``port``.
    ``figures``: by metric name. ``reasons``: why no traffic should come here. ``reload``: reads certificates, passwords
    and access rules again, now."""

    host: str
    port: int
    figures: Callable[[], Mapping[str, float]]
    reasons: Callable[[], Sequence[str]]
    drain: Drain
    listeners: Mapping[str, str]
    reload: Callable[[], None]


async def obey(gateway: RunningGateway, signals: AsyncIterable[int]) -> None:
    """Does what an operator's signals ask of a gateway (``penstock.service.service_main.operator_signals``)."""
    async for number in signals:
        if number == signal.SIGUSR1:
            gateway.drain.begin()
        elif number == signal.SIGHUP:
            gateway.reload()


async def run(
    settings: GatewaySettings,
    world: World,
    links: Links,
    *,
    task_status: trio.TaskStatus[RunningGateway] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves MQTT until cancelled. Raises ``AddressInUse`` or ``InvalidConfig`` before it reports itself."""
    world, clock = guarded(world)
    rounds = Rounds(clock)
    brokers = Brokers(links, settings.namesrv, rounds.wake_last)
    upstream = Upstream(brokers, TopicMap(parse_rules(settings.topic_rules)), settings.append_bytes_max, rounds)
    owner = settings.name or f"gateway-{world.rng.getrandbits(48):012x}"
    home = SessionHome(
        brokers, owner, settings.session_lease_s, rounds.wake, lambda: f"{world.rng.getrandbits(64):016x}"
    )
    keeping = Keeping(home, settings.output_bytes_max, rounds.wake)
    exchanges = ExchangeIds(brokers, rounds.wake)
    parts = SessionParts(home, keeping, exchanges, Wills(home, upstream, rounds), brokers)
    downstream = Downstream(brokers, settings, owner, clock, keeping, rounds, upstream.topic_of)
    quotas = Quotas()
    access = _access(settings, quotas, world, lambda: verifier.wake())
    files = (settings.password_file, settings.acl_file, settings.jwt_key_file)
    verifier = Verifier(access, world, *files, token_rules(settings))
    reception = Reception(settings, access, upstream, downstream, parts, quotas, rounds, world.rng)
    access.on_rules, access.on_users = reception.judge_again, reception.users_changed
    rounds.ends_with(reception.rejudging, reception.turns, downstream, keeping, exchanges, upstream, brokers)
    pollers = [EpollPoller() for _ in range(settings.shards)]
    shards = [Shard(poller, rounds, settings.output_bytes_max) for poller in pollers]
    rounds.called_by(pollers[0].wake)
    figures = Figures(reception, upstream, downstream, quotas)
    drain = Drain(reception, settings.drain_per_s)
    told = SysTopics(upstream, settings.sys_prefix, owner, settings.sys_every_s, rounds.now)
    try:
        front = Front(settings, reception, shards)

        def reload() -> None:
            verifier.look_again()
            front.reload()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(verifier.run)
                for shard in shards:
                    nursery.start_soon(shard.run)
                health = Health(brokers, home, upstream, drain, front.trouble, rounds.now, clock.witness)
                figures.health, figures.certificates = health, front.certificates_end_at
                figures.shards = reception.room.shards = shards
                figures.access, figures.verifier, figures.clock = access, verifier, clock.figures
                stages = (downstream.tick, reception.tick, drain.tick, health.tick, front.tick)
                nursery.start_soon(Ticker(settings, world, brokers, upstream, stages, shards, figures, told).run)
                nursery.start_soon(front.run)
                task_status.started(
                    RunningGateway(front.host, front.port, figures.read, health.reasons, drain, front.listeners, reload)
                )
        finally:
            front.close()
            with trio.CancelScope(shield=True):
                await _say_goodbye(reception, upstream, rounds, shards, told)
    finally:
        for shard in shards:
            shard.close()


def _access(settings: GatewaySettings, quotas: Quotas, world: World, wake: Callable[[], None]) -> Access:
    """Who may come and do what. ``wake``: called when there is something to check."""
    now = world.clock.monotonic
    return Access(
        settings.anonymous,
        settings.checks_max,
        settings.credentials_cached_s,
        new_secret(),
        wake,
        now,
        Attempts(settings.address_failed_logins_per_min_max, quotas.refuse, now),
        anonymous_at(settings.listeners),
    )


class Ticker:
    """Whatever happens by the clock."""

    def __init__(
        self,
        settings: GatewaySettings,
        world: World,
        brokers: Brokers,
        upstream: Upstream,
        stages: Sequence[Callable[[float], None]],
        shards: Sequence[Shard],
        figures: Figures,
        told: SysTopics,
    ) -> None:
        """``stages`` are told the time at each tick."""
        self._settings = settings
        self._figures = figures
        self._told = told
        self._clock = world.clock
        self._brokers = brokers
        self._upstream = upstream
        self._rounds = upstream.rounds
        self._stages = stages
        self._shards = shards

    async def run(self) -> None:
        refresh_at = 0.0
        while True:
            now = self._clock.monotonic()
            if now >= refresh_at:
                refresh_at = now + (self._settings.route_refresh_s if self._brokers.known else TICK_S)
                self._brokers.refresh()
            self._brokers.tick(now)
            self._rounds.now = now
            self._upstream.retry()
            for tick in self._stages:
                tick(now)
            if self._told.is_due(now):
                self._told.tell(self._figures.sums(), now)
            for shard in self._shards:
                shard.tick(now)
            self._rounds.wake()
            await trio.sleep(TICK_S)


async def _say_goodbye(
    reception: Reception, upstream: Upstream, rounds: Rounds, shards: Sequence[Shard], told: SysTopics
) -> None:
    rounds.begin()
    reception.close()
    told.take_back()
    rounds.finish()
    for shard in shards:
        shard.write_out()
    with trio.move_on_after(GOODBYE_S):
        while upstream.unanswered or reception.home.unanswered:
            await trio.sleep(0.01)
            rounds.finish()
        left = trio.Event()
        reception.home.leave(left.set)
        while not left.is_set():
            rounds.finish()
            await trio.sleep(0.01)
