"""The configuration's topic, followed and written: ``%24events``, one queue at one broker.

A writer appends a fact, follows the log up to it, and sees whether it stood there: no lock, no database, and any number
of instances that agree. What was written is known here before the writer is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import trio

from events.facts import ANY, NONE, TOPIC, Fact, Facts, encode, key_of
from events.problems import Problem
from penstock import Admin, MessageQueue, Producer, Reader
from penstock.errors import NoRoute, PenstockError, TopicNotFound
from penstock.protocol.link import Links

WRITE_S: Final = 20.0
AGAIN_S: Final = 1.0
_log = logging.getLogger(__name__)


class ConfigLog:
    """The configuration as this instance knows it.

    Attributes:
        facts: what stands.
    """

    def __init__(self, servers: Sequence[str], links: Links | None, admin: Admin, producer: Producer) -> None:
        self.facts = Facts()
        self._servers = ",".join(servers)
        self._links = links
        self._admin = admin
        self._producer = producer
        self._queue: MessageQueue | None = None
        self._changed = trio.Event()
        self._folded = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Follows the topic until cancelled; starts when all that was there is known."""
        broker, end = await self._ensure_topic()
        self._queue = MessageQueue(broker, TOPIC, 0)
        while True:
            try:
                async with Reader(
                    TOPIC, servers=self._servers, links=self._links, start="earliest", queues=[self._queue]
                ) as reader:
                    if self.facts.offset:
                        await reader.seek(self._queue, self.facts.offset)
                    while self.facts.offset < end:
                        self._fold(await anext(reader))
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    async for batch in reader:
                        self._fold(batch)
            except PenstockError as error:
                if not error.retryable and not isinstance(error, NoRoute):
                    raise
                _log.warning("the configuration cannot be read just now: %s", error)
                await trio.sleep(AGAIN_S)

    def _fold(self, batch: Sequence[Any]) -> None:
        changed = False
        for message in batch:
            key = message.key if isinstance(message.key, str) else ""
            changed |= self.facts.fold(message.offset, key, message.body, message.stored_ms)
        self._folded.set()
        self._folded = trio.Event()
        if changed:
            self._changed.set()
            self._changed = trio.Event()

    async def changed(self) -> None:
        """Waits until something changes from now on."""
        await self._changed.wait()

    async def write(self, kind: str, bus: str, name: str, spec: Any, replaces: int = ANY) -> Fact | None:
        """Sets or, with None, removes one value, and returns what stands then. Raises ``Problem`` where something else
        stood there than ``replaces``, and ``PenstockError``."""
        before = self.facts.get(kind, bus, name)
        if replaces not in (ANY, _revision_of(before)):
            raise _changed(before)
        assert self._queue is not None
        key = key_of(kind, bus, name)
        receipt = await self._producer.send(TOPIC, encode(spec, replaces), key=key, queue=self._queue)
        with trio.move_on_after(WRITE_S):
            while self.facts.offset <= receipt.offset:
                await self._folded.wait()
        if self.facts.offset <= receipt.offset:
            raise Problem(503, "not-known", "the change is stored, but was not read back in time; it may stand")
        now = self.facts.get(kind, bus, name)
        if now is not None and now.revision == receipt.offset + 1:
            return now
        if spec is None and now is None:
            return None
        raise _changed(now)

    async def _ensure_topic(self) -> tuple[str, int]:
        """The broker that has the topic, and how far there is something to read in its queue: 0 for nothing."""
        while True:
            try:
                try:
                    found = await self._admin.topic(TOPIC)
                except TopicNotFound:
                    first = min([one.broker for one in await self._admin.brokers()])
                    found = await self._admin.create_topic(TOPIC, queues=1, level="disk", broker=first)
                    await self._admin.change_topic(TOPIC, retention_s=0, broker=first)
                at = min(found, key=lambda one: one.broker)
                [bounds, *_] = at.bounds
                return at.broker, bounds.end if bounds.min < bounds.end else 0
            except (PenstockError, ValueError) as error:
                _log.warning("the configuration's topic is not there yet: %s", error)
                await trio.sleep(AGAIN_S)


def _revision_of(fact: Fact | None) -> int:
    return fact.revision if fact else NONE


def _changed(now: Fact | None) -> Problem:
    revision = _revision_of(now)
    return Problem(412, "changed", f"the revision that stands is {revision}", revision=revision)
