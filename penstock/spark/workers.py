"""The daemon that forks Spark's Python workers, where Spark runs on this machine: pyspark's own, with quiet endings.

Spark closes a worker's socket when it has all rows it wants (``limit()``, ``show()``, ``take()``), and when a worker
has been idle for a minute. The worker learns that from a read or write that fails, and pyspark prints a traceback into
the answer. Here a worker whose socket Spark has closed ends without a word; all other errors go where they went before.

Spark starts this daemon because the Python it is given is a launcher (``launchers``) that names it. The setting
``spark.python.daemon.module`` would not do: the processes that plan a query ignore it.

The daemon imports what the source needs once; each worker that it forks has it then. A worker that ends with an error
is followed by a new one, so these are many.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Callable
from typing import Final

from pyspark import daemon

_Worker = Callable[[socket.socket, bool], int]
_LOOKS_UP: Final = "pyspark.sql.worker.lookup_data_sources"
"""The workers that need nothing of ours."""


def quiet(work: _Worker) -> _Worker:
    """A worker that runs ``work`` and ends the process silently if that fails because Spark has hung up."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except (EOFError, OSError):
            if has_hung_up(sock):
                os._exit(1)  # at once: what is left in buffers could only fail again
            raise

    return run


def has_hung_up(sock: socket.socket) -> bool:
    """Whether the peer of a stream socket has closed it."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))


def main() -> None:
    """Serves Spark until it closes the standard input."""
    if _LOOKS_UP not in sys.argv:
        import penstock.spark.source  # noqa: F401
    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment, unused-ignore]
    daemon.manager()


if __name__ == "__main__":
    main()
