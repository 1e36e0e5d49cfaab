"""A broker and a name server that ask for logins, in this process, for tests of native access."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

import broker.net.server
import namesrv.server
from broker.settings import BrokerSettings
from namesrv.settings import NamesrvSettings
from penstock.access.passwords import Users, format_passwords
from penstock.access.scram import derive_keys
from penstock.protocol.addresses import join_address
from penstock.service.access_files import LOOK_EVERY_S as LOOK_EVERY_S
from penstock.world import guarded, real_world
from tests.cheap_passwords import cheap_hash

KEY = bytes(range(32))
RULES = """
group operators ada
allow group operators admin *
allow user billing produce orders-*
allow user billing consume orders-*
allow user billing group billing-*
allow user auditor view *
"""
PASSWORDS = {"ada": "lovelace", "billing": "pencil", "auditor": "ledger"}


@dataclass
class Servers:
    """Where they are."""

    broker: str
    namesrv: str
    running: broker.net.running.RunningBroker


def write_users(path: Path, passwords: dict[str, str]) -> None:
    """A password file, as cheap to check as may be."""
    users = Users({}, bytes(32))
    for name, password in passwords.items():
        hashed = cheap_hash(password.encode())
        users.by_name[name] = hashed._replace(scram=derive_keys(password.encode(), bytes(16), 4096))
    path.write_text(format_passwords(users))


def access_files(folder: Path, rules: str = RULES, **more: Any) -> dict[str, Any]:
    """Settings of both servers that ask for logins."""
    write_users(folder / "users", PASSWORDS)
    (folder / "rules").write_text(rules)
    return {"password_file": str(folder / "users"), "acl_file": str(folder / "rules"), **more}


@asynccontextmanager
async def servers(
    folder: Path, access: dict[str, Any], *, key: bytes | None = KEY, **of_broker: Any
) -> AsyncIterator[Servers]:
    """Both, until the block ends. ``access``: settings that both have; ``of_broker``: further ones of the broker."""
    world, _ = guarded(real_world())
    async with trio.open_nursery() as nursery:
        settings = NamesrvSettings(port=0, **access)
        names = await nursery.start(partial(namesrv.server.run, settings, world, secret=key))
        names_at = join_address("127.0.0.1", names.port)
        own = BrokerSettings(port=0, data=folder / "data", namesrv=(names_at,), **access, **of_broker)
        store = await nursery.start(partial(broker.net.server.run, own, world, secret=key))
        yield Servers(join_address("127.0.0.1", store.port), names_at, store)
        nursery.cancel_scope.cancel()
