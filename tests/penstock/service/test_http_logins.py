"""Logins of HTTP requests; over real HTTP they are in tests/events/test_logins.py and test_status.py."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from penstock.access.acl import VIEW
from penstock.access.passwords import Users, hash_password
from penstock.access.policy import AT_OPEN_PORT, CERTIFICATE, PASSWORD, UNPROVEN, Identity
from penstock.service import http_logins
from penstock.service.access_files import AccessFiles
from penstock.service.access_settings import AccessSettings
from penstock.service.http_logins import HttpLogins
from penstock.world import real_world
from tests.penstock.native_access import access_files


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str, **more: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.more = status, code, more


def logins(settings: AccessSettings) -> HttpLogins:
    files = AccessFiles(settings, real_world(), None)
    return HttpLogins(files, Refused, takes_clear=False)


def request(shown: str = "", scheme: str = "https") -> dict[str, Any]:
    headers = [(b"authorization", shown.encode())] if shown else []
    return {"headers": headers, "client": ("192.0.2.1", 1), "scheme": scheme, "method": "GET", "path": "/"}


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


async def test_users_come_with_their_password_and_do_what_the_rules_allow(tmp_path: Path) -> None:
    judge = logins(AccessSettings(**access_files(tmp_path)))
    auditor = await judge.identity_of(request(basic("auditor", "ledger")))
    assert auditor == await judge.identity_of(request(basic("auditor", "ledger"))) == Identity("auditor", PASSWORD)
    judge.check(request(), auditor, VIEW)
    assert await judge.identity_of(request()) == UNPROVEN
    for who, status in ((UNPROVEN, 401), (Identity("billing", PASSWORD), 403)):
        with pytest.raises(Refused) as refused:
            judge.check(request(), who, VIEW)
        assert (refused.value.status, "challenge" in refused.value.more) == (status, status == 401)
    with pytest.raises(Refused) as refused:
        await judge.identity_of(request(basic("auditor", "wrong")))
    assert refused.value.code == "wrong-login"
    with pytest.raises(Refused, match="TLS only"):
        await judge.identity_of(request(basic("billing", "pencil"), scheme="http"))


async def test_a_password_that_changes_while_it_is_looked_at_is_not_remembered(tmp_path: Path) -> None:
    world, looked_at = real_world(), 0

    async def offload(work: Callable[[], Any]) -> Any:
        nonlocal looked_at
        found, looked_at = await world.offload(work), looked_at + 1
        if looked_at == 1:
            known = files.authority.users
            assert known is not None
            files.authority.set_users(Users({**known.by_name, "auditor": hash_password(b"other", b"s" * 16)}))
            async with trio.open_nursery() as other:  # whose request sees the change first
                other.start_soon(judge.identity_of, request(basic("billing", "pencil")))
        return found

    files = AccessFiles(AccessSettings(**access_files(tmp_path)), replace(world, offload=offload), None)
    judge = HttpLogins(files, Refused, takes_clear=False)
    await judge.identity_of(request(basic("auditor", "ledger")))
    with pytest.raises(Refused) as refused:
        await judge.identity_of(request(basic("auditor", "ledger")))
    assert refused.value.code == "wrong-login"


async def test_a_certificate_is_a_login_where_certificates_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_logins, "shown_certificate", lambda: ("auditor", 1e12))
    password_file = access_files(tmp_path)["password_file"]
    assert await logins(AccessSettings(password_file=password_file)).identity_of(request()) == UNPROVEN
    counts = AccessSettings(password_file=password_file, tls_clients="optional")
    assert await logins(counts).identity_of(request()) == Identity("auditor", CERTIFICATE, 1e12)


async def test_an_open_port_asks_nobody() -> None:
    assert await logins(AccessSettings()).identity_of(request()) == AT_OPEN_PORT
