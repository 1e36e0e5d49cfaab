from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import trio

from console import visits
from console.logins import Users
from console.visits import COOKIE, FORM_BYTES_MAX, number_of, time_of
from penstock.access.acl import Rule, parse_acl
from penstock.access.policy import PASSWORD, UNPROVEN, Identity, Policy
from penstock.errors import InvalidRequest, NotAuthorized
from tests.console.browser import Site

pytestmark = pytest.mark.endtoend


RULES = "allow user ada admin *\nallow user vera view *\nallow user vera consume readable-*"


class TwoUsers(Users):
    """A viewer, an administrator, and one without rights; the password of each is its name."""

    policy = Policy(parse_acl(RULES))

    takes_tokens = False

    async def of_password(self, user: str, password: str) -> Identity | None:
        return Identity(user, PASSWORD) if user in self.names() and user == password else None

    async def of_token(self, token: str) -> Identity | None:
        return None

    def of_certificate(self, name: str, ends_s: float) -> Identity:
        return UNPROVEN

    def claimed(self, user: str) -> Identity:
        return Identity(user, PASSWORD) if user in self.names() else UNPROVEN

    def named(self, user: str) -> Identity:
        return Identity(user, PASSWORD)

    def still(self, identity: Identity) -> bool:
        return True

    def refusal(self, identity: Identity, action: str, name: str = "") -> NotAuthorized | None:
        return None if self.policy.may(identity, action, name) else self.policy.refusal(identity, (action,), name)

    def names(self) -> list[str]:
        return ["ada", "carl", "vera"]

    def rules(self) -> tuple[Rule, ...]:
        return parse_acl(RULES).rules


def test_numbers_and_times_in_addresses() -> None:
    assert (number_of("n", "", 7), number_of("n", "-3", 7)) == (7, -3)
    assert time_of("t", "2026-11-28T10:00") == datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert time_of("t", "2026-11-28T10:00+01:00") == datetime(2026, 11, 28, 9, tzinfo=UTC)
    for wrong in ("x", "1.5", str(1 << 64)):
        with pytest.raises(InvalidRequest):
            number_of("n", wrong, 0)
    with pytest.raises(InvalidRequest):
        time_of("t", "yesterday")


async def test_without_users_everyone_is_an_administrator_and_forms_need_their_token(site: Site) -> None:
    async with site.open() as browser:
        assert "Create a topic" in await browser.get("/topics")
        cookie = browser.client.cookies.jar
        assert all(one.has_nonstandard_attr("HttpOnly") and one.get_nonstandard_attr("SameSite") for one in cookie)
        assert "too old" in await browser.post("/topics/create", 403, csrf="forged", name="forged")
        browser.client.cookies.clear()
        assert "too old" in await browser.post("/topics/create", 403, name="forged")
        assert "no topic" in await browser.get("/topic?name=forged", 404)


async def test_with_users_nothing_is_shown_before_a_login(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        for path in ("/", "/topics?contains=x", "/overview/rates"):
            answer = await browser.client.get(path)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login")
        assert (await browser.client.post("/topics/create")).headers["location"] == "/login"
        part = await browser.client.get("/topics/live", headers={"hx-request": "true"})
        assert (part.status_code, part.headers["hx-redirect"]) == (401, "/login")


async def test_a_viewer_sees_no_forms_and_is_refused_what_they_would_do(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        await browser.post("/login", user="vera", password="vera")
        page = await browser.get("/topics")
        assert "Create a topic" not in page
        assert "Log out vera" in page
        for action in ("/topics/create", "/client/end", "/letters/redrive", "/group/reset"):
            page = await browser.post(action, 403, name="made-by-viewer")
            assert "user 'vera' may not administer the cluster" in page
            assert "allow user vera admin *" in page
        await browser.get("/topic?name=made-by-viewer", 404)
        for path in ("/messages?topic=payments", "/letters/of?group=billing"):
            assert "allow user vera" in await browser.get(path, 403)
        await browser.get("/messages?topic=readable-1", 404)
        await browser.post("/logout")
        assert "may not view the cluster" in await browser.post("/login", 403, user="carl", password="carl")


class Readers(TwoUsers):
    """A user who may consume every topic, and one who may use one group."""

    policy = Policy(
        parse_acl(
            "allow user ada view *\nallow user ada consume *\nallow user carl view *\nallow user carl group idle\n"
        )
    )


async def test_topics_of_the_system_and_dead_letters_take_the_rights_that_they_take_at_the_native_ports(
    site: Site,
) -> None:
    audit, letters, system = "%25AUDIT%25", "%25DLQ%25idle", "%25sys%25topics"
    async with site.open(Readers()) as browser:
        await browser.post("/login", user="ada", password="ada")
        seen = await browser.client.get(f"/messages?topic={audit}")
        assert seen.status_code in (200, 404), "not refused; it is there once something was audited"
        assert "allow user ada group idle" in await browser.get(f"/messages?topic={letters}", 403)
        assert "allow user ada admin *" in await browser.get(f"/messages?topic={system}", 403)
        await browser.post("/logout")
        await browser.post("/login", user="carl", password="carl")
        await browser.get(f"/messages?topic={letters}", 404)


async def test_what_users_do_is_in_the_audit_log(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        await browser.post("/login", 403, user="ada", password="wrong")
        await browser.post("/login", 403, user="a password", password="in the wrong field")
        await browser.post("/login", user="ada", password="ada")
        await browser.post("/topics/delete", 404, name="absent")
        await browser.post("/logout")
        await browser.post("/login", user="vera", password="vera")
        await browser.post("/topics/delete", 403, name="absent")
        told = [(one.user, one.act, one.name, one.allowed, one.why) for one in browser.console.audit.trail.take()]
    assert told == [
        ("ada", "Login", "", False, "wrong_password"),
        ("", "Login", "", False, "wrong_password"),
        ("ada", "Login", "", True, ""),
        ("ada", "/topics/delete", "absent", True, ""),
        ("vera", "Login", "", True, ""),
        ("vera", "/topics/delete", "", False, "admin"),
    ]


async def test_errors_of_brokers_are_pages_with_a_remedy(site: Site) -> None:
    async with site.open() as browser:
        assert "penstock topic list" in await browser.get("/topic?name=absent", 404)
        assert "whole number" in await browser.get("/sleeping?due=soon", 400)
        assert "no offset id" in await browser.get("/message?id=x", 400)
        part = await browser.client.get("/topic/live?name=absent", headers={"hx-request": "true"})
        assert 'role="alert"' in part.text


async def test_forms_are_bounded(site: Site) -> None:
    async with site.open() as browser:
        await browser.get("/publish")
        answer = await browser.client.post("/publish", content=b"x" * (FORM_BYTES_MAX + 1))
        assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/publish", "/login"])
async def test_a_form_that_never_ends_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(visits, "FORM_S", 0.05)

    async def body() -> AsyncIterator[bytes]:
        yield b"topic="
        await trio.sleep_forever()

    async with site.open() as browser:
        await browser.get("/publish")
        assert (await browser.client.post(path, content=body())).status_code == 408


async def test_a_login_of_another_browser_is_none(site: Site) -> None:
    async with site.open(TwoUsers()) as browser:
        browser.client.cookies.set(COOKIE, "0" * 64)
        assert (await browser.client.get("/")).status_code == 303
