"""One task for all sockets of a shard, on a poller that the test moves by hand and real socket pairs."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator

import pytest
import trio
from lines import Echo, HandPoller, Upper

from gateway.net.poller import BROKEN, ENDED, EVENTS_MAX, READ, WRITE, EpollPoller
from gateway.net.rounds import Rounds, Stage
from gateway.net.shard import CHUNK_BYTES, CROWD, LINGER_S, SHORT_BYTES, WRITE_BYTES_MAX, Line, Shard
from gateway.transports.codec import Codec
from penstock.world import RealClock
from tests.patience import PATIENCE_S


class House:
    """A shard with one client."""

    def __init__(self, codec: Codec | None = None) -> None:
        self.poller = HandPoller()
        self.rounds = Rounds(RealClock(), lambda: None)
        self.shard = Shard(self.poller, self.rounds, output_bytes_max=100_000)
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.line = self.shard.add(ours, codec)
        self.echo = self.line.occupant = Echo(self.line)

    def round(self, mask: int = 0) -> None:
        if mask:
            self.poller.ready = [(self.line.descriptor, mask)]
        self.shard.round()

    @property
    def mask(self) -> int:
        return self.poller.masks[self.line.descriptor]

    def fill(self) -> int:
        """Writes until the system takes no more; returns how many bytes."""
        written = 0
        while not self.line.is_full:
            self.line.write(b"x" * 60_000)
            written += 60_000
            self.round()
        return written


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.shard.close()
    made.client.close()


class Faulty(Echo):
    """One that meets an error nobody has foreseen."""

    def receive(self, chunk: bytes) -> None:
        super().receive(chunk)
        raise ZeroDivisionError("poison")


@pytest.mark.parametrize("is_coded", [False, True])
def test_an_error_nobody_has_foreseen_ends_the_connection_that_brought_it_and_no_other(
    is_coded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(Upper() if is_coded else None)
    faulty = house.line.occupant = Faulty(house.line)
    ours, neighbour = socket.socketpair()
    ours.setblocking(False)
    beside = house.shard.add(ours)
    beside.occupant = Echo(beside)
    house.client.send(b"poison")
    neighbour.send(b"hello")
    house.poller.ready = [(house.line.descriptor, READ), (beside.descriptor, READ)]
    house.shard.round()
    assert faulty.events[1:] == ["broken"]
    assert house.client.recv(100) == b""  # closed
    assert neighbour.recv(100) == b"hello"
    assert (house.shard.failures, len(house.shard)) == (1, 1)
    assert "poison" in caplog.text
    house.shard.close()
    house.client.close()
    neighbour.close()


def test_a_round_reads_and_answers_with_one_write(house: House) -> None:
    house.client.send(b"one")
    house.round(READ)
    assert house.client.recv(100) == b"one"


def test_output_of_a_round_leaves_together(house: House) -> None:
    house.line.write(b"a")
    house.line.write(b"b")
    with pytest.raises(BlockingIOError):
        house.client.recv(10)
    house.round()
    assert house.client.recv(10) == b"ab"


class Answering(Stage):
    """Has something to say at a round's end, and something more after it asked for that to be sent."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.early = b""

    def flush(self) -> None:
        self.house.line.write(b"first")
        self.house.rounds.send()
        self.early = received(self.house.client)
        self.house.line.write(b"then")


def received(client: socket.socket) -> bytes:
    try:
        return client.recv(100)
    except BlockingIOError:
        return b""


def test_what_everybody_waits_for_leaves_before_the_round_is_over(house: House) -> None:
    answering = Answering(house)
    house.rounds.ends_with(answering)
    house.round()
    assert (answering.early, received(house.client)) == (b"first", b"then")


def test_a_shard_that_is_in_no_round_writes_at_its_own(house: House) -> None:
    other = Shard(HandPoller(), house.rounds, output_bytes_max=100_000)
    house.rounds.ends_with(Answering(house))
    other.round()
    assert received(house.client) == b""
    assert house.poller.wakes == 1
    other.close()


class Crowded(HandPoller):
    """More becomes ready with every look."""

    def __init__(self, house: House, *looks: list[tuple[int, int]]) -> None:
        super().__init__()
        self.looks = list(looks)
        self.masks = house.poller.masks

    def poll(self) -> list[tuple[int, int]]:
        return self.looks.pop(0) if self.looks else []


def test_what_becomes_ready_while_many_are_read_is_in_the_same_round(house: House) -> None:
    nobody = [(house.line.descriptor + 1, READ)]
    mine = [(house.line.descriptor, READ)]
    house.client.send(b"late")
    house.shard.poller = Crowded(house, nobody * CROWD, mine)
    house.shard.round()
    assert received(house.client) == b"late"
    house.client.send(b"next")
    house.shard.poller = Crowded(house, nobody * (CROWD - 1), mine)
    house.shard.round()
    assert received(house.client) == b""
    house.shard.round()
    assert received(house.client) == b"next"


def test_a_round_ends_however_many_become_ready(house: House) -> None:
    for descriptor, most in ((house.line.descriptor, EVENTS_MAX), (house.line.descriptor + 1, 8 * EVENTS_MAX)):
        house.shard.poller = crowded = Crowded(house, *([[(descriptor, READ)] * CROWD] * 100))
        house.shard.round()
        assert len(crowded.looks) == 100 - most // CROWD, "served, or only looked at"


def test_whoever_is_ready_behind_thousands_that_come_or_go_is_served_in_the_same_round(house: House) -> None:
    ours, theirs = socket.socketpair()
    going = house.shard.add(ours)
    theirs.close()
    crowd = [(going.descriptor, READ | ENDED)] * CROWD
    house.client.send(b"mine")
    house.shard.poller = Crowded(house, *([crowd] * (EVENTS_MAX // CROWD)), [(house.line.descriptor, READ)])
    house.shard.round()
    assert received(house.client) == b"mine"
    assert going.descriptor < 0


def test_output_between_rounds_calls_for_a_round_once(house: House) -> None:
    house.line.write(b"a")
    house.line.write(b"b")
    assert house.poller.wakes == 1


def test_a_full_line_is_not_read_and_waits_to_be_writable(house: House) -> None:
    house.fill()
    assert house.mask == WRITE


def test_nothing_is_lost_or_reordered_when_the_client_reads_slowly(house: House) -> None:
    written = house.fill()
    got = 0
    while got < written:
        got += len(house.client.recv(1 << 20))
        house.round(WRITE if house.mask & WRITE else 0)
    assert house.line.unsent == 0
    assert house.mask == READ
    assert "writable" in house.echo.events


def test_a_client_that_is_held_is_not_read(house: House) -> None:
    house.line.set_reading(False)
    assert house.mask == 0
    house.line.set_reading(True)
    assert house.mask == READ


def test_a_line_that_is_not_read_knows_whether_something_is_there(house: House) -> None:
    house.line.set_reading(False)
    assert not house.line.has_unread()
    house.client.send(b"ping")
    assert house.line.has_unread()
    house.line.set_reading(True)
    house.round(READ)
    assert house.client.recv(100) == b"ping"  # looking takes nothing
    assert not house.line.has_unread()
    house.client.close()
    assert not house.line.has_unread()


def test_the_end_of_the_stream_breaks_the_line(house: House) -> None:
    house.client.close()
    house.round(READ)
    assert house.echo.events == ["broken"]
    assert house.poller.masks == {}


def test_a_broken_line_is_noticed_while_it_is_not_read(house: House) -> None:
    house.line.set_reading(False)
    house.round(BROKEN)
    assert house.echo.events == ["broken"]


def test_very_much_output_goes_out_in_several_rounds_and_little_waits_for_none_of_it(house: House) -> None:
    """A message of 1 MB for a thousand subscribers: who pings is answered between."""
    large = bytes(WRITE_BYTES_MAX // 3)
    others = [a_line(house) for _ in range(5)]
    clients = [house.client, *[client for _, client in others]]
    for line in [house.line, *[line for line, _ in others]]:
        line.write(large)
    small, pinged = a_line(house)
    small.write(b"pong")
    wakes = house.poller.wakes
    house.round()
    assert received(pinged) == b"pong"
    assert [received(client) != b"" for client in clients] == [True] * 4 + [False] * 2
    assert house.poller.wakes == wakes + 1, "there is a next round"
    small.write(b"again")
    house.round()
    assert received(pinged) == b"again"
    assert [received(client) != b"" for client in clients[4:]] == [True] * 2
    assert house.poller.wakes == wakes + 1
    for _, client in [*others, (small, pinged)]:
        client.close()


def a_line(house: House) -> tuple[Line, socket.socket]:
    """One more, with nobody who is told, and its client."""
    ours, client = socket.socketpair()
    ours.setblocking(False)
    client.setblocking(False)
    return house.shard.add(ours), client


def test_a_client_that_is_gone_when_we_write_breaks_the_line(house: House) -> None:
    house.client.close()
    house.line.write(b"x")
    house.round()
    assert house.echo.events == ["broken"]
    assert len(house.shard) == 0


def test_a_farewell_is_delivered_before_the_close(house: House) -> None:
    house.client.send(b"unread")
    house.line.write(b"farewell")
    house.line.close()
    house.round()
    assert house.client.recv(100) == b"farewell"
    assert house.client.recv(100) == b""
    assert house.echo.events == []


def test_what_comes_after_a_farewell_is_thrown_away_until_the_client_closes(house: House) -> None:
    house.line.close()
    house.round()
    house.client.send(b"more")
    house.round(READ)
    assert len(house.shard) == 1
    house.client.close()
    house.round(READ)
    assert len(house.shard) == 0
    assert house.echo.events == []


def test_a_client_that_never_closes_is_given_up(house: House) -> None:
    house.line.close()
    house.round()
    house.shard.tick(RealClock().monotonic() + LINGER_S + 2)
    assert len(house.shard) == 0


def test_writing_after_the_end_does_nothing(house: House) -> None:
    house.client.close()
    house.round(READ)
    house.line.write(b"late")
    house.line.set_reading(True)
    house.round()
    assert house.poller.masks == {}


@pytest.fixture
def coded() -> Iterator[House]:
    made = House(Upper())
    yield made
    made.shard.close()
    made.client.close()


def test_a_codec_stands_between_the_socket_and_the_occupant(coded: House) -> None:
    coded.client.send(b"ONE")
    coded.round(READ)
    assert coded.echo.events == [b"one"]
    assert coded.client.recv(100) == b"ONE"
    assert coded.line.unsent == 0


def test_what_a_codec_says_by_itself_goes_first_and_nobody_hears_of_it(coded: House) -> None:
    coded.line.write(b"a")
    coded.client.send(b"??")
    coded.round(READ)
    assert coded.echo.events == []
    assert coded.client.recv(100) == b"!!A"
    assert coded.line.unsent == 0


def test_what_is_over_for_the_codec_breaks_the_occupant_and_its_last_words_are_sent(coded: House) -> None:
    coded.client.send(b"GOOD#LATE")
    coded.round(READ)
    assert coded.echo.events == [b"good", "broken"]
    assert coded.client.recv(100) == b"REFUSEDGOODBYE"
    assert coded.client.recv(100) == b""
    coded.client.send(b"MORE")
    coded.round(READ)
    assert coded.echo.events == [b"good", "broken"]


def test_a_farewell_ends_with_the_codecs(coded: House) -> None:
    coded.line.write(b"so long")
    coded.line.close()
    coded.round()
    assert coded.client.recv(100) == b"SO LONGBYE"
    assert coded.line.unsent == 0


def codec_of(house: House) -> weakref.ref[Codec]:
    assert house.line.codec is not None
    return weakref.ref(house.line.codec)


def test_a_line_that_is_shut_has_no_codec_any_more(coded: House) -> None:
    codec = codec_of(coded)
    coded.client.close()
    coded.round(READ)
    gc.collect()
    assert (codec(), len(coded.shard)) == (None, 0)


def test_a_line_that_has_said_its_farewell_has_no_codec_any_more_and_nothing_goes_past_where_it_was(
    coded: House,
) -> None:
    codec = codec_of(coded)
    coded.line.close()
    coded.round()
    gc.collect()
    assert (codec(), coded.line.is_lingering) == (None, True)
    coded.line.write(b"too late")
    coded.round()
    assert coded.client.recv(100) == b"BYE"
    assert coded.client.recv(100) == b""


def test_a_codecs_own_output_counts_against_the_limit(coded: House) -> None:
    while not coded.line.is_full:
        coded.client.send(b"?" * 10_000)
        coded.round(READ)
    assert coded.mask == WRITE
    assert coded.line.unsent > 100_000
    got = 0
    while coded.line.unsent:
        got += len(coded.client.recv(1 << 20))
        coded.round(WRITE if coded.mask & WRITE else 0)
    assert coded.mask == READ


def test_coded_output_keeps_its_order_when_the_client_reads_slowly(coded: House) -> None:
    written = coded.fill()
    coded.client.send(b"?")
    coded.round(READ)
    got = bytearray()
    while len(got) < written + 1:
        got += coded.client.recv(1 << 20)
        coded.round(coded.mask & (READ | WRITE))
    assert got.count(b"!") == 1  # before what was not encoded yet
    assert bytes(got).replace(b"!", b"") == b"X" * written


SIZES = [
    1,
    SHORT_BYTES - 1,
    SHORT_BYTES,
    SHORT_BYTES + 1,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    3 * CHUNK_BYTES,
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ends", [False, True])
async def test_all_that_came_and_the_end_behind_it_are_read_though_the_poller_tells_once(size: int, ends: bool) -> None:
    poller = EpollPoller()
    shard = Shard(poller, Rounds(RealClock(), lambda: None), output_bytes_max=1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ours, _ = server.accept()
        ours.setblocking(False)
        line = shard.add(ours)
        echo = line.occupant = Echo(line)
        client.sendall(bytes(size))
        if ends:
            client.shutdown(socket.SHUT_WR)
        got = 0
        with trio.fail_after(PATIENCE_S):
            while got < size or (ends and echo.events[-1] != "broken"):
                await poller.wait()
                shard.round()
                got = sum(len(chunk) for chunk in echo.events if isinstance(chunk, bytes))
        assert got == size
        assert poller.poll() == []
    shard.close()


def test_a_client_may_send_little_and_much_in_turns(house: House) -> None:
    for size in (100, SHORT_BYTES, 10, 2000, SHORT_BYTES + 1, 10, 10, CHUNK_BYTES, 1):
        data = bytes([size % 251]) * size
        house.client.setblocking(True)
        house.client.sendall(data)
        before = len(house.echo.events)
        for _ in range(3):
            house.round(READ)
        chunks = house.echo.events[before:]
        assert b"".join(chunk for chunk in chunks if isinstance(chunk, bytes)) == data
        assert len(chunks) == 1, "what is there is one chunk, however much came before"
        received = b""
        while len(received) < size:
            received += house.client.recv(1 << 20)
        assert received == data
    assert house.line.unsent == 0


def test_what_nobody_adds_to_goes_at_once_and_without_a_round(house: House) -> None:
    house.line.write_now(b"first")
    house.line.write_now(b"second")
    assert house.client.recv(100) == b"firstsecond"
    assert (house.poller.wakes, house.line.unsent) == (0, 0)


def test_what_goes_at_once_never_overtakes_what_waits_for_the_rounds_end(house: House) -> None:
    house.line.write(b"before")
    house.line.write_now(b"behind")
    assert received(house.client) == b""
    house.round()
    assert received(house.client) == b"beforebehind"


def test_what_a_full_socket_does_not_take_at_once_is_kept_in_order(house: House) -> None:
    sent = b""
    while not house.line.unsent:
        data = bytes([len(sent) % 251]) * 50_000
        house.line.write_now(data)
        sent += data
    for last in (b"more", b"end"):
        house.line.write_now(last)
        sent += last
    got = b""
    while len(got) < len(sent):
        house.round(WRITE)
        got += house.client.recv(1 << 20)
    assert got == sent
    assert house.line.unsent == 0


def test_the_end_of_a_line_that_broke_is_found_by_the_round(house: House) -> None:
    house.client.close()
    house.line.write_now(b"x")
    assert house.echo.events == []
    house.round()
    assert house.echo.events == ["broken"]


def test_where_a_codec_is_between_nothing_goes_past_it() -> None:
    house = House(Upper())
    house.line.write_now(b"quiet")
    house.round()
    assert house.client.recv(100) == b"QUIET"
    house.shard.close()
    house.client.close()
