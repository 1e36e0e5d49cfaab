"""A gateway whose users may log in by SCRAM, and clients that do, for several twins and the conformance tests."""

from __future__ import annotations

from typing import Any

from rig import Client, Gateway
from scram_client import METHOD, ScramClient

from gateway.login.access import Access
from gateway.mqtt.packets import Auth, Connack, Connect
from gateway.mqtt.properties import Properties
from penstock.access.passwords import Users
from penstock.access.scram import derive_keys
from tests.cheap_passwords import cheap_hash

ITERATIONS = 4096
PASSWORDS = {"alice": b"pencil", "mallory": b"trudy"}
USERS = Users(
    {
        name: cheap_hash(password)._replace(scram=derive_keys(password, bytes(16), ITERATIONS))
        for name, password in PASSWORDS.items()
    }
    | {"old": cheap_hash(b"pencil")},
    bytes(32),
)
CONTINUE, AGAIN = 0x18, 0x19


def proving_gateway(**settings: Any) -> tuple[Gateway, Access]:
    """A gateway with ``USERS``, and nobody anonymous."""
    access = Access("nobody", 10, 0.0, b"key", lambda: None, lambda: 0.0)
    access.set_users(USERS)
    return Gateway(access, **settings), access


def auth(data: bytes | None, reason: int = CONTINUE, method: str = METHOD) -> Auth:
    return Auth(reason, Properties(authentication_method=method, authentication_data=data))


def begin(gateway: Gateway, scram: ScramClient, client_id: str = "c", **asked: Any) -> Client:
    """Sends the CONNECT with the first message."""
    given = asked.pop("properties", {})
    properties = Properties(authentication_method=METHOD, authentication_data=scram.first, **given)
    client = gateway.open(5)
    client.send(Connect(client_id, level=5, properties=properties, **asked))
    return client


def prove(client: Client, scram: ScramClient) -> None:
    """Answers the challenge that has come."""
    challenge = client.got_one(Auth)
    assert challenge.reason_code == CONTINUE
    client.send(auth(scram.final(challenge.properties.authentication_data)))


def logged_in(gateway: Gateway, name: str = "alice", client_id: str = "c", **asked: Any) -> Client:
    """A client that has proven who it is, its CONNACK read."""
    scram = ScramClient(name, PASSWORDS[name].decode())
    client = begin(gateway, scram, client_id, **asked)
    prove(client, scram)
    connack = client.got_one(Connack)
    assert connack.reason_code == 0
    assert scram.believes(connack.properties.authentication_data)
    return client
