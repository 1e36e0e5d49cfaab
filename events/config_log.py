"""The configuration, followed and written: retained messages of the topic ``%24events``, one queue at one broker.

A writer sends a fact with the revision that it replaces; the broker takes it or refuses it. So any number of instances
agree, without a lock or a database. A written value is known here before the writer is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import trio

from events.fact_tasks import standing, store, stored_of
from events.facts import ANY, NONE, TOPIC, Fact, Facts, StoredFact, name_of, record_of
from events.problems import Problem
from penstock import Admin, MessageQueue, Reader, ReceivedMessage
from penstock.errors import NoRoute, NotAuthorized, PenstockError, RetainedChanged, TopicNotFound
from penstock.protocol.link import Links
from penstock.world import World

WRITE_S: Final = 20.0
AGAIN_S: Final = 1.0
SOON_S: Final = 0.1
_log = logging.getLogger(__name__)


class ConfigLog:
    """The configuration as this instance knows it.

    Attributes:
        facts: the current facts.
    """

    def __init__(self, servers: Sequence[str], links: Links, admin: Admin, world: World) -> None:
        self.facts = Facts()
        self._servers = ",".join(servers)
        self._links = links
        self._admin = admin
        self._world = world
        self._broker = ""
        self._changed = trio.Event()
        self._folded = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Follows the topic until cancelled; starts when all that stands is known."""
        self._broker = await self._ensure_topic()
        queue = MessageQueue(self._broker, TOPIC, 0)
        while True:
            try:
                async with Reader(TOPIC, servers=self._servers, links=self._links, queues=[queue]) as reader:
                    found = await self._admin.run(standing(self._broker))
                    await reader.seek(queue, found.offset)
                    self.facts.begin(found.facts)
                    self._tell(changed=True)
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await self._follow(reader, found.offset)
            except PenstockError as error:
                if not error.retryable and not isinstance(error, NoRoute):
                    raise
                is_new = isinstance(error, NoRoute)  # name servers hear of a new topic in a moment
                _log.log(logging.INFO if is_new else logging.WARNING, "the configuration cannot be read: %s", error)
                await trio.sleep(SOON_S if is_new else AGAIN_S)

    async def _follow(self, reader: Reader, offset: int) -> None:
        """Folds the log from an offset on; returns where some of it is not there any more."""
        async for batch in reader:
            if batch and batch[0].offset != offset:
                return
            offset = batch[-1].offset + 1
            self._tell(changed=any([self.facts.fold(_stored(message)) for message in batch]))

    def _tell(self, *, changed: bool) -> None:
        self._folded.set()
        self._folded = trio.Event()
        if changed:
            self._changed.set()
            self._changed = trio.Event()

    async def changed(self) -> None:
        """Waits until something changes from now on."""
        await self._changed.wait()

    async def write(self, kind: str, bus: str, name: str, spec: Any, replaces: int = ANY) -> Fact | None:
        """Sets or, with None, removes one value, and returns the value that stands then. Raises ``Problem`` where
        something else stood there than ``replaces``, and ``PenstockError``."""
        write = f"{self._world.rng.getrandbits(64):016x}"
        with trio.move_on_after(WRITE_S):
            while True:
                before = self.facts.get(kind, bus, name)
                if before is not None and before.write == write:
                    return before  # the answer to its attempt was lost
                if replaces not in (ANY, _revision_of(before)):
                    raise _changed(before)
                if spec is None and before is None:
                    return None
                position = await self._store(kind, bus, name, spec, before, write)
                if position is None:
                    continue
                while self.facts.position < position:
                    await self._folded.wait()
                now = self.facts.get(kind, bus, name)
                return now if spec is not None else None
        raise Problem(503, "not-known", "the change was not read back in time; it may stand")

    async def _store(self, kind: str, bus: str, name: str, spec: Any, before: Fact | None, write: str) -> int | None:
        """Stores a fact and returns its log position. None where the answer was lost, or where another fact came first,
        which is folded here by then."""
        at, created_ms = _revision_of(before), before.created_ms if before else 0
        record = record_of(name_of(kind, bus, name), spec, at, created_ms, write, self._world.clock.wall_ms())
        try:
            return await self._admin.run(store(self._broker, record))
        except RetainedChanged:
            while _revision_of(self.facts.get(kind, bus, name)) == at:
                await self._folded.wait()
        except PenstockError as error:
            if not error.retryable:
                raise
            _log.info("a change of the configuration is sent again: %s", error)
            await trio.sleep(AGAIN_S)
        return None

    async def _ensure_topic(self) -> str:
        """The broker that has the topic."""
        while True:
            try:
                try:
                    found = await self._admin.topic(TOPIC)
                except TopicNotFound:
                    first = min([one.broker for one in await self._admin.brokers()])
                    found = await self._admin.create_topic(TOPIC, queues=1, level="disk", broker=first)
                return min([one.broker for one in found])
            except NotAuthorized as error:
                hint = "give the bridge the cluster_secret_file of the broker"
                raise NotAuthorized(f"the broker does not know this bridge: {error.message}", hint=hint) from None
            except (PenstockError, ValueError) as error:
                _log.warning("the configuration's topic is not there yet: %s", error)
                await trio.sleep(AGAIN_S)


def _stored(message: ReceivedMessage) -> StoredFact:
    try:
        return stored_of(message)
    except PenstockError:
        return StoredFact(message.position, "", b"", 0)  # damaged: no fact


def _revision_of(fact: Fact | None) -> int:
    return fact.revision if fact else NONE


def _changed(now: Fact | None) -> Problem:
    revision = _revision_of(now)
    return Problem(412, "changed", f"the revision that stands is {revision}", revision=revision)
