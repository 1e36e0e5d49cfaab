from __future__ import annotations

import threading
from typing import Any

import paho.mqtt.client as paho
import pytest
import trio

from console.pages import clients
from tests.console.browser import Site, cells
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


class Device:
    """A client with a session that stays."""

    def __init__(self, system: RunningSystem, name: str, *filters: str) -> None:
        self.ended, subscribed = threading.Event(), threading.Event()
        self.client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        self.client.on_disconnect = lambda *_: self.ended.set()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.on_connect = lambda client, *_: client.subscribe([(one, 1) for one in filters])
        host, _, port = system.addresses.mqtt.rpartition(":")
        self.client.reconnect_delay_set(PATIENCE_S, PATIENCE_S)
        self.client.connect(host, int(port))
        self.client.loop_start()
        assert subscribed.wait(PATIENCE_S)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


async def test_sessions_are_listed_found_cut_off_and_ended(
    site: Site, system: RunningSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "PAGE_ROWS", 2)
    devices = [Device(system, f"pump-{at}", "pumps/+/level", f"pumps/{at}/#") for at in range(3)]
    try:
        async with site.open() as browser:
            page = await browser.get("/clients?contains=pump-")
            rows = cells(page)[1:]
            assert [(row[0], row[1], row[3], row[5], row[7]) for row in rows] == [
                (f"pump-{at}", "connected", "anonymous", "MQTT 3.1.1 tcp", "2") for at in range(2)
            ]
            following = page.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
            assert [row[0] for row in cells(await browser.get(following))[1:]] == ["pump-2"]
            page = await browser.get("/client?id=pump-1")
            assert [row[:2] for row in cells(page)[1:]] == [["pumps/+/level", "1"], ["pumps/1/#", "1"]]
            assert "pump-1 was disconnected." in await browser.post("/client/disconnect", id="pump-1")
            assert await trio.to_thread.run_sync(devices[1].ended.wait, PATIENCE_S)
            await browser.get("/client?id=pump-1")
            assert "The session of pump-1 has ended." in await browser.post("/client/end", id="pump-1")
            await browser.get("/client?id=pump-1", 404)
    finally:
        for device in devices:
            device.stop()


async def test_subscriptions_are_a_tree(site: Site, system: RunningSystem) -> None:
    device = Device(system, "gardener", "garden/+/wet", "garden/1/wet", "garden/1/#", "/lead")
    try:
        async with site.open() as browser:
            first = {row[0]: row[2:] for row in cells(await browser.get("/filters"))}
            assert first["garden"] == ["3", "0"]
            below = cells(await browser.get("/filters?below=garden"))[1:]
            assert [(row[0], row[2], row[3]) for row in below] == [("+", "1", "0"), ("1", "2", "0")]
            last = cells(await browser.get("/filters?below=garden/1"))[1:]
            assert [(row[0], row[1], row[3]) for row in last] == [
                ("#", "garden/1/#", "2"),
                ("wet", "garden/1/wet", "2"),
            ]
            assert ["lead", "/lead", "0", "2"] in cells(await browser.get("/filters?below="))
    finally:
        device.stop()
