from __future__ import annotations

import pytest

from console.pages import sleeping
from tests.console.browser import Site, cells
from tests.penstock.admin_scene import begin, delay

pytestmark = pytest.mark.endtoend


async def test_transactions_are_decided_and_delayed_messages_cancelled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeping, "PAGE_ROWS", 2)
    halves = [begin(site.servers, b"%d" % at) for at in range(2)]
    timers = [delay(site.servers, b"%d" % at, 3_600_000 + at * 1000) for at in range(3)]
    async with site.open() as browser:
        page = await browser.get("/sleeping")
        names = [row[0] for row in cells(page)]
        assert f"{halves[0]}@broker-a" in names
        assert f"{timers[1].id}@broker-a" in names
        assert f"{timers[2].id}@broker-a" not in names, "on the next page"
        following = page.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        assert f"{timers[2].id}@broker-a" in [row[0] for row in cells(await browser.get(following))]
        one = {"broker": "broker-a", "id": str(halves[0])}
        assert "is asked about again" in await browser.post("/sleeping/end", how="check", **one)
        assert "was committed" in await browser.post("/sleeping/end", how="commit", **one)
        await browser.post("/sleeping/end", 503, how="rollback", **one)
        assert "was rolled back" in await browser.post(
            "/sleeping/end", how="rollback", broker="broker-a", id=str(halves[1])
        )
        await browser.post("/sleeping/end", 400, how="forget", **one)
        for timer in timers:
            fields = {"broker": "broker-a", "id": str(timer.id), "due": str(timer.due_ms)}
            assert "was cancelled" in await browser.post("/sleeping/cancel", **fields)
        assert "Delayed messages: 0" in await browser.get("/sleeping")
