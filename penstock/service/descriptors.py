"""The files and sockets that this process may have open: the system's limit, raised as far as allowed, and the clients'
part of it.

The usual soft limit (1,024) is for programs that use ``select``; Penstock uses none. A service that accepts clients
leaves a reserve to the rest of the process: without it the status pages could not answer.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

SPARE: Final = 64
"""For what opens later: status pages, links to brokers, files of the log; with larger limits a sixteenth of them."""
_OPEN: Final = "/dev/fd"
_OPEN_HERE: Final = "/proc/self/fd"
"""Whose size is their number, in a Linux since 6.2: there are too many to be listed each time."""


def raise_limit() -> None:
    """Raises the soft limit to the hard one, where the system has it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit() -> int:
    """The number of descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def count_open() -> int:
    """The number of open descriptors; 0 if the system does not say."""
    with contextlib.suppress(OSError):
        counted = os.stat(_OPEN_HERE).st_size
        if counted:
            return counted
    try:
        return len(os.listdir(_OPEN)) - 1  # without the one that reads the folder
    except OSError:
        return 0


def room_for_clients() -> int:
    """The number of connections that fit beside the open descriptors and the reserve; at least one."""
    most = limit()
    return max(1, most - count_open() - max(SPARE, most // 16))
