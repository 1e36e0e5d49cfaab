"""One client's round trips beside a herd: every one is checked, and a herd that is not let in has no number."""

from __future__ import annotations

import resource
import socket

import pytest

from loadtest import generator, neighbour, scenarios
from loadtest.generator import Outcome
from loadtest.packets import CONNACK_OK, connect, retained, suback
from loadtest.run import perform
from tests.loadtest.small_server import Fault, SmallServer, whole
from tests.loadtest.test_paced import order

pytestmark = pytest.mark.endtoend

HERD = 5


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "SETTLE_S", 0.0)
    monkeypatch.setattr(neighbour, "QUIET_S", 0.05)
    monkeypatch.setattr(neighbour, "GOING_S", 0.05)
    monkeypatch.setattr(neighbour, "STAY_S", 0.05)


class Recording:
    """Keeps what a wire is asked to write and to expect."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.expected: list[bytes] = []

    def ask(self, data: bytes) -> None:
        self.asked.append(data)

    def expect(self, data: bytes, what: str) -> None:
        self.expected.append(data)


class Counting(SmallServer):
    """Knows how many came, and may turn one away."""

    came = 0
    turns_away = -1
    filters = 0
    refuses = False
    doubles = False

    def __init__(self, ack: Fault) -> None:
        super().__init__(ack=ack)
        self.kept: list[bytes] = []
        self.hosts: list[str] = []

    def _greet(self, host: str) -> None:
        self.hosts.append(host)

    def _receive(self, sock):  # type: ignore[no-untyped-def]
        data = sock.recv(65536)
        packets, self._rests[sock] = whole(self._rests[sock] + data)
        for packet in packets:
            self._serve(sock, packet)
        return bool(data)

    def _serve(self, sock: socket.socket, packet: bytes) -> None:
        if packet[0] == 0x10:
            self.came += 1
            sock.sendall(CONNACK_OK if self.came != self.turns_away else b"\x20\x02\x00\x03")
        elif packet[0] == 0x82 and b"kept/#" in packet:
            sock.sendall(b"\x90\x03\x00\x01\x00" + b"".join(self.kept[:1] * self.doubles + self.kept))
        elif packet[0] == 0x82:
            count = packet.count(b"herd/")
            self.filters += count
            sock.sendall(suback(count)[:-1] + (b"\x80" if self.refuses else b"\x01"))
        elif packet[0] == 0x33:
            size = int.from_bytes(packet[2:4], "big")
            self.kept.append(retained(packet[4 : 4 + size].decode(), packet[6 + size :]))
            sock.sendall(b"\x40\x02" + packet[4 + size : 6 + size])
        elif packet[0] == 0x32:
            number = self._published = self._published + 1
            for ack in self._ack(number, b"\x40\x02" + packet[8:10]):
                sock.sendall(ack)


def run(
    turns_away: int = -1,
    ack: Fault = lambda number, ack: [ack],
    refuses: bool = False,
    doubles: bool = False,
    **asked: object,
) -> tuple[Outcome, Counting]:
    with Counting(ack) as server:
        server.turns_away, server.refuses, server.doubles = turns_away, refuses, doubles
        return perform(order(server.port, kind=scenarios.NEIGHBOUR, sessions=HERD, **asked)), server


def test_the_neighbour_goes_on_while_a_herd_comes_and_goes() -> None:
    outcome, server = run()
    assert outcome.error == ""
    assert server.came == HERD + 1
    assert outcome.messages == server._published >= 3
    assert outcome.checked == outcome.messages + HERD
    assert set(outcome.figures) == {"quiet_ms", "coming_ms", "going_ms", "coming_s"}
    assert min(outcome.figures.values()) > 0


def test_a_herd_may_have_filters() -> None:
    outcome, server = run(filters=3)
    assert outcome.error == ""
    assert server.filters == 3 * HERD


def test_a_herd_may_send_its_connects_byte_by_byte() -> None:
    outcome, server = run(slow=True)
    assert outcome.error == ""
    assert server.came == HERD + 1


@pytest.mark.parametrize("slow", [False, True])
def test_the_bytes_of_a_slow_herd_go_out_one_by_one(slow: bool) -> None:
    """What the server's socket joins again is not asked: each byte was one write, and all wires took turns."""
    wires = [Recording() for _ in range(HERD)]
    neighbour._connect(wires, slow)  # type: ignore[arg-type]
    hellos = [connect(f"herd-{number}") for number in range(HERD)]
    assert [b"".join(one.asked) for one in wires] == hellos
    assert [len(one.asked) for one in wires] == [len(hello) if slow else 1 for hello in hellos]
    assert all(one.expected == [CONNACK_OK] for one in wires)


def test_the_neighbour_of_an_idle_herd_comes_from_elsewhere_for_each_message() -> None:
    outcome, server = run(idle=True)
    assert outcome.error == ""
    assert server.came == server._published == outcome.messages >= 4
    assert server.hosts.count("127.0.0.1") == HERD
    assert set(server.hosts) == {"127.0.0.1", neighbour.ELSEWHERE}


def test_a_visit_that_is_not_let_in_leaves_no_number() -> None:
    outcome, _ = run(turns_away=3, idle=True)
    assert "another CONNACK than expected" in outcome.error


@pytest.mark.interpreted
def test_an_idle_herd_has_no_more_sockets_than_a_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096), (1024, resource.RLIM_INFINITY), (256, 256)]
    monkeypatch.setattr(neighbour.resource, "getrlimit", lambda _: limits.pop(0))
    assert [neighbour.sockets_within_limit(10_000) for _ in range(3)] == [3096, 10_000, 1]


def test_one_of_the_herd_takes_each_retained_message_once() -> None:
    outcome, server = run(messages=1500)
    assert outcome.error == ""
    assert (len(server.kept), outcome.checked) == (1500, outcome.messages + HERD + 1500)


def test_a_herd_that_is_sent_a_retained_message_twice_has_no_number() -> None:
    outcome, _ = run(messages=10, doubles=True)
    assert "one that came before" in outcome.error


def test_a_herd_whose_filters_are_not_granted_has_no_number() -> None:
    outcome, _ = run(filters=3, refuses=True)
    assert "the herd was not let in: another SUBACK than expected" in outcome.error


def test_a_herd_that_is_not_let_in_has_no_number() -> None:
    outcome, _ = run(turns_away=3)
    assert "the herd was not let in: another CONNACK than expected: 20 02 00 03" in outcome.error


def test_a_neighbour_that_gets_another_acknowledgement_has_no_number() -> None:
    outcome, _ = run(ack=lambda number, ack: [ack if number != 3 else b"\x40\x02\x77\x77"])
    assert "another PUBACK than expected" in outcome.error
