"""The frame server against real endpoints joined in memory (virtual time) and over loopback (real time)."""

from __future__ import annotations

import socket
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

from penstock.errors import AddressInUse, Busy, InternalError, InvalidConfig, ProtocolError, UnknownRequest
from penstock.protocol import wire
from penstock.protocol.link import OnResult
from penstock.protocol.requests.messages import Append, Appended, Pull, Pulled
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import QueryTopics
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.frame_server import FrameLimits, Peer, listening_address, open_listeners, serve_frames


class Room:
    """A session that answers Ping and Append, keeps Pull waiting until told, and fails on QueryTopics."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.batches: list[int] = []
        self.parked: list[OnResult] = []
        self.held = 0
        self.on_release: list[OnResult] = []
        self.closed = 0
        self._size = 0

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._size += 1
        if isinstance(request, Pull):
            self.parked.append(on_result)
        elif isinstance(request, QueryTopics):
            raise RuntimeError("a defect")
        else:
            on_result(ServerInfo("room", "r", "1") if isinstance(request, Ping) else Appended("disk"))

    def flush(self) -> None:
        self.batches.append(self._size)
        self._size = 0

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1
        while self.on_release and not self.held:
            self.on_release.pop(0)(Pulled(0, 0, 0, 0, bytes(5000)))

    def close(self) -> None:
        self.closed += 1


class Wires(trio.abc.Listener[trio.abc.Stream]):
    """A listener whose connections are in memory."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](100)

    async def accept(self) -> trio.abc.Stream:
        return await self._receive.receive()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def connect(self) -> trio.StapledStream:
        ours, theirs = memory_stream_pair()
        self.take(theirs)
        return ours

    def take(self, stream: trio.abc.Stream) -> None:
        self._send.send_nowait(stream)


class Bench:
    def __init__(self) -> None:
        self.wires = Wires()
        self.rooms: list[Room] = []

    def open(self, peer: Peer) -> Room:
        self.rooms.append(Room(peer))
        return self.rooms[-1]

    def connect_slow_reader(self) -> trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]:
        """Our writes always succeed; a write of the server waits until we have read it."""
        requests_out, requests_in = memory_stream_one_way_pair()
        replies_out, replies_in = lockstep_stream_one_way_pair()
        self.wires.take(trio.StapledStream(replies_out, requests_in))
        return trio.StapledStream(requests_out, replies_in)


@asynccontextmanager
async def serving(limits: FrameLimits | None = None) -> AsyncIterator[Bench]:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_frames, [bench.wires], bench.open, limits or FrameLimits())
        yield bench
        nursery.cancel_scope.cancel()


async def results(stream: trio.abc.Stream, asked: dict[int, type[Request]]) -> dict[int, Result]:
    """Results until each id in ``asked`` has one, or the end of the stream."""
    got: dict[int, Result] = {}
    reader = wire.FrameReader()
    while len(got) < len(asked):
        data = await stream.receive_some()
        if not data:
            break
        for frame in reader.receive(data):
            got[frame.request_id] = wire.decode_result(frame, asked.get(frame.request_id, Ping))
    return got


def frames(*requests: Request, first_id: int = 1) -> bytes:
    return b"".join(wire.join(wire.encode_request(at, request)) for at, request in enumerate(requests, first_id))


async def test_all_frames_of_one_read_are_one_batch() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(*[Ping()] * 50))
        got = await results(stream, dict.fromkeys(range(1, 51), Ping))
        assert set(got) == set(range(1, 51))
        assert bench.rooms[0].batches == [50]


async def test_all_ready_replies_leave_with_one_write() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(*[Ping()] * 50))
        await wait_all_tasks_blocked()
        data = await stream.receive_some()
        assert len(list(wire.FrameReader().receive(data))) == 50


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        for at in frames(Append(0, False, b"xyz")):
            await stream.send_all(bytes([at]))
        assert await results(stream, {1: Append}) == {1: Appended("disk")}


async def test_replies_that_come_later_find_their_request() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(Pull("a:0", 0), Ping()))
        assert set(await results(stream, {2: Ping})) == {2}
        bench.rooms[0].parked[0](Pulled(0, 5, 0, 5, b"body"))
        assert await results(stream, {1: Pull}) == {1: Pulled(0, 5, 0, 5, b"body")}


async def test_garbage_gets_one_error_and_the_end_and_others_live_on() -> None:
    async with serving() as bench:
        bad, good = bench.wires.connect(), bench.wires.connect()
        await bad.send_all(frames(Ping()) + b"\xff" * 64)
        got = await results(bad, {1: Ping, 0: Ping, 99: Ping})
        assert isinstance(got[0], ProtocolError)
        assert got[1] == ServerInfo("room", "r", "1")
        await good.send_all(frames(Ping()))
        assert 1 in await results(good, {1: Ping})
        assert sorted(room.closed for room in bench.rooms) == [0, 1]


async def test_an_unknown_request_gets_an_error_and_the_connection_lives() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        unknown = wire.join(wire._frame([29, 7]))
        await stream.send_all(unknown + frames(Ping()))
        got = await results(stream, {7: Ping, 1: Ping})
        assert isinstance(got[7], UnknownRequest)
        assert isinstance(got[1], ServerInfo)


async def test_wrong_fields_get_an_error_with_their_id_and_the_connection_lives() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(wire.join(wire._frame([Pull.code, 7, 3, "x"])) + frames(Ping()))
        got = await results(stream, {7: Pull, 1: Ping})
        assert isinstance(got[7], ProtocolError)
        assert isinstance(got[1], ServerInfo)


async def test_a_defect_of_the_service_fails_one_request_only() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(QueryTopics(), Ping()))
        got = await results(stream, {1: QueryTopics, 2: Ping})
        assert isinstance(got[1], InternalError)
        assert isinstance(got[2], ServerInfo)


async def test_half_a_frame_that_never_ends_closes_the_connection() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(Ping())[:5])
        got = await results(stream, {0: Ping, 1: Ping})
        assert list(got) == [0]
        assert isinstance(got[0], ProtocolError)


async def test_a_quiet_connection_without_half_a_frame_is_kept() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await trio.sleep(10_000)
        await stream.send_all(frames(Ping()))
        assert 1 in await results(stream, {1: Ping})


async def test_one_connection_too_many_is_told_busy() -> None:
    async with serving(FrameLimits(connections_max=1)) as bench:
        first = bench.wires.connect()
        await first.send_all(frames(Ping()))
        await results(first, {1: Ping})
        second = bench.wires.connect()
        assert isinstance((await results(second, {0: Ping}))[0], Busy)
        await first.aclose()
        await wait_all_tasks_blocked()
        third = bench.wires.connect()
        await third.send_all(frames(Ping()))
        assert isinstance((await results(third, {1: Ping}))[1], ServerInfo)


async def test_too_many_waiting_requests_are_told_busy() -> None:
    async with serving(FrameLimits(pending_max=2)) as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(*[Pull("a:0", 0)] * 3))
        assert isinstance((await results(stream, {3: Pull}))[3], Busy)
        bench.rooms[0].parked[0](Pulled(0, 0, 0, 0, b""))
        await stream.send_all(frames(Ping(), first_id=9))
        assert set(await results(stream, {1: Pull, 9: Ping})) == {1, 9}


async def test_nothing_is_read_while_much_is_unsent() -> None:
    async with serving(FrameLimits(unsent_bytes_soft=1000, write_s=1e9)) as bench:
        stream = bench.connect_slow_reader()
        await stream.send_all(frames(Pull("a:0", 0)))
        await wait_all_tasks_blocked()
        bench.rooms[0].parked[0](Pulled(0, 0, 0, 0, bytes(5000)))
        for at in range(3):  # the first is read by the read that is under way, and not taken
            await stream.send_all(frames(Ping(), first_id=10 + at))
            await wait_all_tasks_blocked()
        assert bench.rooms[0].batches == [1, 0]
        assert set(await results(stream, {1: Pull, 10: Ping, 11: Ping, 12: Ping})) == {1, 10, 11, 12}
        assert sum(bench.rooms[0].batches) == 4


async def test_of_many_requests_in_one_read_no_more_are_taken_than_their_replies_have_room() -> None:
    async with serving(FrameLimits(unsent_bytes_soft=1000, write_s=1e9)) as bench:
        stream = bench.connect_slow_reader()
        await stream.send_all(frames(*[Ping()] * 500))
        await wait_all_tasks_blocked()
        room = bench.rooms[0]
        taken = sum(room.batches)
        assert 1000 < taken * len(wire.join(wire.encode_reply(1, ServerInfo("room", "r", "1")))) < 1100
        assert set(await results(stream, dict.fromkeys(range(1, 501), Ping))) == set(range(1, 501))
        assert sum(room.batches) == 500


async def test_what_is_parked_is_held_while_much_is_unsent() -> None:
    async with serving(FrameLimits(unsent_bytes_soft=1000, unsent_bytes_max=10_000, write_s=1e9)) as bench:
        stream = bench.connect_slow_reader()
        await stream.send_all(frames(*[Pull("a:0", 0)] * 9))
        await wait_all_tasks_blocked()
        room = bench.rooms[0]
        first, *room.on_release = room.parked
        assert room.held == 0
        first(Pulled(0, 0, 0, 0, bytes(5000)))
        assert (room.held, len(room.on_release)) == (1, 8)
        assert set(await results(stream, dict.fromkeys(range(1, 10), Pull))) == set(range(1, 10))
        await wait_all_tasks_blocked()
        assert (room.held, room.closed) == (0, 0)


async def test_a_peer_that_never_reads_is_dropped() -> None:
    async with serving(FrameLimits(unsent_bytes_max=10_000)) as bench:
        ours = bench.connect_slow_reader()
        await ours.send_all(frames(*[Pull("a:0", 0)] * 3))
        await wait_all_tasks_blocked()
        for on_result in bench.rooms[0].parked:
            on_result(Pulled(0, 0, 0, 0, bytes(5000)))
        await wait_all_tasks_blocked()
        assert bench.rooms[0].closed == 1


async def test_a_write_that_takes_too_long_ends_the_connection() -> None:
    async with serving(FrameLimits(write_s=5)) as bench:
        ours = bench.connect_slow_reader()
        await ours.send_all(frames(Ping()))
        await trio.sleep(6)
        assert bench.rooms[0].closed == 1


async def test_a_reply_after_the_connection_ended_goes_nowhere() -> None:
    async with serving() as bench:
        stream = bench.wires.connect()
        await stream.send_all(frames(Pull("a:0", 0)))
        await wait_all_tasks_blocked()
        await stream.aclose()
        await wait_all_tasks_blocked()
        assert bench.rooms[0].closed == 1
        bench.rooms[0].parked[0](Done())


@pytest.mark.endtoend
async def test_it_serves_over_loopback_and_names_the_peer() -> None:
    bench = Bench()
    listeners = await open_listeners("127.0.0.1", 0)
    host, port = listening_address(listeners)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_frames, listeners, bench.open)
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(frames(Ping()))
            assert isinstance((await results(stream, {1: Ping}))[1], ServerInfo)
            here = stream.socket.getsockname()
            assert bench.rooms[0].peer == Peer(1, f"127.0.0.1:{here[1]}")
        nursery.cancel_scope.cancel()


@pytest.mark.endtoend
async def test_replies_of_all_sizes_arrive_whole_in_the_order_in_which_they_were_made() -> None:
    sizes = [10, 9 << 20, 10, 70_000, 10, 5 << 20, *[300] * 20]
    rooms: list[Room] = []

    def open_room(peer: Peer) -> Room:
        rooms.append(Room(peer))
        return rooms[-1]

    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(serve_frames, listeners, open_room)
        stream = await trio.open_tcp_stream(*listening_address(listeners))
        asked = [wire.encode_request(number + 1, Pull("q", 0, wait_s=1)) for number in range(len(sizes))]
        await stream.send_all(wire.join([part for parts in asked for part in parts]))
        await stream.send_all(wire.join(wire.encode_request(100, Ping())))
        reader, came = wire.FrameReader(), list[tuple[int, int]]()
        while not came:  # then all have been read
            came += [(frame.request_id, len(frame.body)) for frame in reader.receive(await stream.receive_some())]
        assert came == [(100, 0)]
        for on_result, size in zip(rooms[0].parked, sizes, strict=True):
            on_result(Pulled(0, 0, 0, 0, bytes(size)))
        while len(came) <= len(sizes):
            came += [(frame.request_id, len(frame.body)) for frame in reader.receive(await stream.receive_some())]
        assert came[1:] == [(number + 1, size) for number, size in enumerate(sizes)]
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_a_taken_port_is_a_clear_error() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is already in use"):
            await open_listeners("127.0.0.1", port)


async def test_a_host_that_is_not_ours_is_a_clear_error() -> None:
    with pytest.raises(InvalidConfig, match=r"cannot listen on 192\.0\.2\.1:0"):
        await open_listeners("192.0.2.1", 0)
    with pytest.raises(InvalidConfig, match=r"cannot listen on a\.\.b:0: 'a\.\.b' is no host name"):
        await open_listeners("a..b", 0)
