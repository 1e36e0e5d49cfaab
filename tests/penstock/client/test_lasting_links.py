from __future__ import annotations

import pytest
import trio
import trio.testing

from penstock.client.lasting_links import lasting_links
from penstock.client.wire_link import ask
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.frame_server import Peer, listening_address, open_listeners, serve_frames
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


class Answering:
    """A session that says who it is."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(ServerInfo("test", type(request).__name__, "1"))

    def flush(self) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


async def test_a_cancelled_block_can_still_say_goodbye_over_its_links() -> None:
    goodbyes: list[ServerInfo] = []
    listeners = await open_listeners("127.0.0.1", 0)
    address = "{}:{}".format(*listening_address(listeners))

    def open_session(_peer: Peer) -> Answering:
        return Answering()

    async def service() -> None:
        async with lasting_links() as links:
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(PATIENCE_S, shield=True):
                    goodbyes.append(await ask(links.link(address), Ping(), ServerInfo))

    async with trio.open_nursery() as server:
        server.start_soon(serve_frames, listeners, open_session)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        server.cancel_scope.cancel()
    assert goodbyes == [ServerInfo("test", "Ping", "1")]


@pytest.mark.timeout(30)
async def test_a_block_that_is_cancelled_before_it_begins_has_no_links_and_ends() -> None:
    has_begun = False
    with trio.CancelScope() as scope:
        scope.cancel()
        async with lasting_links():
            has_begun = True
    assert scope.cancelled_caught
    assert not has_begun


@pytest.mark.timeout(30)
async def test_a_block_that_is_cancelled_as_it_begins_ends() -> None:
    async def block() -> None:
        async with lasting_links():
            await trio.sleep_forever()

    for turns in range(6):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(block)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
