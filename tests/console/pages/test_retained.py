from __future__ import annotations

import pytest

from console.pages import retained
from tests.console.browser import Site, cells
from tests.console.test_visits import TwoUsers
from tests.penstock.cli.test_retained import retain

pytestmark = pytest.mark.endtoend


async def test_retained_messages_are_browsed_by_filter_a_page_at_a_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "PAGE_ROWS", 2)
    retain(site.servers, a=b"<1>", b=b"2", c=b"3")
    async with site.open() as browser:
        page = await browser.get("/retained?filter=plant/%2B")
        assert [(row[0], row[2]) for row in cells(page)[1:]] == [("plant/a", "3"), ("plant/b", "1")]
        following = page.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        assert [row[0] for row in cells(await browser.get(following))[1:]] == ["plant/c"]
        assert "filter" in await browser.get("/retained?filter=a%23", 400)
    async with site.open(TwoUsers()) as browser:
        await browser.post("/login", user="vera", password="vera")
        assert "allow user vera consume *" in await browser.get("/retained", 403)
