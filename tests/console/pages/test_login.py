from __future__ import annotations

import pytest

from console.logins import FAILURES_MAX
from console.pages.login import WAIT, WRONG
from console.visits import COOKIE
from tests.console.browser import Site
from tests.console.test_visits import TwoUsers

pytestmark = pytest.mark.endtoend


async def test_a_login_leads_to_the_page_that_was_wanted_and_a_logout_ends_it(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        assert 'name="to" value="/topics?contains=x"' in await browser.get("/login?to=/topics%3Fcontains%3Dx")
        page = await browser.post("/login", user="ada", password="ada", to="/topics?contains=x")
        assert 'name="contains" value="x"' in page
        token = browser.client.cookies[COOKIE]
        await browser.post("/logout")
        browser.client.cookies.set(COOKIE, token)
        assert (await browser.client.get("/")).status_code == 303, "the token is worth nothing any more"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
async def test_a_login_leads_nowhere_else(site: Site, to: str) -> None:
    async with site.open(TwoUsers()) as browser:
        answer = await browser.client.post("/login", data={"user": "ada", "password": "ada", "to": to})
        assert answer.headers["location"] == "/"


async def test_wrong_passwords_are_refused_and_many_of_them_have_to_wait(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        for _ in range(FAILURES_MAX):
            assert WRONG in await browser.post("/login", 403, user="ada", password="wrong")
        assert WAIT in await browser.post("/login", 429, user="ada", password="ada")


async def test_without_users_there_is_no_login(site: Site) -> None:
    async with site.open() as browser:
        assert (await browser.client.get("/login")).headers["location"] == "/"
