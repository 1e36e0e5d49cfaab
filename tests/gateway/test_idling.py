"""Waiting in trio's stead: only while trio has nothing to do, and it always gets its turn when it has."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from gateway.idling import ROUNDS_MAX, Idling
from gateway.poller import READ, EpollPoller

pytestmark = pytest.mark.endtoend  # in real time: with any other clock nobody waits in trio's stead

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A descriptor to wait for, and how to make it ready."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def made(pair: Pair) -> Idling:
    """One that has let trio have its first turn."""
    idling = Idling(pair[0].fileno())
    assert not idling.wait()
    await trio.lowlevel.checkpoint()
    return idling


async def test_a_descriptor_that_is_ready_ends_the_wait(pair: Pair) -> None:
    idling = await made(pair)
    pair[1].send(b"x")
    assert idling.wait()
    assert idling.wait()


async def test_another_task_that_can_run_has_its_turn_first(pair: Pair) -> None:
    idling = await made(pair)
    pair[1].send(b"x")
    ran = trio.Event()

    async def other() -> None:
        ran.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert not idling.wait()
        await ran.wait()
        assert idling.wait()


async def test_a_task_that_a_round_has_woken_has_its_turn(pair: Pair) -> None:
    idling = await made(pair)
    pair[1].send(b"x")
    stirred, seen = trio.Event(), trio.Event()

    async def other() -> None:
        await stirred.wait()
        seen.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        assert idling.wait()
        stirred.set()
        assert not idling.wait()
        await seen.wait()


async def test_a_task_of_the_same_batch_that_has_not_run_yet_has_its_turn(pair: Pair) -> None:
    idling = await made(pair)
    pair[1].send(b"x")
    for _ in range(32):  # trio runs the tasks of a batch in any order
        stirred, ran = trio.Event(), trio.Event()

        async def other(stirred: trio.Event = stirred, ran: trio.Event = ran) -> None:
            await stirred.wait()
            ran.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await trio.testing.wait_all_tasks_blocked()
            stirred.set()
            await trio.lowlevel.checkpoint()
            assert idling.wait() <= ran.is_set()
            await ran.wait()


async def test_a_deadline_ends_the_wait(pair: Pair) -> None:
    idling = await made(pair)
    with trio.move_on_after(0.02) as scope:
        assert not idling.wait()
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_socket_of_another_task_ends_the_wait(pair: Pair) -> None:
    idling = await made(pair)
    ours, theirs = socket.socketpair()
    seen = trio.Event()

    async def other() -> None:
        await trio.lowlevel.wait_readable(ours)
        seen.set()

    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await trio.testing.wait_all_tasks_blocked()
            theirs.send(b"x")
            assert not idling.wait()
            await seen.wait()


async def test_what_another_thread_calls_for_ends_the_wait(pair: Pair) -> None:
    idling = await made(pair)
    token, called = trio.lowlevel.current_trio_token(), trio.Event()
    thread = threading.Timer(0.02, lambda: token.run_sync_soon(called.set))
    thread.start()
    assert not idling.wait()
    await called.wait()
    thread.join()


async def test_who_waits_for_everybody_to_be_idle_is_not_kept_waiting(pair: Pair) -> None:
    idling = await made(pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.testing.wait_all_tasks_blocked)
        await trio.lowlevel.checkpoint()
        assert not idling.wait()


async def test_trio_has_a_turn_after_so_many_rounds(pair: Pair) -> None:
    idling = await made(pair)
    pair[1].send(b"x")
    assert [idling.wait() for _ in range(ROUNDS_MAX + 2)] == [True] * ROUNDS_MAX + [False, True]


async def test_the_real_poller_idles_in_the_trio_that_is_installed(pair: Pair) -> None:
    poller = EpollPoller()
    poller.add(pair[0].fileno(), READ)
    assert not poller.wait_here()  # it has not waited yet, so it knows no loop
    pair[1].send(b"x")
    await poller.wait()
    assert not poller.wait_here()  # who could run when it began to know it nobody has told it
    await poller.wait()
    assert poller.wait_here()
    assert poller.poll() == [(pair[0].fileno(), READ)]
    poller.close()
