"""What the kernel says of a process and all its descendants: processor time and memory. Linux only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
_ENDED: Final = ("Z", "X")


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name; the first is the state. Empty once it ended, also while
    its parent has not asked how (a process whose parent is gone stays so for long where process 1 asks for none)."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return fields if fields[0] not in _ENDED else []


def tree(root: int) -> list[int]:
    """A process and all its descendants, those that live."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _fields(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root] if _fields(root) else []
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_s(pids: list[int]) -> float:
    """Processor seconds, user and system, that these processes have used so far."""
    total = 0
    for pid in pids:
        fields = _fields(pid)
        if fields:
            total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def family_cpu_s(pids: list[int]) -> float:
    """The same, with what their children used that have ended and been waited for: workers come and go."""
    fields = [found for found in map(_fields, pids) if found]
    return sum(int(one) for found in fields for one in found[11:15]) / TICKS_PER_S


def rss_bytes(pids: list[int]) -> int:
    """Resident memory of these processes, counted page by page (Linux 4.14): what ``stat`` says of it is a sum to
    which each core adds only every 32 pages. Pages that processes share count several times."""
    return sum(_resident_kib(pid) * 1024 for pid in pids)


def _resident_kib(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
