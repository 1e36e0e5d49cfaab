"""Makes ``stored_queues`` importable, and skips this folder where the Spark extra is not installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore_glob = [] if find_spec("pyspark") and find_spec("pyarrow") else ["test_*.py"]


@pytest.fixture
def queues(serve: Callable[..., Any]) -> Iterator[Any]:
    """Queues in memory behind a real socket: one server that plays name server and broker."""
    from stored_queues import StoredQueues

    from penstock.spark.fetch import links_of

    stored = StoredQueues()
    stored.address = serve(stored.open_session).address
    yield stored
    for link in links_of(os.getpid()).values():
        link.close()
    links_of.cache_clear()


@pytest.fixture
def unused_address() -> str:
    """An address at which nobody listens."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
