"""The long proofs on real processes and a real file system: kill -9, power loss, a full disk. ``python -m loadtest
soak``.

A victim process (``store_writer.py``) stores numbered records and says which of them are durable. It is killed, or
its file system is shut down without writing its journal, as at a power cut. Then the store is opened and read: every
record that was said to be durable must be there, with exactly its content, and the committed offset must be one that
was committed.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from broker.kernel.fold import fact_record
from loadtest.store_writer import GROUP, QUEUE, bodies, body, open_soak, record
from penstock.errors import StorageFull
from penstock.protocol.requests.groups import QueueOffset

XFS_IOC_GOINGDOWN = 0x8004587D
NO_LOG_FLUSH = 2
VERIFIED_BACK = 2_000
FRESH_EVERY = 50
RUN_S_MAX = 0.25


@dataclass(slots=True)
class Outcome:
    """What a kind of cycles came to."""

    cycles: int = 0
    durable: int = 0
    lost: int = 0
    wrong: int = 0
    skipped: str = ""

    @property
    def failed(self) -> bool:
        """Whether anything that was said to be durable is not there as it was."""
        return bool(self.lost or self.wrong)


def run_victim(folder: Path, stop: Callable[[subprocess.Popen[str]], None], rng: random.Random) -> int:
    """Runs the writer for a moment, stops it, and returns the last number that it said was durable."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.store_writer", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline()  # it is up and has synced once
    time.sleep(rng.uniform(0, RUN_S_MAX))
    stop(process)
    lines = (said + process.communicate()[0]).splitlines()
    whole = [line for line in lines if line.isdigit()]
    return int(whole[-1]) if whole else 0


def verify(folder: Path, durable: int, outcome: Outcome) -> None:
    """Opens the store and compares the last records, and all that must be there, with what was stored."""
    store, state = open_soak(folder)
    try:
        bounds = store.bounds(QUEUE)
        outcome.lost += max(0, durable - bounds.end)
        start = max(bounds.min, min(durable, bounds.end) - VERIFIED_BACK)
        found = dict(bodies(store, start))
        outcome.lost += sum(number not in found for number in range(start, min(durable, bounds.end)))
        outcome.wrong += sum(content != body(number) for number, content in found.items())
        outcome.wrong += state.offsets.of(GROUP).get(QUEUE, 0) > bounds.end
        outcome.wrong += bool(store.damage)
    finally:
        store.close(time.time_ns() // 1_000_000)


def kill_cycles(folder: Path, cycles: int, console: Console) -> Outcome:
    """kill -9 at a random moment, again and again."""
    outcome, rng, durable = Outcome(), random.Random(), 0
    for cycle in track(range(cycles), "kill -9", console=console, disable=not console.is_terminal):
        if cycle % FRESH_EVERY == 0:
            outcome.durable += durable
            shutil.rmtree(folder, ignore_errors=True)
            durable = 0
        durable = max(durable, run_victim(folder, subprocess.Popen.kill, rng))
        verify(folder, durable, outcome)
        outcome.cycles += 1
    outcome.durable += durable
    return outcome


@contextmanager
def mounted(kind: str, place: Path, *options: str) -> Any:
    """A file system mounted at ``place``."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *options, kind, str(place)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True, capture_output=True)


def can_lose_power(work: Path) -> str:
    """Why this machine cannot run power-loss cycles; empty if it can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    if shutil.which("mkfs.xfs") is None:
        return "mkfs.xfs is missing (Debian: xfsprogs)"
    image = work / "probe.img"
    try:
        make_image(image)
        with mounted(str(image), work / "probe", "-o", "loop"):
            pass
    except subprocess.CalledProcessError as error:
        return f"XFS on a loop file cannot be mounted here: {error.stderr.decode().strip()}"
    finally:
        image.unlink(missing_ok=True)
    return ""


def make_image(image: Path) -> None:
    """An empty XFS in a file."""
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.xfs", "-q", "-f", str(image)], check=True, capture_output=True)


def power_cycles(work: Path, cycles: int, console: Console) -> Outcome:
    """Shuts the file system down without its journal at a random moment, then mounts it again and looks."""
    outcome = Outcome(skipped=can_lose_power(work))
    if outcome.skipped:
        return outcome
    image, place, rng, durable = work / "disk.img", work / "disk", random.Random(), 0
    for cycle in track(range(cycles), "power loss", console=console, disable=not console.is_terminal):
        if cycle % FRESH_EVERY == 0:
            outcome.durable += durable
            make_image(image)
            durable = 0
        with mounted(str(image), place, "-o", "loop"):
            durable = max(durable, run_victim(place / "data", lambda victim: _cut_power(place, victim), rng))
        with mounted(str(image), place, "-o", "loop"):
            verify(place / "data", durable, outcome)
        outcome.cycles += 1
    outcome.durable += durable
    return outcome


def _cut_power(place: Path, victim: subprocess.Popen[str]) -> None:
    """The victim is stopped first: an fsync that is under way while the file system goes down may return success,
    and in a real power cut nobody would be there to say so."""
    victim.send_signal(signal.SIGSTOP)
    lose_power(place)
    victim.kill()


def lose_power(place: Path) -> None:
    """Shuts the XFS that is mounted there down, without its journal: what is not on the medium is gone."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, XFS_IOC_GOINGDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


def full_disk(work: Path) -> Outcome:
    """Fills a small tmpfs: whole refusals, commits that still work, and writing that resumes when there is room."""
    outcome = Outcome()
    place = work / "small"
    if os.geteuid() != 0:
        outcome.skipped = "mounting a file system needs root"
        return outcome
    with mounted("tmpfs", place, "-t", "tmpfs", "-o", "size=6m"):
        filler = place / "filler"
        filler.write_bytes(b"x" * (3 << 20))
        store, state = open_soak(place / "data")
        now_ms, number = time.time_ns() // 1_000_000, 0
        try:
            while True:
                store.append([record(number)], now_ms)
                number += 1
        except StorageFull:
            outcome.cycles += 1
        commit = fact_record("%sys%offsets", state.offsets.fact(GROUP, [QueueOffset(QUEUE, number)]))
        store.append([commit], now_ms)
        filler.unlink()
        store.append([record(number)], now_ms)
        outcome.durable = number + 1
        store.close(now_ms)
        verify(place / "data", outcome.durable, outcome)
        again, state = open_soak(place / "data")
        outcome.lost += state.offsets.of(GROUP).get(QUEUE) != number
        again.close(now_ms)
    return outcome


def run(console: Console, kills: int, powers: int) -> int:
    """All proofs; the status is 1 if anything was lost."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        work = Path(folder)
        outcomes = {
            "kill -9": kill_cycles(work / "killed", kills, console),
            "power loss (XFS shut down without its journal)": power_cycles(work, powers, console),
            "full disk (tmpfs)": full_disk(work),
        }
    for label, outcome in outcomes.items():
        if outcome.skipped:
            console.print(f"{label}: skipped, {outcome.skipped}")
            continue
        verdict = "LOST" if outcome.failed else "ok"
        counts = f"{outcome.durable} durable records, {outcome.lost} lost, {outcome.wrong} wrong"
        console.print(f"{label}: {outcome.cycles} cycles, {counts}: {verdict}")
    console.print(f"{time.monotonic() - began:.0f} s")
    return int(any(outcome.failed for outcome in outcomes.values()))
