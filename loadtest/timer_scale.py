"""Many delayed messages: what they take in memory, how long a start with them takes, and whether each fires once and
never early. ``python -m loadtest timers``.

One process sets them and is killed; another one starts over what is there, and fires them in time that it moves itself:
an hour of timers takes a minute. Broker and disk are the real ones, without the network.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from broker.net.lead import Lead
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import RealDisk
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store_clock import compare
from broker.timer_clock import TimerClock
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.guarded_clock import GuardedClock
from penstock.protocol.message import Message, decode_batch, encode_message
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.timers import SetTimers, TimersSet
from penstock.protocol.requests.topics import CreateTopic
from penstock.service.memory import bound_heap

COUNT: Final = 1_000_000
SPAN_S: Final = 3_600
"""So many are due over this time, fewer over as much less;"""
FIRST_S: Final = 600
"""the first of them so long after the last was set."""
BEGIN_MS: Final = 1_800_000_000_000
BATCH: Final = 1_000
BODY_BYTES: Final = 64
TOPIC: Final = "timed"
QUEUES: Final = 4
STEP_S: Final = 0.5
"""So much time passes from tick to tick."""
INDEX_BYTES_MAX: Final = 60_000_000
START_S_MAX: Final = 5.0
LATE_MS_MAX: Final = 1_000


class MovedClock(Clock):
    """A clock that stands still until it is moved."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return BEGIN_MS + round(self.now_s * 1000)


class Core:
    """A broker without its network, in time that its user moves."""

    def __init__(self, folder: Path, now_s: float) -> None:
        self.clock = MovedClock(now_s)
        settings, state = BrokerSettings(data=folder, retention_s=0.0), BrokerState()
        self.store: MessageStore = open_store(RealDisk(folder), settings.store(), state, self.clock.wall_ms())
        guard = GuardedClock(self.clock)
        store_clock = compare(guard, self.store.last_ms, None)
        self.lead = Lead(
            settings,
            state,
            self.store,
            store_clock,
            TimerClock(guard, store_clock),
            lambda is_waited_for, is_whole: None,
        )
        self.timers = state.timers

    def tick(self, step_s: float = 0.0) -> None:
        """Time passes, and what was appended is synced."""
        self.clock.now_s += step_s
        self.lead.tick()
        self.sync()

    def sync(self) -> None:
        """What a flusher does in one turn."""
        if self.store.durable == self.store.written:
            return
        point = self.store.sync_point()
        self.store.sync()
        self.store.mark_durable(point)
        self.store.mark_committed(point)
        self.lead.dispatch.reached(self.store.durable, self.store.committed)

    def ask(self, request: Request) -> Any:
        """The answer. Raises it where it is an error."""
        answers: list[Any] = []
        self.lead.dispatch.submit(request, answers.append, 1)
        self.lead.dispatch.end_batch()
        if not answers:
            self.sync()
        if isinstance(answers[0], PenstockError):
            raise answers[0]
        return answers[0]


def due_ms_of(number: int, count: int) -> int:
    """When message ``number`` of ``count`` is due: at a steady rate, but not in the order in which they are set."""
    place = number * 7_919 % count
    return BEGIN_MS + (FIRST_S * 1000) + place * SPAN_S * 1000 // COUNT


def set_all(folder: Path, count: int) -> dict[str, float]:
    """Sets ``count`` timers."""
    core = Core(folder, 0.0)
    core.ask(CreateTopic(TOPIC, QUEUES, "disk"))
    began = time.perf_counter()
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        body = b"".join([encode_message(Message(TOPIC, b"%d" % one + bytes(BODY_BYTES))) for one in numbers])
        answer = core.ask(SetTimers(tuple([due_ms_of(one, count) for one in numbers]), False, body))
        if not isinstance(answer, TimersSet) or answer.refused:
            raise RuntimeError(f"timers were refused: {answer}")
        core.tick()
    return {"set_s": time.perf_counter() - began, "log_bytes": float(core.store.written)}


def fire_all(folder: Path, count: int) -> dict[str, float]:
    """Starts over what is there, and fires all of it."""
    bound_heap()
    before, began, began_cpu = resident_bytes(), time.perf_counter(), time.process_time()
    core = Core(folder, 1.0)
    core.tick()
    figures = {"start_s": time.perf_counter() - began, "start_cpu_s": time.process_time() - began_cpu}
    figures |= {"index_bytes": float(resident_bytes() - before), "pending": float(len(core.timers))}
    began = time.perf_counter()
    worst_tick_s = 0.0
    core.tick(FIRST_S - 2.0)
    while len(core.timers):
        ticked = time.perf_counter()
        core.tick(STEP_S)
        worst_tick_s = max(worst_tick_s, time.perf_counter() - ticked)
    figures |= {"fire_s": time.perf_counter() - began, "worst_tick_s": worst_tick_s} | _seen(core, count)
    core.store.close(core.clock.wall_ms())
    return figures


def _seen(core: Core, count: int) -> dict[str, float]:
    """What was delivered, and when."""
    seen, early, late_ms, twice, offsets = bytearray(count), 0, 0, 0, [0] * QUEUES
    for queue in range(QUEUES):
        while True:
            pulled: Pulled = core.ask(Pull(f"{TOPIC}:{queue}", offsets[queue]))
            if not pulled.count:
                break
            offsets[queue] = pulled.next
            for _, message in decode_batch(pulled.count, pulled.body):
                number = int(message.body[:-BODY_BYTES])
                twice += seen[number]
                seen[number] = 1
                apart_ms = message.stored_ms - due_ms_of(number, count)
                early += apart_ms < 0
                late_ms = max(late_ms, apart_ms)
    return {"fired": float(sum(seen)), "twice": float(twice), "early": float(early), "late_ms": float(late_ms)}


def resident_bytes() -> int:
    """Memory of this process, once what is free has been given back, as a service does every other second."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # another library than glibc
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def prove(folder: Path, count: int) -> dict[str, float]:
    """Both halves, each in a process of its own. Raises ``RuntimeError`` where one fails."""
    found: dict[str, float] = {}
    for phase in ("set", "fire"):
        command = [sys.executable, "-m", "loadtest.timer_scale", phase, str(folder), str(count)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if not ended.stdout:
            raise RuntimeError(f"{phase}: {ended.stderr.strip()}")
        found |= json.loads(ended.stdout)
    return found


def failures(found: Mapping[str, float], count: int) -> list[str]:
    """What is not as it has to be, whatever the machine."""
    wrong = []
    if (found["pending"], found["fired"]) != (count, count):
        wrong.append(f"{found['pending']:.0f} waited and {found['fired']:.0f} fired, of {count}")
    wrong += [f"{found[name]:.0f} fired {name}" for name in ("twice", "early") if found[name]]
    if found["late_ms"] > LATE_MS_MAX:
        wrong.append(f"one fired {found['late_ms']:.0f} ms late")
    if found["index_bytes"] > INDEX_BYTES_MAX:
        wrong.append(f"they take {found['index_bytes']:.0f} bytes of memory")
    return wrong


def run(console: Console, count: int) -> int:
    """The whole proof; the status is 1 where something is not as it has to be."""
    with tempfile.TemporaryDirectory(prefix="penstock-timers-") as folder:
        return show(console, prove(Path(folder) / "data", count), count)


def show(console: Console, found: Mapping[str, float], count: int) -> int:
    """Prints what was found; the same status."""
    table = Table(title=f"{count:,} delayed messages at {COUNT // SPAN_S}/s, kill -9 between", box=box.SIMPLE_HEAD)
    for title in ("what", "found", "goal"):
        table.add_column(title, justify="left" if title == "what" else "right")
    per = 1e6 / count
    table.add_row("to set one", f"{found['set_s'] * per:.0f} us", "")
    table.add_row("memory of a broker that starts with them", f"{found['index_bytes'] / 1e6:.0f} MB", "< 60 MB")
    started = f"{found['start_s']:.1f} s ({found['start_cpu_s']:.1f} s of processor)"
    table.add_row("start, kill -9 before", started, f"< {START_S_MAX:.0f} s")
    table.add_row("to fire one", f"{found['fire_s'] * per:.0f} us", "")
    table.add_row("longest tick", f"{found['worst_tick_s'] * 1000:.0f} ms", "")
    table.add_row("early, twice", f"{found['early']:.0f}, {found['twice']:.0f}", "0, 0")
    table.add_row(f"latest, a tick each {STEP_S:g} s", f"{found['late_ms']:.0f} ms", f"<= {LATE_MS_MAX} ms")
    console.print(table)
    wrong = failures(found, count)
    for one in wrong:
        console.print(f"[red]{one}[/]")
    return int(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1] == "set":
        print(json.dumps(set_all(Path(sys.argv[2]), int(sys.argv[3]))), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(fire_all(Path(sys.argv[2]), int(sys.argv[3]))), flush=True)
