"""The real world behind the seam."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import trio

from penstock.guarded_clock import GuardedClock
from penstock.world import guarded, new_rng, pause, real_world
from tests.patience import PATIENCE_S


def test_two_worlds_do_not_share_their_chance() -> None:
    assert real_world().rng.getrandbits(64) != real_world().rng.getrandbits(64)
    assert new_rng().getrandbits(64) != new_rng().getrandbits(64)


async def test_offloaded_work_gives_its_result() -> None:
    assert await real_world().offload(lambda: 42) == 42


async def test_a_thread_of_its_own_works_off_calls_in_order_and_hands_errors_back() -> None:
    async with real_world().own_thread() as offload:
        assert [await offload(threading.get_ident) for _ in range(3)] == [await offload(threading.get_ident)] * 3
        assert await offload(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await offload(lambda: 1 // 0)
        assert await offload(lambda: 42) == 42


async def test_a_call_that_was_begun_is_waited_for_though_it_is_cancelled() -> None:
    began, end = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        end.wait()
        return "done"

    got: list[str] = []
    async with real_world().own_thread() as offload:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                got.append(await offload(work))

            nursery.start_soon(ask)
            await trio.to_thread.run_sync(began.wait)
            nursery.cancel_scope.cancel()
            end.set()
        assert got == ["done"]


def test_a_pause_takes_its_time() -> None:
    clock = real_world().clock
    before = clock.monotonic()
    pause(0.001)
    assert clock.monotonic() - before >= 0.001


def test_what_runs_in_the_background_does_not_hold_a_program_up() -> None:
    code = "from penstock.world import in_background; import threading; done = threading.Event()"
    code += "; in_background(done.set); print(done.wait(60)); in_background(threading.Event().wait)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_the_pure_modules_bring_in_no_event_loop() -> None:
    code = "import sys; from penstock import errors, world; from penstock.service import config, metrics"
    code += "; from penstock.protocol import addresses, link, message, requests, wire"
    code += "; import topicmap.filters, topicmap.queues, namesrv.registry"
    code += "; sys.exit(str([m for m in ('trio', 'anyio', 'asyncio', 'socket') if m in sys.modules] or ''))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == ""


def test_services_of_one_process_share_one_guarded_clock() -> None:
    world, clock = guarded(real_world())
    assert isinstance(clock, GuardedClock)
    assert world.clock is clock
    assert guarded(world) == (world, clock)
