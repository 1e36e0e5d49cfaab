"""The running gateway: listener, shards, ticker, and an orderly end.

``run`` puts the parts together, serves until it is cancelled, and then says goodbye: the listener closes first,
every client gets 0x8B (MQTT 5) and is closed, wills are published, and what was sent to the brokers has a moment to
be answered.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio

from gateway.build import Gateway, build, made_up_name
from gateway.connections.drain import Drain
from gateway.connections.journal import Journal
from gateway.connections.listeners import Listeners
from gateway.figures import Figures
from gateway.health import Health
from gateway.limits.quotas import Quotas
from gateway.live import LiveGatewaySettings
from gateway.login.access import Access
from gateway.login.attempts import Attempts
from gateway.login.verifier import Bell, Verifier
from gateway.net.poller import EpollPoller
from gateway.publishing.spans import open_spans
from gateway.publishing.sys_topics import SysTopics
from gateway.settings import GatewaySettings, token_rules
from gateway.transports.listening import anonymous_at
from penstock.protocol.link import Links
from penstock.protocol.requests.routes import GATEWAY_SETTINGS
from penstock.service.audit import Audit
from penstock.service.audit_keeping import at_brokers, keep_audit
from penstock.world import Clock, World, guarded, new_secret

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
    quotas, bell = Quotas(), Bell()
    audit = Audit(world.clock.wall_ms, world.clock.monotonic)
    journal = Journal(settings.connection_log, audit)
    access = _access(settings, quotas, world, bell.ring, audit)
    pollers = [EpollPoller() for _ in range(settings.shards)]
    settings = replace(settings, name=settings.name or made_up_name(world.rng))
    spans = open_spans(settings.trace_export, settings.name, settings.trace_sample)
    call = pollers[0].wake
    gateway = build(settings, world.clock, links, world.rng, access, call, pollers, quotas, journal, spans)
    files = (settings.password_file, settings.acl_file, settings.jwt_key_file)
    verifier = Verifier(
        access,
        world,
        bell,
        *files,
        token_rules(settings),
        on_rules=gateway.judge_again,
        on_users=gateway.users_changed,
    )
    drain = Drain(settings, gateway.connections, gateway.rounds, settings.drain_per_s)
    sys_topics = SysTopics(
        gateway.upstream, settings.sys_prefix, gateway.name, settings.sys_every_s, gateway.rounds.now
    )
    try:
        listeners = Listeners(settings, gateway.services, gateway.shards)
        now, upstream = gateway.rounds.now, gateway.upstream
        health = Health(gateway.brokers, gateway.home, upstream, drain, listeners.trouble, now, clock.witness)
        figures = Figures(
            gateway,
            health=health,
            access=access,
            verifier=verifier,
            certificates=listeners.certificates_end_at,
            clock=clock.figures,
        )
        stages = (gateway.tick, drain.tick, health.tick, listeners.tick)

        def reload() -> None:
            verifier.look_again()
            listeners.reload()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_audit, audit.trail, gateway.name, at_brokers(links, settings.namesrv))
                nursery.start_soon(verifier.run)
                for shard in gateway.shards:
                    nursery.start_soon(shard.run)
                live = LiveGatewaySettings(settings, journal, spans)
                nursery.start_soon(Ticker(settings, world.clock, gateway, stages, figures, sys_topics, live).run)
                nursery.start_soon(listeners.run)
                task_status.started(
                    RunningGateway(
                        listeners.host, listeners.port, figures.read, health.reasons, drain, listeners.further, reload
                    )
                )
        finally:
            listeners.close()
            with trio.CancelScope(shield=True):
                await _say_goodbye(gateway, sys_topics)
    finally:
        _close(gateway)


def _access(settings: GatewaySettings, quotas: Quotas, world: World, wake: Callable[[], None], audit: Audit) -> Access:
    """Who may come and do what. ``wake``: called when there is something to check. ``audit``: of refused logins."""
    now = world.clock.monotonic
    return Access(
        settings.anonymous,
        settings.checks_max,
        settings.credentials_cached_s,
        new_secret(),
        wake,
        now,
        Attempts(settings.address_failed_logins_per_min_max, quotas.refuse, now, audit),
        anonymous_at(settings.listeners),
    )


class Ticker:
    """The task that calls everything which happens by the clock."""

    def __init__(
        self,
        settings: GatewaySettings,
        clock: Clock,
        gateway: Gateway,
        stages: Sequence[Callable[[float], None]],
        figures: Figures,
        sys_topics: SysTopics,
        live: LiveGatewaySettings,
    ) -> None:
        """``stages`` are called with the time at each tick."""
        self._settings = settings
        self._clock = clock
        self._gateway = gateway
        self._stages = stages
        self._figures = figures
        self._sys_topics = sys_topics
        self._live = live

    async def run(self) -> None:
        """Ticks until cancelled."""
        refresh_at = 0.0
        brokers, rounds = self._gateway.brokers, self._gateway.rounds
        while True:
            now = self._clock.monotonic()
            if now >= refresh_at:
                refresh_at = now + (self._settings.route_refresh_s if brokers.known else TICK_S)
                brokers.refresh()
                brokers.read_config(GATEWAY_SETTINGS, self._live.take)
            brokers.tick(now)
            rounds.come_to(now)
            for tick in self._stages:
                tick(now)
            if self._sys_topics.is_due(now):
                self._sys_topics.tell(self._figures.sums(), now)
            for shard in self._gateway.shards:
                shard.tick(now)
            rounds.wake()
            await trio.sleep(TICK_S)


async def _say_goodbye(gateway: Gateway, sys_topics: SysTopics) -> None:
    rounds, upstream, home = gateway.rounds, gateway.upstream, gateway.home
    rounds.begin()
    gateway.connections.close()
    sys_topics.take_back()
    rounds.finish()
    for shard in gateway.shards:
        shard.write_out()
    with trio.move_on_after(GOODBYE_S):
        while upstream.unanswered or home.unanswered:
            await trio.sleep(0.01)
            rounds.finish()
        left = trio.Event()
        gateway.lease.leave(left.set)
        while not left.is_set():
            rounds.finish()
            await trio.sleep(0.01)


def _close(gateway: Gateway) -> None:
    for shard in gateway.shards:
        shard.close()
    if gateway.upstream.spans is not None:
        gateway.upstream.spans.close()
