"""Many connections of one server that have it hold much: what they hold is bounded, nothing is lost, and a peer that
asks little is served meanwhile. Real endpoints joined in memory, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import (
    lockstep_stream_one_way_pair,
    memory_stream_one_way_pair,
    memory_stream_pair,
    wait_all_tasks_blocked,
)

from penstock.errors import Busy, ProtocolError
from penstock.protocol import wire
from penstock.protocol.link import OnResult
from penstock.protocol.requests.messages import Append, Appended, Pull, Pulled
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.shares import TakeShared
from penstock.service.frame_connection import EXEMPT_S, FRAME_BYTES_PER_S, FrameLimits, Peer
from penstock.service.frame_server import serve_frames
from penstock.service.native_room import RESERVES_SHARE, NativeRoom

MOST = 1 << 20
REPLY = 100_000
NEVER = 1e9
PATIENT = FrameLimits(write_s=NEVER, half_frame_s=NEVER)


class Store:
    """A session that answers a Pull with ``offset`` bytes; with ``wait_s`` it waits until told."""

    parked: list[tuple[Pull, OnResult]]
    taken: list[Request]

    def __init__(self, store: Stores) -> None:
        self._all = store

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._all.taken.append(request)
        if isinstance(request, Pull) and request.wait_s:
            self._all.parked.append((request, on_result))
        elif isinstance(request, Pull):
            on_result(Pulled(0, 0, 0, 0, bytes(request.offset)))
        elif isinstance(request, TakeShared):
            on_result(Pulled(0, 0, 0, 0, bytes(request.count_max)))
        elif isinstance(request, Append):
            on_result(Appended("disk"))
        else:
            on_result(ServerInfo("store", "s", "1"))

    def flush(self) -> None:
        pass

    def hold(self) -> None:
        pass

    release = close = hold


class Stores(trio.abc.Listener[trio.abc.Stream]):
    """A server of them: its listener, its room, and what its sessions took."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](1000)
        self.room = NativeRoom(MOST)
        self.parked: list[tuple[Pull, OnResult]] = []
        self.taken: list[Request] = []

    async def accept(self) -> trio.abc.Stream:
        return await self._receive.receive()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def open(self, _: Peer) -> Store:
        return Store(self)

    def wake(self) -> None:
        """What is parked is answered."""
        waiting, self.parked = self.parked, []
        for request, on_result in waiting:
            on_result(Pulled(0, 0, 0, 0, bytes(request.offset)))

    def connect(self) -> trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]:
        ours, theirs = memory_stream_pair()
        self._send.send_nowait(theirs)
        return ours

    def connect_slow_reader(self) -> trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]:
        """A write of the server waits until we have read it."""
        requests_out, requests_in = memory_stream_one_way_pair()
        replies_out, replies_in = lockstep_stream_one_way_pair()
        self._send.send_nowait(trio.StapledStream(replies_out, requests_in))
        return trio.StapledStream(requests_out, replies_in)

    @property
    def most_untaken(self) -> int:
        """What may be held of replies: the bound, one reply, and each connection's reserve."""
        return MOST + REPLY + 1000


@asynccontextmanager
async def serving(limits: FrameLimits = PATIENT) -> AsyncIterator[Stores]:
    stores = Stores()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_frames([stores], stores.open, limits, room=stores.room))
        yield stores
        nursery.cancel_scope.cancel()


def frames(*requests: Request, first_id: int = 1) -> bytes:
    return b"".join(wire.join(wire.encode_request(at, request)) for at, request in enumerate(requests, first_id))


async def results(stream: trio.abc.ReceiveStream, asked: dict[int, type[Request]]) -> dict[int, Result]:
    """Results until each id in ``asked`` has one, or the end of the stream."""
    got: dict[int, Result] = {}
    reader = wire.FrameReader()
    while len(got) < len(asked):
        data = await stream.receive_some()
        if not data:
            break
        for frame in reader.receive(data):
            assert frame.request_id not in got, "answered twice"
            got[frame.request_id] = wire.decode_result(frame, asked.get(frame.request_id, Ping))
    return got


def pulled(size: int) -> Pulled:
    return Pulled(0, 0, 0, 0, bytes(size))


async def attack(stores: Stores, *requests: Request, count: int = 40) -> list[trio.abc.Stream]:
    """Connections that send the same requests and read nothing."""
    attackers = [stores.connect_slow_reader() for _ in range(count)]
    for one in attackers:
        await one.send_all(frames(*requests))
    await wait_all_tasks_blocked()
    return attackers  # type: ignore[return-value]


async def all_results(attackers: list[trio.abc.Stream], asked: type[Request], count: int) -> list[dict[int, Result]]:
    """What each of them gets when they all read at last."""
    got: list[dict[int, Result]] = []

    async def read(one: trio.abc.Stream) -> None:
        got.append(await results(one, dict.fromkeys(range(1, count + 1), asked)))

    async with trio.open_nursery() as nursery:
        for one in attackers:
            nursery.start_soon(read, one)
    return got


async def test_replies_that_nobody_takes_are_bounded_over_all_connections_and_none_is_lost() -> None:
    async with serving() as stores:
        attackers = await attack(stores, *[Pull("q", REPLY)] * 4)
        assert MOST <= stores.room.untaken.used <= stores.most_untaken
        assert stores.room.untaken.waiting > 20
        for got in await all_results(attackers, Pull, 4):
            assert got == dict.fromkeys(range(1, 5), pulled(REPLY))
        await wait_all_tasks_blocked()
        assert (stores.room.untaken.used, stores.room.untaken.waiting) == (0, 0)


async def test_a_peer_that_asks_little_is_served_while_others_hold_all_the_room_for_replies() -> None:
    async with serving() as stores:
        await attack(stores, *[Pull("q", REPLY)] * 4)
        assert stores.room.untaken.is_full
        neighbour = stores.connect()
        small = stores.room.reserve_bytes // 2
        for _ in range(20):
            await neighbour.send_all(frames(Ping(), Append(0, True, b"x"), Pull("q", small)))
            got = await results(neighbour, {1: Ping, 2: Append, 3: Pull})
            assert got == {1: ServerInfo("store", "s", "1"), 2: Appended("disk"), 3: pulled(small)}


async def test_a_large_reply_waits_for_room_and_does_not_hold_up_what_the_same_peer_asks_besides() -> None:
    async with serving() as stores:
        attackers = await attack(stores, *[Pull("q", REPLY)] * 4)
        neighbour = stores.connect()
        await neighbour.send_all(frames(Pull("q", REPLY), Ping()))
        assert set(await results(neighbour, {2: Ping})) == {2}
        await all_results(attackers, Pull, 4)
        assert await results(neighbour, {1: Pull}) == {1: pulled(REPLY)}


async def test_a_pull_of_one_byte_that_is_answered_with_a_large_message_counts_as_large() -> None:
    async with serving() as stores:
        attackers = await attack(stores, *[Pull("q", REPLY, bytes_max=1)] * 4, count=100)
        assert stores.room.untaken.used <= stores.most_untaken
        assert len(await all_results(attackers, Pull, 4)) == 100


async def test_parked_requests_that_are_all_answered_at_once_are_bounded_too() -> None:
    async with serving() as stores:
        attackers = await attack(stores, *[Pull("q", REPLY, wait_s=30.0)] * 4)
        assert len(stores.parked) == 160
        stores.wake()
        assert stores.room.untaken.used <= stores.most_untaken

        async def keep_waking() -> None:
            while True:
                await trio.sleep(1)
                stores.wake()  # those that were asked again, and parked

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_waking)
            for got in await all_results(attackers, Pull, 4):
                assert got == dict.fromkeys(range(1, 5), pulled(REPLY))
            nursery.cancel_scope.cancel()


async def test_what_changes_something_is_carried_out_once_and_waits_where_its_reply_may_be_large() -> None:
    async with serving() as stores:
        take = TakeShared("s", "t", REPLY)
        attackers = await attack(stores, *[take] * 4)
        assert stores.room.untaken.used <= stores.most_untaken
        assert 10 <= len(stores.taken) < 40
        for got in await all_results(attackers, TakeShared, 4):
            assert got == dict.fromkeys(range(1, 5), pulled(REPLY))
        assert len(stores.taken) == 160


async def test_a_peer_that_is_gone_leaves_its_room_to_others() -> None:
    async with serving(FrameLimits(write_s=60)) as stores:
        attackers = await attack(stores, *[Pull("q", REPLY)] * 4)
        neighbour = stores.connect()
        await neighbour.send_all(frames(Pull("q", REPLY)))
        for one in attackers:
            await one.aclose()
        assert await results(neighbour, {1: Pull}) == {1: pulled(REPLY)}
        await wait_all_tasks_blocked()
        assert (stores.room.untaken.used, stores.room.untaken.waiting, stores.room.pending) == (0, 0, 0)


async def test_peers_that_never_read_are_dropped_and_what_waited_for_them_goes_on() -> None:
    async with serving(FrameLimits(write_s=60)) as stores:
        await attack(stores, *[Pull("q", REPLY)] * 4, count=12)
        neighbour = stores.connect()
        await neighbour.send_all(frames(Pull("q", REPLY)))
        assert await results(neighbour, {1: Pull}) == {1: pulled(REPLY)}


# -- incomplete frames


BIG = frames(Append(1, False, bytes(MOST // 2)))


async def half_frames(stores: Stores, count: int, size: int = len(BIG) - 1) -> list[trio.abc.Stream]:
    """Connections that send so much of a large frame, as far as it is read."""
    streams = []
    for _ in range(count):
        ours, theirs = lockstep_stream_one_way_pair()
        back_out, back_in = memory_stream_one_way_pair()
        stores._send.send_nowait(trio.StapledStream(back_out, theirs))
        streams.append(trio.StapledStream(ours, back_in))
    return streams  # type: ignore[return-value]


async def send_all_at_once(streams: list[trio.abc.Stream], data: bytes, nursery: trio.Nursery) -> None:
    for one in streams:
        nursery.start_soon(one.send_all, data)
    await wait_all_tasks_blocked()


async def test_incomplete_frames_are_bounded_over_all_connections_and_each_is_served_in_the_end() -> None:
    async with serving() as stores, trio.open_nursery() as nursery:
        streams = await half_frames(stores, 30)
        await send_all_at_once(streams, BIG[:-1], nursery)
        assert MOST <= stores.room.unfinished.used <= MOST + len(BIG) + MOST // RESERVES_SHARE
        assert stores.room.unfinished.waiting > 20
        for one in streams:
            nursery.start_soon(_send_rest, one, BIG[-1:])
        for one in streams:
            assert await results(one, {1: Append}) == {1: Appended("disk")}
        await wait_all_tasks_blocked()
        assert (stores.room.unfinished.used, stores.room.unfinished.waiting) == (0, 0)
        assert stores.room.unfinished.exempt is None


async def _send_rest(one: trio.abc.Stream, rest: bytes) -> None:
    while True:
        try:
            await one.send_all(rest)
            return
        except trio.BusyResourceError:  # the first part is still on its way
            await trio.sleep(0.1)


async def test_a_peer_with_small_requests_is_served_while_half_frames_hold_all_the_room() -> None:
    async with serving() as stores, trio.open_nursery() as nursery:
        await send_all_at_once(await half_frames(stores, 30), BIG[:-1], nursery)
        assert stores.room.unfinished.is_full
        neighbour = stores.connect()
        body = bytes(stores.room.reserve_bytes // 2)
        for _ in range(20):
            await neighbour.send_all(frames(Append(1, False, body), Ping()))
            assert set(await results(neighbour, {1: Append, 2: Ping})) == {1, 2}
        nursery.cancel_scope.cancel()


async def test_a_large_frame_gets_through_although_half_frames_that_never_end_hold_all_the_room() -> None:
    async with serving(FrameLimits(half_frame_s=60)) as stores, trio.open_nursery() as nursery:
        bad = await half_frames(stores, 30)
        await send_all_at_once(bad, BIG[:-1], nursery)
        good = stores.connect()
        await good.send_all(BIG)
        with trio.fail_after(30 * (EXEMPT_S + len(BIG) / FRAME_BYTES_PER_S) + 120):
            assert await results(good, {1: Append}) == {1: Appended("disk")}
        nursery.cancel_scope.cancel()


async def test_a_frame_that_trickles_in_is_ended_when_others_wait_for_its_room_and_not_before() -> None:
    async def trickle(one: trio.abc.Stream) -> None:
        try:
            await one.send_all(BIG[: len(BIG) // 2])
            for at in range(len(BIG) // 2, len(BIG) - 1):
                await trio.sleep(9)
                await one.send_all(BIG[at : at + 1])
        except trio.BrokenResourceError:
            pass

    async with serving(FrameLimits(half_frame_s=60)) as stores, trio.open_nursery() as nursery:
        [alone] = await half_frames(stores, 1)
        nursery.start_soon(trickle, alone)
        await trio.sleep(3000)
        assert stores.room.unfinished.used > 0
        others = await half_frames(stores, 8)
        for one in others:
            nursery.start_soon(trickle, one)
        await trio.sleep(1)
        assert stores.room.unfinished.is_full
        good = stores.connect()
        await good.send_all(BIG)
        with trio.fail_after(600):
            assert await results(good, {1: Append}) == {1: Appended("disk")}
        nursery.cancel_scope.cancel()


async def test_damage_behind_requests_that_wait_is_told_after_their_replies() -> None:
    async with serving(FrameLimits(unsent_bytes_soft=1000, write_s=NEVER)) as stores:
        stream = stores.connect_slow_reader()
        await stream.send_all(frames(Pull("q", 5000), Pull("q", 5000), Ping()) + b"\xff" * 64)
        got = await results(stream, {1: Pull, 2: Pull, 3: Ping, 0: Ping, 99: Ping})
        assert isinstance(got.pop(0), ProtocolError)
        assert set(got) == {1, 2, 3}


@pytest.mark.interpreted
async def test_requests_that_wait_for_replies_are_bounded_over_all_connections_and_each_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.service.frame_connection.PENDING_MAX", 500)
    monkeypatch.setattr("penstock.service.frame_connection.PENDING_RESERVE", 10)
    async with serving() as stores:
        greedy = stores.connect()
        await greedy.send_all(frames(*[Pull("q", 1, wait_s=30.0)] * 600))
        refused = await results(greedy, dict.fromkeys(range(501, 601), Pull))
        assert all(isinstance(one, Busy) for one in refused.values())
        modest = stores.connect()
        await modest.send_all(frames(*[Pull("q", 1, wait_s=30.0)] * 11))
        assert set(await results(modest, {11: Pull})) == {11}
        assert (stores.room.pending, len(stores.parked)) == (510, 510)
