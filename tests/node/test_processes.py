from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
import trio

from node.processes import Child
from penstock.errors import Unavailable
from penstock.lasting_links import lasting_links
from penstock.requests import Ping, ServerInfo
from penstock.service_main import expected_error
from penstock.wire_link import ask
from penstock.world import real_world

pytestmark = pytest.mark.endtoend


def children() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == os.getpid() and "namesrv" in (path.parent / "cmdline").read_text():
            found.append(int(path.parent.name))
    return found


async def test_a_child_that_is_killed_comes_back_on_the_same_port() -> None:
    async with trio.open_nursery() as nursery, lasting_links() as links:
        address = await nursery.start(Child("namesrv", {"port": 0}, real_world()).run)
        before = children()
        os.kill(before[0], signal.SIGKILL)
        answer = None
        with trio.fail_after(20):
            while answer is None:
                with contextlib.suppress(Unavailable):  # until the new process listens
                    answer = await ask(links.link(address), Ping(), ServerInfo)
        assert children() != before
        nursery.cancel_scope.cancel()
    assert answer.role == "namesrv"
    assert children() == []


async def test_a_child_that_cannot_start_is_an_error_of_its_own() -> None:
    error = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(Child("namesrv", {"port": "not a port"}, real_world()).run)
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, Unavailable)
    assert "namesrv" in str(error)
