"""The process's use of the machine, as figures with the names that Prometheus' own clients use.

Read at each request. Values that the system does not give are left out.
"""

from __future__ import annotations

import contextlib
import os

from penstock.service import descriptors


def read() -> dict[str, float]:
    """The figures of this process, by metric name."""
    figures: dict[str, float] = {"process_max_fds": descriptors.limit()}
    opened = descriptors.count_open()
    if opened:
        figures["process_open_fds"] = opened
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        figures["process_resident_memory_bytes"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return figures
