"""A backlog is stored once."""

from __future__ import annotations

import anyio
import pytest

from loadtest.native.backlog import store
from loadtest.native.bench import create_topic
from loadtest.native.worker import read_back
from loadtest.servers import Penstock
from tests.loadtest.native.test_worker import to

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def test_a_backlog_is_stored_once_however_often_it_is_asked_for(server: Penstock) -> None:
    create_topic(server, "stored", 2)
    order = to(server, "stored", messages=700)
    for _ in range(2):
        anyio.run(store, order)
    assert anyio.run(read_back, order, 700) == 700
