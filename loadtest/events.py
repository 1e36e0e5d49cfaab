"""What the event bridge costs: patterns by themselves, events in by HTTP, and out to a local HTTP API.

The system, the API and the sender are processes of their own on the same cores. The API answers each request at once;
a request may hold one event or a batch.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import trio
from rich.console import Console

from events.cloudevents import Event, from_document
from events.pattern import Pattern
from events.pattern_index import PatternIndex
from events.resting import AWAKE_MAX
from loadtest.proc import cpu_s
from loadtest.rows import Row, show

BATCH = 500
EVENTS = 40_000
RULES = 1_000
CONNECTIONS = 4
ROUNDS = 5
WAIT_S = 120.0
_READY = re.compile(r"^ready .*namesrv=(\S+) .*events=(\S+)")
_READY_ALONE = re.compile(r"^ready .*events=(\S+)")


def event(of_type: str, number: int = 0) -> dict[str, Any]:
    """One event of about 250 bytes, in the JSON format."""
    data = {"n": number, "celsius": 41.5, "unit": "C", "device": {"site": "north", "line": 7}}
    named = {"specversion": "1.0", "id": f"e{number}", "source": "/devices/d7", "type": of_type}
    return named | {"subject": f"plant/d{number % 100}", "data": data}


# ---------------------------------------------------------------- patterns by themselves


def _per_call_us(call: Callable[[], object], count: int = 20_000) -> float:
    """Microseconds of processor time of a call, the best of several rounds: what it costs where nothing else runs."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(count):
            call()
        best = min(best, (time.process_time() - began) / count)
    return best * 1e6


def patterns() -> Iterator[Row]:
    """What a rule of five terms costs, and 1,000 rules beside 10."""
    five = {
        "type": ["reading"],
        "source": [{"prefix": "/devices/"}],
        "data": {"celsius": [{"numeric": [">", 40]}], "unit": ["C"], "device": {"site": [{"anything-but": ["south"]}]}},
    }
    one, pattern = from_document(event("reading")), Pattern(five)
    assert pattern.matches(one)
    parsed_us = _per_call_us(partial(pattern.matches, one))
    yield Row("a rule of five terms, data parsed before", parsed_us, "us", "<= 5", parsed_us <= 5)
    fresh_us = _per_call_us(lambda: pattern.matches(Event(one.attributes, one.data)))
    yield Row("the same, with the event's data parsed", fresh_us, "us", "<= 5", fresh_us <= 5)
    ten, many = (_index(count) for count in (10, 1_000))
    assert ten.matching(one) == many.matching(one) == [0]
    ratio = _per_call_us(partial(many.matching, one)) / _per_call_us(partial(ten.matching, one))
    yield Row("1,000 rules in the index beside 10, one matches", ratio, "times", "<= 3", ratio <= 3)


def _index(count: int) -> PatternIndex[int]:
    names = ["reading", *[f"other{number}" for number in range(1, count)]]
    return PatternIndex((at, Pattern({"type": [name], "data": {"unit": ["C"]}})) for at, name in enumerate(names))


# ---------------------------------------------------------------- in and out


@contextmanager
def _running(command: list[str], env: dict[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """The first line of a process, and its id; it ends with the block."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | (env or {})) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _ask(address: str, method: str, path: str, value: Any = None) -> Any:
    connection = HTTPConnection(address, timeout=WAIT_S)
    connection.request(method, path, None if value is None else json.dumps(value), {"content-type": "application/json"})
    answer = connection.getresponse()
    raw = answer.read()
    assert answer.status < 300, raw
    connection.close()
    return json.loads(raw) if raw else None


async def _post_all(address: str, path: str, bodies: list[bytes]) -> float:
    """Sends batches over several connections; returns the seconds that it took."""
    host, _, port = address.rpartition(":")
    head = f"POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/cloudevents-batch+json\r\n"
    rest = bodies[::-1]

    async def send() -> None:
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            while rest:
                body = rest.pop()
                await stream.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                answer = b""
                while not _end_of(answer):
                    chunk = await stream.receive_some()
                    assert chunk, answer
                    answer += chunk
                assert answer.startswith(b"HTTP/1.1 202"), answer[:500]

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(send)
    return time.perf_counter() - began


def _end_of(raw: bytes) -> int:
    """Where the first message of some HTTP ends; 0 while it has not."""
    head, blank, body = raw.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head.lower())
    if not blank or not length or len(body) < int(length[1]):
        return 0
    return len(head) + len(blank) + int(length[1])


def _bodies(count: int, of_type: str) -> list[bytes]:
    return [
        json.dumps([event(of_type, number) for number in range(at, min(at + BATCH, count))]).encode()
        for at in range(0, count, BATCH)
    ]


def _work_row(name: str, pids: list[int], before_s: float, count: int) -> Row:
    """What the system's processes have worked for each event, which other work on the machine changes little."""
    return Row(f"{name}: processor time", (cpu_s(pids) - before_s) / count * 1e6, "us/event", "", True)


def ingest(address: str, pids: list[int], what: str, count: int = EVENTS) -> Iterator[Row]:
    """Events in by HTTP batch, to a bus without rules; the answers come when they are on the disk."""
    _ask(address, "PUT", "/v1/buses/in", {})
    trio.run(_post_all, address, "/v1/buses/in/events", _bodies(count // 10, "warm"))
    bodies, before_s, name = _bodies(count, "reading"), cpu_s(pids), f"in, batches of {BATCH}, {what}"
    per_s = count / trio.run(_post_all, address, "/v1/buses/in/events", bodies)
    yield Row(name, per_s, "events/s", ">= 20,000", per_s >= 20_000)
    yield _work_row(name, pids, before_s, count)


def delivery(address: str, pid: int, api: str, batch: int, count: int = EVENTS // 2) -> Iterator[Row]:
    """Events that wait in a bus, out to the API by one of ten rules that wants them."""
    bus = f"/v1/buses/out-{batch}"
    _ask(address, "PUT", bus, {})
    trio.run(_post_all, address, bus + "/events", _bodies(count, "reading"))
    target = {"kind": "http", "url": f"http://{api}/", "batch": batch, "concurrency": 64}
    _ask(address, "PUT", bus + "/targets/api", target)
    for number in range(1, 10):
        rule = {"target": "api", "pattern": {"type": [f"other{number}"]}, "start": "earliest"}
        _ask(address, "PUT", f"{bus}/rules/r{number}", rule)
    began, before_s = time.perf_counter(), cpu_s([pid])
    rule = {"target": "api", "pattern": {"type": ["reading"], "data": {"unit": ["C"]}}, "start": "earliest"}
    _ask(address, "PUT", f"{bus}/rules/r", rule)
    while _ask(address, "GET", f"{bus}/rules/r")["here"].get("delivered", 0) < count:
        assert time.perf_counter() - began < WAIT_S
        time.sleep(0.02)
    per_s = count / (time.perf_counter() - began)
    name = "out, an event a request" if batch == 1 else f"out, batches of {batch}"
    yield Row(f"{name}, 10 rules", per_s, "events/s", ">= 5,000", per_s >= 5_000)
    yield _work_row(f"{name}, 10 rules", [pid], before_s, count)


def many_rules(address: str, pid: int, api: str, most: int, count: int) -> Iterator[Row]:
    """What an event costs, in by HTTP and out by the one rule of 10, or of many, that wants it."""
    few, many = [_beside(address, pid, api, rules, count) for rules in (10, most)]
    yield Row("an event in and out, 10 rules: processor time", few, "us/event", "", True)
    yield Row(f"the same, {most:,} rules, beside 10", many / few, "times", "<= 3", many <= 3 * few)


def _beside(address: str, pid: int, api: str, rules: int, count: int) -> float:
    bus = f"/v1/buses/many-{rules}"
    _ask(address, "PUT", bus, {})
    target = {"kind": "http", "url": f"http://{api}/", "batch": 100, "concurrency": 64}
    _ask(address, "PUT", bus + "/targets/api", target)
    for number in range(1, rules):
        other = {"target": "api", "pattern": {"type": [f"other{number}"], "data": {"unit": ["C"]}}}
        _ask(address, "PUT", f"{bus}/rules/r{number}", other)
    _ask(address, "PUT", f"{bus}/rules/r", {"target": "api", "pattern": {"type": ["reading"], "data": {"unit": ["C"]}}})
    ends = time.perf_counter() + WAIT_S
    while sum([one["here"]["state"] == "rests" for one in _ask(address, "GET", bus + "/rules")]) < rules - AWAKE_MAX:
        assert time.perf_counter() < ends
        time.sleep(1.0)
    before_s = cpu_s([pid])
    trio.run(_post_all, address, bus + "/events", _bodies(count, "reading"))
    while _ask(address, "GET", f"{bus}/rules/r")["here"].get("delivered", 0) < count:
        assert time.perf_counter() < ends
        time.sleep(0.05)
    return (cpu_s([pid]) - before_s) / count * 1e6


async def serve_api() -> None:
    """An HTTP API that reads requests and answers 204. It says where on its first line."""

    async def answer(stream: trio.SocketStream) -> None:
        raw = b""
        while chunk := await stream.receive_some(262_144):
            raw += chunk
            answers = 0
            while end := _end_of(raw):
                raw, answers = raw[end:], answers + 1
            if answers:
                await stream.send_all(b"HTTP/1.1 204 No Content\r\n\r\n" * answers)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(answer, listeners)


def run(console: Console, count: int = EVENTS, rules: int = RULES) -> int:
    """Measures and shows all rows; returns 0."""
    rows = list(patterns())
    with tempfile.TemporaryDirectory() as folder:
        ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http", "events")]
        up = [sys.executable, "-m", "node", "up", "--data", str(Path(folder) / "data"), "--console-port=-1", *ports]
        allowed = {"PENSTOCK_EVENTS_PRIVATE_TARGETS": "127.0.0.1/32"}
        api = [sys.executable, "-c", "import trio; from loadtest.events import serve_api; trio.run(serve_api)"]
        with _running(up, allowed) as (line, pid), _running(api) as (at, _):
            ready = _READY.match(line)
            assert ready, line
            servers, address = ready.groups()
            rows += ingest(address, [pid], "one process", count)
            alone = {"PENSTOCK_EVENTS_NAMESRV": servers, "PENSTOCK_EVENTS_PORT": "0"}
            with _running([sys.executable, "-m", "events"], alone) as (line, bridge):
                ready_alone = _READY_ALONE.match(line)
                assert ready_alone, line
                rows += ingest(ready_alone[1], [pid, bridge], "a bridge of its own", count)
            for batch in (1, 100):
                rows += delivery(address, pid, at, batch, count // 2)
            rows += many_rules(address, pid, at, rules, count // 2)
    show(console, "event bridge", rows)
    return 0
