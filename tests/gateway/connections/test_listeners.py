"""Entrances on real sockets, and the front that has them all."""

from __future__ import annotations

import gc
import resource
import socket
import ssl
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import trio
from doorway import LINES, Doorway, End
from rig import Gateway
from trio.testing import MockClock
from wire_ends import Authority, client_hello, frame, proxy_header

from gateway.connections.device import Device
from gateway.connections.listeners import Listeners, PendingConnection, notice_loss
from gateway.login.auth import Peer
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from gateway.mqtt.reason_codes import ReasonCode
from gateway.net.poller import EpollPoller
from gateway.net.shard import CODED_BYTES, Shard
from gateway.settings import GatewaySettings
from gateway.transports.tls import TlsCodec
from penstock.errors import AddressInUse, InvalidConfig
from penstock.service.descriptors import SPARE, count_open
from penstock.service.validity import ends_at
from tests.patience import PATIENCE_S

KINDS = list(LINES)
Make = Callable[..., Doorway]


@pytest.fixture
def doorway(tmp_path: Path) -> Iterator[Make]:
    made: list[Doorway] = []

    def make(kind: str, more: str = "", **settings: object) -> Doorway:
        made.append(Doorway(kind, tmp_path, more, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def admitted(doorway: Doorway, client_id: str = "c", **asked: object) -> End:
    end = doorway.end()
    end.send(Connect(client_id, **asked))  # type: ignore[arg-type]
    assert isinstance(end.next(), Connack)
    return end


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_served_through_every_transport_and_known_for_what_it_is(doorway: Make, kind: str) -> None:
    house = doorway(kind)
    house.gateway.rounds.now_ms = int(time.time() * 1000)  # when the certificates are valid
    end = house.end(certificate=True)
    end.send(Connect("c"))
    assert isinstance(end.next(), Connack)
    end.send(Pingreq())
    assert isinstance(end.next(), Pingresp)
    address = "203.0.113.7" if "proxy" in kind else "127.0.0.1"
    certificate = "d-7.example" if kind.endswith(("tls", "wss")) else None
    assert house.notes.peers == [Peer(address, certificate, "x")]
    assert (house.tally.connected, house.tally.connects, house.tally.handshakes_failed) == (1, 1, 0)
    assert house.gateway.connections.half_open == 0


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_may_come_one_by_one(doorway: Make, kind: str) -> None:
    house = doorway(kind)
    end = End(house, step=1)
    end.send(Connect("c"), Pingreq())
    assert isinstance(end.next(), Connack)
    assert isinstance(end.next(), Pingresp)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_any_size_go_in_and_out_in_order(doorway: Make, kind: str) -> None:
    house = doorway(kind)
    sender, receiver = admitted(house, "s"), admitted(house, "r")
    receiver.send(Subscribe(1, (Subscription("a/#", 1),)))
    assert isinstance(receiver.next(), Suback)
    sizes = [0, 1, 125, 126, 65_000, 200_000, 3]
    for number, size in enumerate(sizes, 1):
        sender.send(Publish("a/b", bytes([number]) * size, 1, packet_id=number))
        assert sender.next() == Puback(number)
    for number, size in enumerate(sizes, 1):
        packet = receiver.next()
        assert isinstance(packet, Publish)
        assert packet.payload == bytes([number]) * size


@pytest.mark.parametrize("kind", KINDS)
def test_a_handshake_that_stalls_is_given_up(doorway: Make, kind: str) -> None:
    house = doorway(kind, connect_wait_s=10.0)
    client = house.knock()
    client.send(
        proxy_header()[:7] if "proxy" in kind else b"\x16\x03\x01" if "tls" in kind or "wss" in kind else b"GET /m"
    )
    house.turn()
    assert house.gateway.connections.half_open == 1
    house.pass_time(8)
    assert len(house.shard) == 1
    house.pass_time(4)
    assert client.recv(100) == b""
    assert house.gateway.connections.half_open == 0
    assert house.tally.handshakes_failed == 1
    assert house.gateway.quotas.refused["connect_wait_s"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_handshake_without_a_packet_is_half_open_too(doorway: Make, kind: str) -> None:
    house = doorway(kind, connect_wait_s=10.0)
    end = house.end()
    assert house.gateway.connections.half_open == 1
    house.pass_time(12)
    end.hear(b"never")
    assert end.is_closed
    assert house.gateway.connections.half_open == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_arrive_than_may_be_half_open(doorway: Make, kind: str) -> None:
    house = doorway(kind, half_open_max=2)
    clients = [house.knock() for _ in range(3)]
    assert clients[2].recv(10) == b""
    assert (len(house.shard), house.tally.refused) == (2, 1)
    clients[0].close()
    house.turn()
    assert house.gateway.connections.half_open == 1
    assert house.tally.handshakes_failed == 0  # it only went away
    house.knock()
    assert len(house.shard) == 2


def tls_of(house: Doorway) -> weakref.ref[ssl.SSLObject]:
    """OpenSSL's side of the only connection, by far the largest thing that belongs to it."""
    [line] = filter(None, house.shard._lines)
    assert isinstance(line.codec, TlsCodec)
    return weakref.ref(line.codec._tls)


def test_of_an_arrival_that_went_away_nothing_big_is_kept_until_its_time_is_over(doorway: Make) -> None:
    house = doorway("tls")
    client = house.knock()
    client.send(client_hello(house.authority.client_context()))
    house.turn()
    assert client.recv(10) != b"", "the handshake is under way"
    tls = tls_of(house)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    client.close()
    house.turn()
    gc.collect()
    assert len(house.listener._arriving) == 1, "its time is not over"
    assert (tls(), house.gateway.connections.half_open, house.tally.handshakes_failed) == (None, 0, 0)
    house.pass_time(12)
    assert (len(house.listener._arriving), house.gateway.connections.half_open) == (0, 0)


def test_of_an_arrival_that_became_a_device_and_left_nothing_big_is_kept_either(doorway: Make) -> None:
    house = doorway("tls")
    end = admitted(house)
    tls = tls_of(house)
    end.socket.close()
    house.turn()
    gc.collect()
    assert len(house.listener._arriving) == 1
    assert tls() is None


def test_a_listener_has_a_limit_of_its_own(doorway: Make) -> None:
    house = doorway("ws", "connections_max=2")
    admitted(house)
    house.knock()
    assert house.knock().recv(10) == b""
    assert house.tally.refused == 1


@pytest.mark.parametrize(("more", "is_lenient"), [("", False), ("over_receive_max=take", True)])
def test_a_listener_takes_more_than_the_receive_maximum_only_if_it_is_told_so(
    doorway: Make, more: str, is_lenient: bool
) -> None:
    assert doorway("ws", more).tally.is_lenient == is_lenient


def test_an_address_has_no_more_connections_that_arrive_than_it_may_have(doorway: Make) -> None:
    house = doorway("tls", address_connections_max=1)
    first = house.knock()
    assert house.knock().recv(10) == b""
    first.close()
    house.turn()
    admitted(house)


def test_behind_a_balancer_the_clients_address_counts_and_not_the_balancers(doorway: Make) -> None:
    house = doorway("proxy", address_connections_max=1)
    admitted(house, "one")
    other, same = house.knock(), house.knock()
    for client, address in ((other, "203.0.113.8"), (same, "203.0.113.7")):
        client.send(proxy_header(address) + encode(Connect(address), 4))
        house.turn()
    assert other.recv(10)[:1] == b"\x20"
    assert same.recv(10) == b""
    assert house.gateway.quotas.refused["address_connections_max"] == 1


def test_a_balancer_that_is_not_trusted_is_refused_whatever_it_says(doorway: Make) -> None:
    house = doorway("proxy")
    client = house.knock("192.0.2.1")
    assert client.recv(10) == b""
    assert (len(house.shard), house.tally.refused) == (0, 1)


@pytest.mark.parametrize("said", [encode(Connect("c"), 4), b"PROXY TCP4 1.2.3.4 1.2.3.5 1 2\r\n", b"\0"])
def test_a_balancer_that_does_not_say_who_comes_is_closed(doorway: Make, said: bytes) -> None:
    house = doorway("proxy")
    client = house.knock()
    client.send(said)
    house.turn()
    assert client.recv(10) == b""
    assert house.tally.handshakes_failed == 1
    assert house.notes.peers == []


def test_a_balancers_own_check_is_answered_as_its_own(doorway: Make) -> None:
    house = doorway("proxy")
    client = house.knock()
    client.send(proxy_header(command=0x20) + encode(Connect("check"), 4))
    house.turn()
    assert client.recv(10)[:1] == b"\x20"
    assert house.notes.peers == [Peer("127.0.0.1", None, "x")]


def test_plain_mqtt_to_a_tls_port_is_closed(doorway: Make) -> None:
    house = doorway("tls")
    client = house.knock()
    client.send(encode(Connect("c"), 4))
    house.turn()
    assert client.recv(100)[:1] in (b"", b"\x15")  # at most an alert
    assert house.tally.handshakes_failed == 1
    assert house.gateway.connections.half_open == 0


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        (b"GET /mqtt HTTP/1.1\r\nhost: x\r\n\r\n", b"426"),
        (encode(Connect("c"), 4) + b"\r\n\r\n", b"400"),
        (b"GET /mqtt HTTP/1.1\r\nx: " + b"y" * 20_000, b"431"),
    ],
)
def test_what_opens_no_websocket_is_answered_and_closed(doorway: Make, asked: bytes, status: bytes) -> None:
    house = doorway("ws")
    client = house.knock()
    client.send(asked)
    house.turn()
    assert client.recv(1000).split()[1] == status
    assert client.recv(1000) == b""
    assert house.tally.handshakes_failed == 1


@pytest.mark.mqtt("6.0.0-1", old=("6.0.0-1",))
def test_a_text_frame_ends_the_connection_as_one_that_broke(doorway: Make) -> None:
    house = doorway("ws")
    watcher = house.gateway.connect("watcher")
    watcher.subscribe("w")
    end = admitted(house, will=Will("w", b"gone", 1))
    end.say(frame(b"PINGREQ", 1))
    assert end.hear(b"frames only") == b"\x88\x14\x03\xebbinary frames only"
    house.turn()
    assert watcher.payloads() == [b"gone"]
    assert house.tally.connected == 0


@pytest.mark.parametrize("kind", ["tls", "wss", "proxy+wss"])
def test_a_record_that_was_changed_on_its_way_ends_the_connection(doorway: Make, kind: str) -> None:
    house = doorway(kind)
    end = admitted(house)
    assert end._tls is not None
    record = bytearray(end._tls.records(b"\xc0\x00"))
    record[-1] ^= 1
    end.push(bytes(record))
    assert len(house.gateway.connections) == 0


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_who_decides_on_a_client_hears_of_the_page_that_it_comes_from(doorway: Make, kind: str) -> None:
    house = doorway(kind)
    end = house.end(origin="https://evil.example")
    end.send(Connect("c"))
    assert isinstance(end.next(), Connack)
    assert [peer.page for peer in house.notes.peers] == ["https://evil.example"]


@pytest.mark.mqtt("6.0.0-2", old=("6.0.0-2",))
def test_packets_may_span_frames_and_share_them(doorway: Make) -> None:
    house = doorway("ws")
    end = house.end()
    data = encode(Connect("c"), 4) + encode(Pingreq(), 4)
    end.say(frame(data[:5]) + frame(data[5:9], final=False) + frame(data[9:], 0))
    assert isinstance(end.next(), Connack)
    assert isinstance(end.next(), Pingresp)


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_the_gateways_goodbye_is_the_transports_too(doorway: Make, kind: str) -> None:
    house = doorway(kind)
    end = house.end()
    end.send(Connect("c", level=5), level=5)
    end.next()
    [device] = house.gateway.connections.admitted(1)
    device.fail(ReasonCode.SERVER_SHUTTING_DOWN)
    heard = end.hear(b"\x88\x02\x03\xe8")
    assert heard.endswith(b"\x88\x02\x03\xe8")  # after the DISCONNECT
    assert b"\xe0" in heard[:4]


@pytest.mark.parametrize("kind", ["tls", "ws", "wss"])
def test_a_client_that_reads_slowly_gets_everything_in_order(doorway: Make, kind: str) -> None:
    house = doorway(kind, output_bytes_max=64 * 1024)
    end = admitted(house)
    end.send(Subscribe(1, (Subscription("a", 0),)))
    end.next()
    [device] = house.gateway.connections.admitted(1)
    data: list[bytes] = []
    while not device.is_full:
        data.append(len(data).to_bytes(4, "big") * 2_500)
        device.send(encode(Publish("a", data[-1]), 4))
        house.turn()
    for part in data:
        packet = end.next()
        assert isinstance(packet, Publish)
        assert packet.payload == part
    assert not device.is_full


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_pings_of_a_client_that_reads_nothing_are_answered_up_to_a_limit(doorway: Make, kind: str) -> None:
    house = doorway(kind, output_bytes_max=64 * 1024)
    end = admitted(house)
    [line] = filter(None, house.shard._lines)
    pings = frame(bytes(125), 9) * 200
    sent = 0
    while not line.is_full and sent < 1 << 28:
        end.say(pings)
        sent += len(pings)
    assert line.is_full
    assert line.unsent < 64 * 1024 + 3 * CODED_BYTES


def test_a_renewed_certificate_is_there_for_the_next_client(doorway: Make) -> None:
    house = doorway("tls")
    end = admitted(house)
    house.authority.renew("new.example")
    house.listener.tick(house.gateway.clock.now_s)
    context = house.authority.client_context()
    later = End(house)
    assert later._tls is not None
    certificate = later._tls.tls.getpeercert()
    assert certificate is not None
    assert ("DNS", "new.example") in certificate["subjectAltName"]
    assert context.verify_mode == ssl.CERT_REQUIRED
    end.send(Pingreq())
    assert isinstance(end.next(), Pingresp)


# ---------------------------------------------------------------- all of them


def front(*lines: str, **settings: object) -> Listeners:
    gateway = Gateway()
    given = GatewaySettings(port=0, listeners=lines, **settings)  # type: ignore[arg-type]
    return Listeners(given, gateway.services, list[Shard]())


def test_the_first_entrance_is_the_plain_one_and_the_others_have_names(tmp_path: Path) -> None:
    made = front("ws 127.0.0.1:0", f"tls 127.0.0.1:0 name=safe certificate={Authority(tmp_path).server}")
    assert list(made.further) == ["ws", "safe"]
    assert len({made.port, *made.further.values()}) == 3
    assert made.trouble() == ""
    made.close()


def test_a_port_in_use_is_one_clear_error_and_gives_the_others_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        with pytest.raises(AddressInUse, match="already in use"):
            front(f"ws 127.0.0.1:{port}", f"tcp 127.0.0.1:{taken.getsockname()[1]} name=b")
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(
    ("line", "message"),
    [("ws 192.0.2.1:0", "cannot listen"), ("ws no.such.invalid:0", "unknown"), ("ws a..b:0", "no host name")],
)
def test_an_address_that_is_not_ours_is_no_port_in_use(line: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        front(line)


def test_a_certificate_that_is_missing_is_one_clear_error() -> None:
    with pytest.raises(InvalidConfig, match="nowhere"):
        front("tls 127.0.0.1:0 certificate=/nowhere.pem")


@pytest.mark.parametrize(("silence_s", "is_on"), [(0, False), (300, True), (1, True)])
def test_a_client_that_vanished_without_a_keep_alive_is_noticed_by_the_system(silence_s: int, is_on: bool) -> None:
    with socket.socket() as connected:
        notice_loss(connected, silence_s)
        assert bool(connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) == is_on
        if is_on:
            idle_s = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            every_s = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            assert idle_s == silence_s
            assert every_s * connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) <= max(4, silence_s / 2)


def test_every_listener_reads_its_certificate_again_when_asked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = front(f"tls 127.0.0.1:0 certificate={authority.server}", f"wss 127.0.0.1:0 certificate={authority.server}")
    contexts = [one.certificates.context for one in made._listeners if one.certificates is not None]
    made.tick(0.0)
    assert [one.certificates.context for one in made._listeners if one.certificates is not None] == contexts
    made.reload()
    again = [one.certificates.context for one in made._listeners if one.certificates is not None]
    made.close()
    assert len(again) == 2
    assert not set(again) & set(contexts)


def test_when_certificates_end_is_told_of_each_listener_that_has_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, clients = f"certificate={authority.server}", f"client_ca={authority.ca} client_crl={authority.revoke()}"
    made = front("ws 127.0.0.1:0", f"tls 127.0.0.1:0 {server}", f"wss 127.0.0.1:0 name=web {server} {clients}")
    made.close()
    ends, list_ends = [ends_at(path.read_text()) for path in (authority.server, tmp_path / "crl.pem")]
    assert made.certificates_end_at() == {
        'gateway_certificate_ends_at_s{listener="tls"}': ends,
        'gateway_certificate_ends_at_s{listener="web"}': ends,
        'gateway_crl_ends_at_s{listener="web"}': list_ends,
    }


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """This process may have few more files and sockets open than it has: so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = count_open() + SPARE + 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_clients_leave_descriptors_to_the_rest_of_the_process(
    few_descriptors: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is sent away for that is counted, and the log says why, once."""
    gateway = Gateway(connections_max=1000)
    shard = Shard(EpollPoller(), gateway.rounds, 1 << 20)
    made = Listeners(GatewaySettings(port=0, connections_max=1000), gateway.services, [shard])
    clients = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        for _ in range(20):
            clients.append(await trio.open_tcp_stream("127.0.0.1", made.port))
        with trio.fail_after(PATIENCE_S):
            while len(shard) + gateway.quotas.refused["connections_max"] < 20:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 0 < len(shard) < 10
    assert few_descriptors - count_open() > 20  # the clients of this test are in the same process
    assert gateway.connections.counters.of("tcp").refused == 20 - len(shard)
    (record,) = caplog.records
    assert f"connections_max is 1000, but this process may have {few_descriptors} files" in record.getMessage()
    assert "LimitNOFILE" in record.getMessage()
    for client in clients:
        client.socket.close()
    made.close()
    shard.close()


async def test_out_of_descriptors_an_address_that_fills_the_room_makes_room_for_another(few_descriptors: int) -> None:
    gateway = Gateway(connections_max=1000)
    shard = Shard(EpollPoller(), gateway.rounds, 1 << 20)
    made = Listeners(GatewaySettings(port=0, connections_max=1000), gateway.services, [shard])
    clients = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        with trio.fail_after(PATIENCE_S):
            while not gateway.quotas.refused["connections_max"]:
                clients.append(await trio.open_tcp_stream("127.0.0.1", made.port))
                await trio.lowlevel.checkpoint()
            clients.append(await trio.open_tcp_stream("127.0.0.1", made.port, local_address="127.0.0.2"))
            while "127.0.0.2" not in addresses(shard):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    for client in clients:
        client.socket.close()
    made.close()
    shard.close()


def addresses(shard: Shard) -> list[str]:
    """Where the devices of a shard come from."""
    found = [line.occupant for line in shard._lines if line is not None]
    return [one.peer.address for one in found if isinstance(one, Device)]


async def test_that_clients_are_sent_away_is_told_again_after_there_was_room(
    few_descriptors: int, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(connections_max=1000)
    shard = Shard(EpollPoller(), gateway.rounds, 1 << 20)
    made = Listeners(GatewaySettings(port=0, connections_max=1000), gateway.services, [shard])

    async def crowd() -> None:
        before = gateway.quotas.refused["connections_max"]
        clients = [await trio.open_tcp_stream("127.0.0.1", made.port) for _ in range(12)]
        with trio.fail_after(PATIENCE_S):
            while gateway.quotas.refused["connections_max"] == before:
                await trio.lowlevel.checkpoint()
        for client in clients:
            client.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await crowd()
        made.tick(1)
        await crowd()
        assert len(caplog.records) == 1
        with trio.fail_after(PATIENCE_S):
            while len(shard):
                shard.round()
                await trio.lowlevel.checkpoint()
        made.tick(2)
        await crowd()
        nursery.cancel_scope.cancel()
    assert len(caplog.records) == 2
    made.close()
    shard.close()


async def test_a_listener_accepts_no_faster_than_it_may_and_sends_nobody_away() -> None:
    clock = cast(MockClock, trio.lowlevel.current_clock())
    gateway = Gateway()
    shard = Shard(EpollPoller(), gateway.rounds, 1 << 20)
    made = Listeners(GatewaySettings(port=0, accepts_per_s_max=5), gateway.services, [shard])
    tally = gateway.connections.counters.of("tcp")

    async def settle() -> int:
        for _ in range(200):
            await trio.lowlevel.checkpoint()
        return len(shard)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        clients = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(12)]
        assert await settle() == 6  # a second's worth, and the one that showed that it was used up
        assert tally.accepts_paced == 1
        clock.jump(0.5)
        assert await settle() == 8
        clock.jump(10)
        assert await settle() == 12
        assert tally.refused == 0
        nursery.cancel_scope.cancel()
    for client in clients:
        client.close()
    made.close()
    shard.close()


def waiting(house: Doorway) -> list[PendingConnection]:
    """Those that have said nothing yet, the oldest first."""
    found = [line.occupant for line in house.shard._lines if line is not None]
    return [one for one in found if isinstance(one, PendingConnection)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "proxy" not in kind])
def test_an_address_that_fills_the_room_makes_room_for_another(doorway: Make, kind: str) -> None:
    house = doorway(kind, half_open_max=3)
    greedy = [house.knock("10.0.0.1") for _ in range(4)]
    assert greedy[3].recv(10) == b"", "it waits for itself"
    house.knock("10.0.0.2")
    house.turn()
    assert [one.address for one in waiting(house)] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert greedy[2].recv(10) == b""
    assert (house.gateway.connections.half_open, house.tally.refused) == (3, 2)


def test_an_address_that_fills_the_room_with_plain_sockets_makes_room_too(doorway: Make) -> None:
    house = doorway("tcp 127.0.0.1:0 name=x", half_open_max=3, connections_max=3)
    greedy = [house.knock("10.0.0.1") for _ in range(3)]
    house.knock("10.0.0.2")
    house.turn()
    assert greedy[2].recv(10) == b""
    assert house.gateway.connections.half_open == len(house.gateway.connections) == 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "proxy" in kind])
def test_behind_a_load_balancer_the_clients_addresses_count(doorway: Make, kind: str) -> None:
    house = doorway(kind, half_open_max=3)
    for _ in range(3):
        house.knock().send(proxy_header("198.51.100.9"))
    house.turn()
    house.knock()
    assert len(waiting(house)) == 3, "whose they are is not known yet"
    house.pass_time(1)
    house.knock().send(proxy_header("203.0.113.7"))
    house.turn()
    assert house.gateway.connections.half_open == 3
    house.pass_time(1)
    assert sorted(one.counted_as for one in waiting(house)) == ["198.51.100.9", "198.51.100.9", "203.0.113.7"]
