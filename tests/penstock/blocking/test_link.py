"""The blocking link against a real frame server in a thread, and against sockets that misbehave."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from penstock.blocking import BlockingLink
from penstock.blocking.exchange import Exchange
from penstock.errors import InvalidRequest, InvalidTopic, ProtocolError, TimedOut, TooLarge, Unavailable
from penstock.protocol import wire
from penstock.protocol.link import OnResult
from penstock.protocol.requests.messages import Append, Appended, Pull, Pulled
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.topics import CreateTopic
from penstock.service.frame_server import Peer
from tests.patience import PATIENCE_S


class Answers:
    """Answers Ping and Append, refuses CreateTopic, echoes a Pull's offset as ``next`` unless it waits."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def submit(self, request: Request, on_result: OnResult) -> None:
        if isinstance(request, Append):
            on_result(Appended("disk" if request.count == len(request.body) else "cache"))
        elif isinstance(request, CreateTopic):
            on_result(InvalidTopic("no such name"))
        elif isinstance(request, Pull):
            if request.wait_s == 0:
                on_result(Pulled(0, request.offset, 0, 0, bytes(request.bytes_max)))
        else:
            on_result(ServerInfo("test", self._peer.address, "1"))

    def flush(self) -> None:
        pass

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None:
        pass


@pytest.fixture
def address(serve: Callable[..., Any]) -> str:
    return str(serve(Answers).address)


Misbehave = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def misbehaving() -> Iterator[Misbehave]:
    """Starts a server whose every connection is handed to a function and then closed."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def start(serve: Callable[[socket.socket], None]) -> str:
            def run() -> None:
                connection, _ = listener.accept()
                with connection:
                    serve(connection)

            threads.append(threading.Thread(target=run))
            threads[0].start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start
        for thread in threads:
            thread.join(PATIENCE_S)


def test_a_call_returns_the_reply(address: str) -> None:
    with BlockingLink(address) as link:
        assert link.call(Append(3, False, b"abc")) == Appended("disk")


def test_an_error_reply_is_raised_and_the_link_goes_on(address: str) -> None:
    with BlockingLink(address) as link:
        with pytest.raises(InvalidTopic, match="no such name"):
            link.call(CreateTopic("x"))
        assert isinstance(link.call(Ping()), ServerInfo)


def test_many_requests_go_out_together_and_each_has_its_result(address: str) -> None:
    with BlockingLink(address) as link:
        results = link.call_many([Pull("a:0", at) for at in range(20)] + [CreateTopic("x")])
    assert [result.next for result in results[:-1] if isinstance(result, Pulled)] == list(range(20))
    assert isinstance(results[-1], InvalidTopic)


def test_a_long_reply_arrives_whole(address: str) -> None:
    with BlockingLink(address) as link:
        reply = link.call(Pull("a:0", 1, bytes_max=8_000_000))
    assert isinstance(reply, Pulled)
    assert len(reply.body) == 8_000_000


def test_one_connection_serves_all_calls(address: str) -> None:
    with BlockingLink(address) as link:
        assert link.call(Ping()) == link.call(Ping())  # the name is the peer's address


def test_nobody_there_says_what_was_tried_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable, match=f"no server at 127.0.0.1:{port}: connection refused .*penstock up"):
        BlockingLink(f"127.0.0.1:{port}").call(Ping())


def test_no_answer_in_time_is_timed_out_and_the_next_call_connects_anew(address: str) -> None:
    with BlockingLink(address) as link:
        before = link.call(Ping())
        with pytest.raises(TimedOut, match="unknown"):
            link.call(Pull("a:0", 0, wait_s=60), timeout_s=0.05)
        assert link.call(Ping()) != before


def test_a_deadline_that_has_passed_sends_nothing(address: str) -> None:
    with BlockingLink(address) as link, pytest.raises(TimedOut):
        link.call(Ping(), timeout_s=0)


def test_a_lost_connection_is_unavailable(misbehaving: Misbehave) -> None:
    link = BlockingLink(misbehaving(lambda connection: connection.recv(10) and None))
    with pytest.raises(Unavailable):
        link.call(Ping())


@pytest.mark.parametrize("sent", [b"\xff" * 20, wire.join(wire._frame([0, 1, 5]))])
def test_bytes_that_are_no_reply_are_a_protocol_error(misbehaving: Misbehave, sent: bytes) -> None:
    with BlockingLink(misbehaving(lambda connection: connection.sendall(sent))) as link, pytest.raises(ProtocolError):
        link.call(Ping())


def test_the_servers_last_word_is_raised(misbehaving: Misbehave) -> None:
    word = wire.join(wire.encode_error(0, TooLarge("too much")))
    with BlockingLink(misbehaving(lambda connection: connection.sendall(word))) as link, pytest.raises(TooLarge):
        link.call(Ping())


def test_a_request_over_the_frame_limit_is_refused_before_it_is_sent(address: str) -> None:
    with BlockingLink(address) as link:
        with pytest.raises(TooLarge):
            link.call(Append(1, False, bytes(wire.FRAME_BYTES_MAX)))
        assert isinstance(link.call(Ping()), ServerInfo)


def test_it_imports_no_event_loop() -> None:
    code = "import sys, penstock.blocking; print(sorted({'trio', 'anyio', 'asyncio', 'click'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_request_that_cannot_be_sent_fails_alone(address: str) -> None:
    with BlockingLink(address) as link:
        good, bad, last = link.call_many([Ping(), Pull("q", 1 << 64), Pull("q", 7)])
        assert isinstance(good, ServerInfo)
        assert isinstance(bad, InvalidRequest)
        assert isinstance(last, Pulled)
        assert last.next == 7
        with pytest.raises(InvalidRequest, match="an argument cannot be sent"):
            link.call(Pull("q", 1 << 64))
    unreachable = BlockingLink("127.0.0.1:1")
    assert [type(one) for one in unreachable.call_many([Pull("q", 1 << 64)])] == [InvalidRequest]


def test_of_requests_without_a_waiting_caller_only_the_bad_one_hears_of_it(address: str) -> None:
    results: dict[int, Any] = {}
    exchange = Exchange()
    with BlockingLink(address) as link:
        asked = [Pull("q", 1), Pull("q", 1 << 64), Pull("q", 2)]
        exchange.submit(link, [(request, partial(results.__setitem__, at)) for at, request in enumerate(asked)])
        while len(results) < 3:
            exchange.wait(PATIENCE_S)
    assert [getattr(results[at], "next", None) for at in range(3)] == [1, None, 2]
    assert isinstance(results[1], InvalidRequest)


def test_where_a_server_cannot_be_reached_the_next_copy_of_its_log_is(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = f"127.0.0.1:{listener.getsockname()[1]}"
    with BlockingLink(gone, copies_of=lambda _: (gone, address)) as link:
        with pytest.raises(Unavailable):
            link.call(Ping())
        assert isinstance(link.call(Ping()), ServerInfo)
