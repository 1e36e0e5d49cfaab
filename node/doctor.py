"""What `penstock doctor` looks at: this machine and a configuration, before a broker starts or when one is ill.

Each check takes its object and returns findings. Nothing is changed: the one file that is written, to measure a
sync, has no name by the time it is written to.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from broker import store_clock
from broker.settings import BrokerSettings
from broker.store import label
from broker.store.disk import RealDisk
from node.settings import SERVICES, Configuration, service_settings
from penstock.clock import Clock
from penstock.errors import DataFolderLocked, PenstockError
from penstock.protocol.message import IS_COMPILED
from penstock.service import descriptors
from penstock.version import VERSION

GOOD: Final = "good"
NOTE: Final = "note"
"""Nothing to mend, but worth knowing."""
BAD: Final = "bad"

DESCRIPTORS_MIN: Final = 16_384
MEMORY_BYTES_MIN: Final = 1 << 30
SYNC_S_MAX: Final = 0.02
"""A sync that takes longer makes every acknowledged publish as slow."""
SYNCS: Final = 20
CLOCK_AHEAD_MS: Final = 60_000
YEAR_2025_MS: Final = 1_735_689_600_000


class Finding(NamedTuple):
    """One line of the doctor's report.

    Attributes:
        check: the thing that the line is about.
        verdict: ``GOOD``, ``NOTE`` or ``BAD``.
        found: the finding.
        remedy: what to do, empty if nothing.
    """

    check: str
    verdict: str
    found: str
    remedy: str = ""


def examine(configuration: Configuration, environ: Mapping[str, str], clock: Clock) -> Iterator[Finding]:
    """All findings, in the order of a start."""
    data = configuration.node.data
    yield versions()
    yield from machine(descriptors.limit(), _memory_bytes(), os.cpu_count() or 1)
    yield from folder(data, service_settings(configuration, "broker", environ), clock)
    yield from times(data, clock)
    yield from ports(configuration, environ, is_running=is_held(data))
    yield java(environ)


def versions() -> Finding:
    """Penstock's and Python's."""
    python = platform.python_version()
    if IS_COMPILED:
        return Finding("version", GOOD, f"Penstock {VERSION}, compiled, on Python {python}")
    return Finding(
        "version",
        NOTE,
        f"Penstock {VERSION}, not compiled, on Python {python}",
        "install it where there is a C compiler: its hot modules are compiled then",
    )


def machine(descriptors_max: int, memory_bytes: int, cores: int) -> Iterator[Finding]:
    """Limits of this process and this machine. ``memory_bytes``: 0 where the system does not tell."""
    if descriptors_max < DESCRIPTORS_MIN:
        yield Finding(
            "open files",
            BAD,
            f"at most {descriptors_max:,}: each client takes one",
            f"`ulimit -n {DESCRIPTORS_MIN}` before the start, or LimitNOFILE in the systemd unit",
        )
    else:
        yield Finding("open files", GOOD, f"at most {descriptors_max:,}")
    if 0 < memory_bytes < MEMORY_BYTES_MIN:
        yield Finding(
            "memory", BAD, f"{_bytes(memory_bytes)} on {cores} cores", f"a node needs {_bytes(MEMORY_BYTES_MIN)}"
        )
    else:
        yield Finding("memory", GOOD, f"{_bytes(memory_bytes) if memory_bytes else 'unknown'} on {cores} cores")


def folder(data: Path, settings: BrokerSettings, clock: Clock) -> Iterator[Finding]:
    """Whether the data folder can be used, how much room it has, and how long a sync takes there."""
    existing = next((one for one in (data, *data.absolute().parents) if one.exists()), data)
    if not existing.is_dir():
        yield Finding("data folder", BAD, f"{existing} is no folder", "name another one: --data, or data in the file")
        return
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "data folder", BAD, f"this user cannot write in {existing}", "run as its owner, or give it to this user"
        )
        return
    try:
        known = label.read(RealDisk(data, is_read_only=True))
    except PenstockError as error:
        yield Finding("data folder", BAD, error.message, error.hint)
        return
    what = "a broker holds it" if is_held(data) else "it has a log" if known else "a start makes it"
    yield Finding("data folder", GOOD, f"{data}: {what}")
    yield _room(existing, settings)
    yield _sync_time(existing, clock)


def _room(existing: Path, settings: BrokerSettings) -> Finding:
    usage = shutil.disk_usage(existing)
    said = f"{_bytes(usage.free)} free of {_bytes(usage.total)}"
    wanted = settings.retention_bytes or 2 * settings.segment_bytes
    if usage.free < 2 * settings.segment_bytes:
        return Finding(
            "disk", BAD, said, f"two segments are {_bytes(2 * settings.segment_bytes)}: make room, or set segment_bytes"
        )
    if usage.free < wanted:
        return Finding(
            "disk", NOTE, said, f"retention_bytes keeps {_bytes(wanted)}: the disk may be full before it removes any"
        )
    return Finding("disk", GOOD, said)


def _sync_time(existing: Path, clock: Clock) -> Finding:
    taken = []
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            os.pwrite(file.fileno(), bytes(SYNCS * 4096), 0)
            os.fsync(file.fileno())
            for number in range(SYNCS):
                begun = clock.steady()
                os.pwrite(file.fileno(), b"x" * 4096, number * 4096)
                os.fdatasync(file.fileno())
                taken.append(clock.steady() - begun)
    except OSError as error:
        return Finding("sync", BAD, f"{existing}: {error.strerror}", "messages cannot be stored there")
    median = statistics.median(taken)
    said = f"{median * 1000:.2f} ms (median of {SYNCS}, at most {max(taken) * 1000:.2f} ms)"
    if median > SYNC_S_MAX:
        return Finding("sync", NOTE, said, "each acknowledged message waits for one: use a faster disk for data")
    return Finding("sync", GOOD, said)


def is_held(data: Path) -> bool:
    """Whether a running broker holds a data folder."""
    if not (data / "log").is_dir():
        return False
    disk = RealDisk(data)
    try:
        disk.lock()
    except DataFolderLocked:
        return True
    except PenstockError:
        return False
    disk.unlock()
    return False


def times(data: Path, clock: Clock) -> Iterator[Finding]:
    """Whether the wall clock fits what the broker of this folder last believed."""
    now_ms = clock.wall_ms()
    if now_ms < YEAR_2025_MS:
        yield Finding("clock", BAD, "it is before 2025", "set the machine's clock: `timedatectl set-ntp true`")
        return
    try:
        known = store_clock.decode_times((data / store_clock.PATH).read_bytes())
    except OSError:
        known = None
    if known is not None and known.wall_ms > now_ms + CLOCK_AHEAD_MS:
        yield Finding(
            "clock",
            BAD,
            f"it is {(known.wall_ms - now_ms) / 1000:,.0f} s behind what the broker last believed",
            "set the machine's clock: `timedatectl set-ntp true`",
        )
    else:
        yield Finding("clock", GOOD, "it fits" if known is not None else "it is plausible")


def ports(configuration: Configuration, environ: Mapping[str, str], *, is_running: bool) -> Iterator[Finding]:
    """Whether each service can listen where it is to. ``is_running``: a broker holds the data folder, so taken ports
    are most likely its own."""
    node = configuration.node
    wanted = [("status pages", node.host, node.http_port)]
    for service in SERVICES:
        if service == "events" and node.events_port < 0:
            continue
        settings = service_settings(configuration, service, environ)
        wanted.append((service, settings.host, settings.port))
    for service, host, port in wanted:
        yield port_finding(service, host, port, is_running=is_running)


def port_finding(service: str, host: str, port: int, *, is_running: bool) -> Finding:
    """Whether something can listen there: ``service``, in words."""
    check, place = f"port of {service}", f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except socket.gaierror as error:
        return Finding(check, BAD, f"{host}: {error.strerror}", "name an address of this machine")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and is_running:
            return Finding(check, GOOD, f"{place} is in use, and a broker runs here")
        hint = "end that program, or take another port" if error.errno == errno.EADDRINUSE else ""
        return Finding(check, BAD, f"{place}: {error.strerror}", hint or "name an address of this machine")
    return Finding(check, GOOD, f"{place} is free")


def java(environ: Mapping[str, str]) -> Finding:
    """Whether Spark can run here."""
    try:
        spark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Finding(
            "Spark", NOTE, "not installed", "`pip install 'penstock[spark]'`, if analysts work on this machine"
        )
    from penstock.spark.java import find_java

    with tempfile.TemporaryDirectory() as cache:
        try:
            found = find_java(environ, Path(cache))
        except PenstockError as error:
            return Finding("Spark", BAD, f"pyspark {spark}; {error.message}", error.hint)
    return Finding("Spark", GOOD, f"pyspark {spark}, Java {found.version} ({found.found})")


def _memory_bytes() -> int:
    if sys.platform != "linux":
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _bytes(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB"
