"""An event bridge: built bottom up in ``run``, which tests use too, and served until it is cancelled."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from events.addresses import AllowedAddresses
from events.callers import Callers
from events.catalogue import Catalogue
from events.config_log import ConfigLog
from events.connecting import Connector
from events.contract_book import ContractBook
from events.counts import RuleCounts, figures_of
from events.desk import Desk
from events.exact import ExactSends
from events.face import DEFAULT_BUS, Face
from events.facts import NONE
from events.ingest import Ingest
from events.problems import Problem
from events.pushing import Pusher
from events.resting import Resting
from events.rules import Rules, keep_catalogue
from events.runner import Assignment, Checks, Rest, Runner
from events.settings import EventsSettings
from penstock import Admin, Producer, Reader
from penstock.errors import PenstockError
from penstock.protocol.link import Links
from penstock.service.access_files import AccessFiles
from penstock.service.http_logins import HttpLogins
from penstock.service.http_server import HTTP, HttpLimits, serve_http
from penstock.service.status import open_socket
from penstock.service.topic_rate import TopicRate
from penstock.world import Clock, World

HEAD_BYTES_MAX: Final = 64 * 1024
IDLE_S: Final = 60.0
STOP_S: Final = 1.0
PENDING_MAX: Final = 100_000
_log = logging.getLogger(__name__)


class RunningEvents:
    """An event bridge that accepts requests.

    Attributes:
        host, port: where.
    """

    def __init__(self, host: str, port: int, ingest: Ingest, rules: Rules, clock: Clock) -> None:
        self.host = host
        self.port = port
        self._ingest = ingest
        self._rules = rules
        self._clock = clock

    def figures(self) -> Mapping[str, float]:
        """Its figures."""
        ingest = self._ingest
        counts = {"events_received_total": ingest.received, "events_refused_total": ingest.refused}
        counts["events_flagged_total"] = ingest.flagged
        return counts | figures_of(self._rules.counts, self._clock.wall_ms())

    def reasons(self) -> Sequence[str]:
        """The reasons why it is not ready: none, it accepts."""
        return ()


async def run(
    settings: EventsSettings,
    world: World,
    links: Links,
    *,
    task_status: trio.TaskStatus[RunningEvents] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled; reports itself once it accepts. Raises ``AddressInUse`` and ``InvalidConfig``."""
    access = AccessFiles(settings, world, None, HTTP, "the event bridge")
    listening = open_socket(settings.host, settings.port, "the event bridge")
    servers = ",".join(settings.namesrv)
    producer = Producer(servers=servers, links=links, pending_max=PENDING_MAX, rng=world.rng)
    connector = Connector(AllowedAddresses(settings.private_targets))
    exact = ExactSends(
        servers, links, world.clock, TopicRate(settings.rule_topics_per_min_max, "rule_topics_per_min_max")
    )
    secrets = Path(settings.secrets) if settings.secrets else None
    async with (
        producer,
        Admin(servers, links=links) as admin,
        Pusher(connector, producer, exact, secrets, world.clock) as pusher,
        trio.open_nursery() as nursery,
    ):
        config = ConfigLog(settings.namesrv, links, admin, world)
        await nursery.start(config.run)
        catalogue = Catalogue(config.facts)
        contracts = ContractBook(config.facts)
        ingest = Ingest(config, producer, catalogue, contracts)
        checks = Checks(contracts, catalogue)

        def make(assignment: Assignment, counts: RuleCounts, rest: Rest) -> Runner:
            return Runner(assignment, pusher, checks, counts, rest, world, servers, links, settings.session_s)

        def open_reader(topic: str) -> Reader:
            return Reader(topic, servers=servers, links=links, start="latest", rng=world.rng)

        rules = Rules(config, admin, make, Resting(open_reader))
        desk = Desk(config, admin, rules, catalogue, world.clock)
        await _ensure_default(desk)
        nursery.start_soon(rules.run)
        nursery.start_soon(keep_catalogue, catalogue, config)
        host, port = listening.getsockname()[:2]
        logins = HttpLogins(access, Problem, takes_clear=settings.insecure)
        face = Face(desk, ingest, Callers(settings.hosts), logins, settings.body_bytes_max)
        nursery.start_soon(access.run)
        nursery.start_soon(access.keep_audit, "event bridge", links, settings.namesrv)
        limits = HttpLimits(IDLE_S, HEAD_BYTES_MAX, STOP_S)
        await nursery.start(partial(serve_http, face.app, listening, access.certificates, _log, limits))
        task_status.started(RunningEvents(host, port, ingest, rules, world.clock))


async def _ensure_default(desk: Desk) -> None:
    """A cluster without any bus gets one, so that a first event has a place."""
    if not desk.rows("bus", None):
        try:
            await desk.put("bus", DEFAULT_BUS, "", {}, NONE)
        except (Problem, PenstockError) as error:
            _log.info("the bus %s is not made: %s", DEFAULT_BUS, error)
