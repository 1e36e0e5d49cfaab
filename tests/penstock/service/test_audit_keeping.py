"""The task that stores a trail: in virtual time, with a store that fails as long as the test wants."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from penstock.errors import TooLarge, Unavailable
from penstock.protocol.requests.messages import AuditEntry, TellAudited
from penstock.service.audit import Trail
from penstock.service.audit_keeping import EVERY_S, GOODBYE_S, keep_audit

ONE, TWO = [AuditEntry(at, "ada", "scram", "a", "DeleteTopic", f"t{at}", True) for at in (1, 2)]


class Broker:
    """It takes entries, unless it is away."""

    def __init__(self) -> None:
        self.is_away = self.is_silent = False
        self.bytes_max = 1_000_000
        self.taken: list[TellAudited] = []

    async def store(self, request: TellAudited) -> None:
        if self.is_silent:
            await trio.sleep_forever()
        if self.is_away:
            raise Unavailable("away")
        if len(repr(request)) > self.bytes_max:
            raise TooLarge("too large")
        self.taken.append(request)


async def test_entries_are_stored_each_second_and_again_until_a_broker_takes_them() -> None:
    trail, broker = Trail(), Broker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_audit, trail, "broker-a", broker.store)
        await trio.sleep(2.5 * EVERY_S)
        assert broker.taken == [], "an empty trail is not sent"
        trail.add(ONE)
        broker.is_away = True
        await trio.sleep(2 * EVERY_S)
        trail.add(TWO)
        broker.is_away = False
        await trio.sleep(EVERY_S)
        assert broker.taken == [TellAudited("broker-a", (ONE, TWO))]
        nursery.cancel_scope.cancel()


async def test_what_is_left_is_stored_at_the_end_if_a_broker_answers_soon() -> None:
    for is_silent in (False, True):
        trail, broker = Trail(), Broker()
        broker.is_silent = is_silent
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(keep_audit, trail, "broker-a", broker.store))
            await wait_all_tasks_blocked()
            trail.add(ONE)
            began = trio.current_time()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began == (GOODBYE_S if is_silent else 0)
        assert [one.entries for one in broker.taken] == ([] if is_silent else [(ONE,)])


async def test_an_entry_that_no_broker_takes_is_counted_as_lost_and_keeps_no_other_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trail, broker = Trail(), Broker()
    broker.bytes_max = 1_000
    entries = [ONE._replace(at_ms=at, name=f"t{at}") for at in range(20)]
    entries[7] = ONE._replace(at_ms=7, name="n" * 2_000, times=3)
    for entry in entries:
        trail.add(entry)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_audit, trail, "broker-a", broker.store)
        await trio.sleep(1.5 * EVERY_S)
        stored = [entry for request in broker.taken for entry in request.entries]
        assert stored == entries[:7] + entries[8:]
        assert (trail.left_out, trail.take()) == (3, ())
        assert "an entry of the audit log is lost" in caplog.text
        nursery.cancel_scope.cancel()
