from __future__ import annotations

import pytest

from penstock.blocking import Admin
from penstock.blocking.link import BlockingLink
from penstock.protocol.requests.messages import AuditEntry, TellAudited
from tests.console.browser import Site, cells
from tests.console.test_visits import TwoUsers
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


async def test_users_and_rules_are_listed_and_answer_questions(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        await browser.post("/login", user="vera", password="vera")
        page = await browser.get("/access")
        rows = cells(page)
        assert [row for row in rows if len(row) == 1 and row != ["User"]] == [["ada"], ["carl"], ["vera"]]
        assert ["3", "allow", "user vera", "consume", "readable-*"] in rows
        assert "vera may." in await browser.get("/access?user=vera&action=consume&about=readable-1")
        assert "allow user vera produce orders" in await browser.get("/access?user=vera&action=produce&about=orders")
        assert "may." not in await browser.get("/access?user=vera&action=everything")
    async with site.open() as browser:
        assert "everyone who reaches a port" in await browser.get("/access")


def noted(page: str) -> list[list[str]]:
    """The rows of one server: others of the shared system note their own logins meanwhile."""
    return [row for row in cells(page)[1:] if "gateway-1" in row]


async def test_the_audit_log_is_shown_newest_first_and_escaped(site: Site) -> None:
    async with site.open() as browser:
        assert "Nothing was noted" in await browser.get("/audit?user=eve")
        with Admin(site.servers) as admin:
            [broker] = admin.brokers()
        entries = (
            AuditEntry(1000, "ada", "scram", "a:1", "DeleteTopic", "orders", True),
            AuditEntry(2000, "<b>", "mqtt", "a", "Publish", "a/b", False, "access rules", "d7", 3),
        )
        with BlockingLink(broker.address, PATIENCE_S) as link:
            link.call(TellAudited("gateway-1", entries))
        rows = noted(await browser.get("/audit"))
        assert [row[1:] for row in rows] == [
            ["refused", "Publish", "a/b", "", "mqtt, client d7", "a", "gateway-1", "access rules", "3"],
            ["allowed", "DeleteTopic", "orders", "ada", "scram", "a:1", "gateway-1", "–", "1"],
        ]
        for query, count in (("user=ada", 1), ("outcome=refused", 1), ("user=eve", 0)):
            assert len(noted(await browser.get(f"/audit?{query}"))) == count
        raw = (await browser.client.get("/audit")).text
        assert ("<b>" in raw, "&lt;b&gt;" in raw) == (False, True)
