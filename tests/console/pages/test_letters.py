from __future__ import annotations

import pytest

from tests.console.browser import Site, cells
from tests.penstock.admin_scene import kill

pytestmark = pytest.mark.endtoend


async def test_dead_letters_are_inspected_and_sent_again(site: Site) -> None:
    kill(site.servers, b"one", b"two", group="deadly", topic="killed", name="killed/1")
    async with site.open() as browser:
        assert ["deadly", "broker-a", "2", "2"] in cells(await browser.get("/letters"))
        page = await browser.get("/letters/of?group=deadly")
        assert [row[2:] for row in cells(page)[1:]] == [
            ["killed", "k", "1", "no way", "two"],
            ["killed", "k", "1", "no way", "one"],
        ]
        assert "2 dead letters of deadly were sent again." in await browser.post("/letters/redrive", group="deadly")
        assert ["deadly", "broker-a", "2", "0"] in cells(await browser.get("/letters"))


async def test_a_letter_that_is_refused_is_named_and_success_is_not_claimed(site: Site) -> None:
    kill(site.servers, b"one", group="stuck", topic="stuck-orders", name="stuck-orders/1")
    async with site.open() as browser:
        await browser.get("/letters/of?group=stuck")
        page = await browser.post("/letters/redrive", group="stuck", to="%sys%topics")
        assert "FAILED" in page
        assert "0 were sent again. 1 failed" in page
        await browser.get("/letters/of?group=nobody", 404)
