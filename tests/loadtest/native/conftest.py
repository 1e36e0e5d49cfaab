"""One server for all runs of clients: each has a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadtest.cores import Cores
from loadtest.servers import Penstock


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    one = Penstock(tmp_path_factory.mktemp("server"), Cores())
    one.start()
    yield one
    one.stop()
