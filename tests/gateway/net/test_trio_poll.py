"""Waiting in trio's stead: only while trio has nothing to do, and it always gets its turn when it has."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from gateway.net.poller import READ, EpollPoller
from gateway.net.trio_poll import ROUNDS_MAX, WAIT_S_MAX, TrioPoll

pytestmark = pytest.mark.endtoend  # in real time: with any other clock nobody waits in trio's stead

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A descriptor to wait for, and how to make it ready."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def made(pair: Pair) -> EpollPoller:
    """One that has let trio have the turns that it must have before anybody waits in its stead."""
    poller = EpollPoller()
    poller.add(pair[0].fileno(), READ)
    assert not poller.wait_here()  # it has not waited yet, so it knows no loop
    poller.wake()
    await poller.wait()
    assert not poller.wait_here()  # who could run when it began to know it nobody has told it
    await poller.wait()
    poller.poll()
    return poller


def is_told_again(poller: EpollPoller, pair: Pair) -> bool:
    """A wait for what is ready there still, as after a round that has not read it."""
    poller.poll()
    poller.change(pair[0].fileno(), READ)
    return poller.wait_here()


@asynccontextmanager
async def waited_for_by_another() -> AsyncIterator[socket.socket]:
    """The other end of a socket that another task waits for; ends when that task has seen something come."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.wait_readable, ours)
            await trio.testing.wait_all_tasks_blocked()
            yield theirs


async def test_a_descriptor_that_is_ready_ends_the_wait(pair: Pair) -> None:
    poller = await made(pair)
    pair[1].send(b"x")
    assert poller.wait_here()
    assert poller.poll()


async def test_another_task_that_can_run_has_its_turn_first(pair: Pair) -> None:
    poller = await made(pair)
    pair[1].send(b"x")
    ran = trio.Event()

    async def other() -> None:
        ran.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert not poller.wait_here()
        await ran.wait()
        assert poller.wait_here()


async def test_a_task_that_a_round_has_woken_has_its_turn(pair: Pair) -> None:
    poller = await made(pair)
    pair[1].send(b"x")
    stirred, seen = trio.Event(), trio.Event()

    async def other() -> None:
        await stirred.wait()
        seen.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        assert poller.wait_here()
        stirred.set()
        assert not is_told_again(poller, pair)
        await seen.wait()


async def test_a_task_of_the_same_batch_that_has_not_run_yet_has_its_turn(pair: Pair) -> None:
    poller = await made(pair)
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
            assert is_told_again(poller, pair) <= ran.is_set()
            await ran.wait()


async def test_a_deadline_ends_the_wait(pair: Pair) -> None:
    poller = await made(pair)
    with trio.move_on_after(0.02) as scope:
        assert not poller.wait_here()
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_socket_of_another_task_ends_the_wait(pair: Pair) -> None:
    poller = await made(pair)
    async with waited_for_by_another() as theirs:
        theirs.send(b"x")
        assert not poller.wait_here()


async def test_what_another_thread_calls_for_ends_the_wait(pair: Pair) -> None:
    poller = await made(pair)
    token, called = trio.lowlevel.current_trio_token(), trio.Event()
    thread = threading.Timer(0.02, lambda: token.run_sync_soon(called.set))
    thread.start()
    assert not poller.wait_here()
    await called.wait()
    thread.join()


async def test_who_waits_for_everybody_to_be_idle_is_not_kept_waiting(pair: Pair) -> None:
    poller = await made(pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.testing.wait_all_tasks_blocked)
        await trio.lowlevel.checkpoint()
        assert not poller.wait_here()


async def test_trio_has_a_turn_after_so_many_rounds(pair: Pair) -> None:
    poller = await made(pair)
    pair[1].send(b"x")
    waits = [is_told_again(poller, pair) for _ in range(2 * ROUNDS_MAX)]
    assert waits.count(False) == 1
    assert waits[0]
    assert waits[-1]


async def test_what_the_wait_has_found_is_what_the_round_is_given(pair: Pair) -> None:
    poller = await made(pair)
    pair[1].send(b"x")
    assert poller.wait_here()
    assert poller.poll() == [(pair[0].fileno(), READ)]
    poller.wake()
    pair[1].send(b"x")
    assert poller.wait_here()
    assert len(poller.poll()) == 2
    assert poller.poll() == []


async def test_what_is_ready_beside_trio_has_its_round_and_trio_its_turn_then(pair: Pair) -> None:
    poller = await made(pair)
    async with waited_for_by_another() as theirs:
        theirs.send(b"x")
        pair[1].send(b"x")
        assert poller.wait_here()
        assert poller.poll() == [(pair[0].fileno(), READ)]
        assert not poller.wait_here()


async def test_who_waits_changes_back_and_forth(pair: Pair) -> None:
    poller = await made(pair)
    for _ in range(4):
        pair[1].send(b"x")
        assert poller.wait_here()
        pair[0].recv(1)
        poller.poll()
        with trio.move_on_after(0.01) as scope:
            await poller.wait()
        assert scope.cancelled_caught, "nothing is ready"
        poller.wake()
        await poller.wait()
        poller.poll()


async def test_two_pollers_of_one_loop_wait_in_turns(pair: Pair) -> None:
    first, second = await made(pair), EpollPoller()
    woken = trio.Event()

    async def other() -> None:
        await second.wait()
        assert not second.wait_here()
        woken.set()
        second.poll()
        while not second.wait_here():
            await second.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        pair[1].send(b"x")
        assert first.wait_here()
        second.wake()
        assert is_told_again(first, pair), "what is ready here has its round first"
        assert not is_told_again(first, pair)
        await woken.wait()
        second.wake()


async def test_the_installed_trio_is_known_well_enough() -> None:
    idling = TrioPoll()
    assert idling.left_s() == 0.0
    await trio.lowlevel.checkpoint()
    assert 0 < idling.left_s() <= WAIT_S_MAX
    idling.close()
