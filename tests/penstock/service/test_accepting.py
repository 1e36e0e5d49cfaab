"""A listener that runs out of descriptors, in virtual time; and the last descriptors, on loopback."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest
import trio
from trio.testing import memory_stream_pair

from penstock.service import descriptors
from penstock.service.accepting import KEPT, QUIET_S, Doorkeeper, PatientListener


class Failing(trio.abc.Listener[trio.abc.Stream]):
    """Accepts, or fails with an error, as it is told."""

    def __init__(self, plan: Iterable[int]) -> None:
        self._plan = iter(plan)
        self.closed = False

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        number = next(self._plan)
        if number:
            raise OSError(number, "no room")
        return memory_stream_pair()[0]

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


async def test_without_descriptors_it_waits_and_the_log_has_one_line_for_all_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Doorkeeper("the broker")
    listener = PatientListener(Failing([*[errno.EMFILE] * 50, 0]), door)
    assert door.reasons() == []
    began = trio.current_time()
    await listener.accept()
    assert trio.current_time() - began >= 4
    assert door.reasons() == ["the listener does not accept: no room"]
    [line] = caplog.records
    assert line.getMessage().startswith("the broker accepts no connections: no room; raise the limit")
    assert line.exc_info is None


async def test_it_is_over_when_it_was_quiet_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    door = Doorkeeper("the broker")
    listener = PatientListener(Failing([errno.EMFILE, 0, errno.ENFILE, 0, 0, errno.ENOMEM, 0]), door)
    assert door.lets_in(await listener.accept())
    assert door.lets_in(await listener.accept())  # one has left and another has come: still the same trouble
    assert len(caplog.records) == 1
    await trio.sleep(QUIET_S)
    assert door.reasons() == []  # also when nobody comes any more
    assert door.lets_in(await listener.accept())
    assert caplog.messages[1:] == ["the broker accepts connections again, after 5 s"]
    assert door.lets_in(await listener.accept())
    assert len(caplog.records) == 3


async def test_any_other_error_is_not_waited_for() -> None:
    inner = Failing([errno.EBADF])
    listener = PatientListener(inner, Doorkeeper("x"))
    with pytest.raises(OSError, match="no room"):
        await listener.accept()
    await listener.aclose()
    assert inner.closed


@pytest.mark.endtoend
async def test_the_last_descriptors_are_not_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Doorkeeper("the broker")
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with listener, await trio.open_tcp_stream("127.0.0.1", port), await listener.accept() as stream:
        number = stream.socket.fileno()
        monkeypatch.setattr(descriptors, "limit", lambda: number + KEPT + 1)
        assert door.lets_in(stream)
        assert door.reasons() == []
        monkeypatch.setattr(descriptors, "limit", lambda: number + KEPT)
        assert not door.lets_in(stream)
        assert len(door.reasons()) == 1
    assert door.lets_in(memory_stream_pair()[0])


class Pairs(trio.abc.Listener[trio.SocketStream]):
    """Accepts connections with a descriptor, from nobody."""

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.socket.socketpair()
        theirs.close()
        return trio.SocketStream(ours)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_who_is_turned_away_now_and_then_is_no_end_of_the_trouble(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: KEPT)
    door = Doorkeeper("the broker")
    listener = PatientListener(Pairs(), door)
    for _ in range(3):
        async with await listener.accept() as stream:
            assert not door.lets_in(stream)
        await trio.sleep(QUIET_S)
    assert len(caplog.records) == 1
