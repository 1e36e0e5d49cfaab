"""The real poller: epoll driven by trio."""

from __future__ import annotations

import socket

import pytest
import trio

from gateway.net.poller import ENDED, READ, WRITE, EpollPoller


async def test_it_returns_when_a_socket_is_readable() -> None:
    poller = EpollPoller()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller.add(ours.fileno(), READ)
        assert poller.poll() == []
        theirs.send(b"x")
        await poller.wait()
        assert poller.poll() == [(ours.fileno(), READ)]
        poller.change(ours.fileno(), WRITE)
        assert poller.poll() == [(ours.fileno(), WRITE)]
        poller.remove(ours.fileno())
        assert poller.poll() == []
    poller.close()


async def test_what_has_happened_is_told_once_and_again_where_that_is_asked_for() -> None:
    poller = EpollPoller()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller.add(ours.fileno(), READ)
        theirs.send(b"xyz")
        assert poller.poll() == [(ours.fileno(), READ)]
        assert poller.poll() == []
        poller.change(ours.fileno(), READ)
        assert poller.poll() == [(ours.fileno(), READ)]
        theirs.send(b"more")
        assert poller.poll() == [(ours.fileno(), READ)]
        poller.change(ours.fileno(), 0)
        theirs.send(b"more")
        assert poller.poll() == []
        poller.change(ours.fileno(), READ)
        assert poller.poll() == [(ours.fileno(), READ)], "what came while nobody listened"
        theirs.shutdown(socket.SHUT_WR)
        [(descriptor, mask)] = poller.poll()
        assert (descriptor, mask) == (ours.fileno(), READ | ENDED)
    poller.close()


async def test_many_wakes_are_one() -> None:
    poller = EpollPoller()
    poller.wake()
    poller.wake()
    await poller.wait()
    poller.poll()
    assert poller.poll() == []
    with trio.move_on_after(1) as scope:
        await poller.wait()
    assert scope.cancelled_caught
    poller.close()


async def test_a_poller_that_is_closed_gives_back_its_descriptors() -> None:
    poller = EpollPoller()
    poller.close()
    with pytest.raises(ValueError, match="closed"):
        poller.poll()


async def test_an_answer_that_comes_after_the_end_wakes_nobody_and_hurts_nobody() -> None:
    poller = EpollPoller()
    poller.close()
    ours, theirs = socket.socketpair()  # they may have got the poller's descriptors
    with ours, theirs:
        poller.wake()
        ours.setblocking(False)
        theirs.setblocking(False)
        for one in (ours, theirs):
            with pytest.raises(BlockingIOError):
                one.recv(8)


async def test_it_never_waits_in_the_stead_of_a_trio_whose_clock_is_not_the_real_one() -> None:
    poller = EpollPoller()
    poller.wake()
    await poller.wait()
    assert not poller.wait_here()
    poller.close()
