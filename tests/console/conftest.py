"""A real name server, broker and gateway for all tests of the console, and browsers that ask it in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.browser import Site
from tests.node.running import RunningSystem


@pytest.fixture(scope="package")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    """Shared by all tests: each has topics, groups and clients of its own."""
    running = RunningSystem(tmp_path_factory.mktemp("console") / "data", console_port=-1)
    yield running
    running.stop()


@pytest.fixture
def site(system: RunningSystem) -> Site:
    """The console of that system."""
    return Site(system.addresses.namesrv)
