"""One running node for all tests of the front; each test uses topics and groups of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.running import RunningSystem
from tests.remoting.remoting_rig import RemotingClient, running_front

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    with running_front(Path(tmp_path_factory.mktemp("remoting")) / "data") as system:
        yield system


@pytest.fixture
def connect(node: RunningSystem) -> Iterator[Callable[..., RemotingClient]]:
    """Makes clients, which are closed at the end."""
    made: list[RemotingClient] = []

    def make(client_id: str = "", **options: Any) -> RemotingClient:
        client = RemotingClient(node.addresses.rocketmq, client_id or f"test@{next(_NUMBERS)}", **options)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(connect: Callable[..., RemotingClient]) -> RemotingClient:
    return connect()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"name{next(_NUMBERS)}"
