"""Users at the HTTP interface, in a real system: the same as at the broker's ports."""

from __future__ import annotations

import json
import socket
import time
from base64 import b64encode
from collections.abc import Iterator

import jwt
import pytest
from click.testing import CliRunner

from penstock.access.passwords import Hashed, Users, format_passwords
from penstock.cli.root import root
from tests.cheap_passwords import cheap_hash
from tests.events.bridge import BATCH, Answer, Bridge
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend
SECRET = "k" * 40
RULES = """
allow user device  produce in
allow user viewer  view    *
allow user boss    admin   *
allow user boss    view    *
allow user boss    produce *
"""


def cheap(password: str) -> Hashed:
    return cheap_hash(password.encode(), b"s" * 16)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    folder = tmp_path_factory.mktemp("guarded")
    users = {name: cheap(f"{name}-pw") for name in ("device", "viewer", "boss", "stranger")}
    (folder / "users").write_text(format_passwords(Users(users, b"k" * 32)))
    (folder / "rules").write_text(RULES)
    (folder / "key").write_text(SECRET)
    file = folder / "penstock.toml"
    file.write_text(
        f"password_file = '{folder}/users'\nacl_file = '{folder}/rules'\njwt_key_file = '{folder}/key'\n"
        "jwt_algorithms = ['HS256']\n"
    )
    bridge = Bridge.at(folder / "data", file)
    assert ask(bridge, "boss", "PUT", "/v1/buses/in", {}).status == 201
    yield bridge
    bridge.stop()


def basic(user: str, password: str | None = None) -> str:
    return "Basic " + b64encode(f"{user}:{password or user + '-pw'}".encode()).decode()


def ask(bridge: Bridge, user: str, method: str, path: str, value: object = None, **headers: str) -> Answer:
    return bridge.call(method, path, value, authorization=basic(user), **headers)


EVENT = [{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}]


@pytest.mark.parametrize(
    ("user", "sends", "looks", "writes"),
    [("device", 202, 403, 403), ("viewer", 403, 200, 403), ("boss", 202, 200, 200), ("stranger", 403, 403, 403)],
)
def test_a_user_does_what_the_rules_allow(guarded: Bridge, user: str, sends: int, looks: int, writes: int) -> None:
    assert ask(guarded, user, "POST", "/v1/buses/in/events", EVENT, content_type=BATCH).status == sends
    by_attribute = [EVENT[0] | {"eventbusname": "in"}]
    put = ask(guarded, user, "POST", "/putEvents", by_attribute, content_type=BATCH)
    assert put.status == {202: 200}.get(sends, sends)
    for path in ("", "/in", "/in/rules", "/in/types", "/in/targets"):
        assert ask(guarded, user, "GET", f"/v1/buses{path}").status == looks
    tried = {"rule": {"target": "t"}, "event": EVENT[0]}
    assert ask(guarded, user, "POST", "/v1/test", tried).status == looks
    assert ask(guarded, user, "PUT", "/v1/buses/in", {}).status == writes
    for method, path in (("DELETE", "/in/rules/x"), ("POST", "/in/rules/x/redrive")):
        assert ask(guarded, user, method, f"/v1/buses{path}").status == {200: 404}.get(writes, writes)


def test_a_token_is_a_login_until_it_ends(guarded: Bridge) -> None:
    def bearer(key: str = SECRET, **claims: object) -> Answer:
        token = jwt.encode({"sub": "viewer", "exp": int(time.time()) + 600} | claims, key, "HS256")
        return guarded.call("GET", "/v1/buses", authorization=f"Bearer {token}")

    assert bearer().status == 200
    assert bearer(sub="device").status == 403
    assert bearer(exp=1).status == bearer(key="x" * 40).status == 401


@pytest.mark.parametrize(
    "shown",
    [
        "",
        "Basic",
        "Basic !!!",
        "Basic " + b64encode(b"boss").decode(),
        "Basic " + b64encode(b"\xff\xfe:x").decode(),
        basic("boss", "wrong"),
        basic("nobody", "boss-pw"),
        basic("boss", "boss-pw\0"),
        basic("", ""),
        "Bearer x.y.z",
        "Bearer " + jwt.encode({"sub": "boss"}, "", "none"),
        "Digest username=boss",
        "Basic " + "A" * 20_000,
    ],
)
def test_who_proves_nothing_gets_no_further_than_the_head_of_a_request(guarded: Bridge, shown: str) -> None:
    headers = {"authorization": shown} if shown else {}
    answer = guarded.call("GET", "/v1/buses", **headers)
    assert answer.status in (401, 429)
    if answer.status == 401:
        assert answer.headers["www-authenticate"].startswith('Basic realm="penstock"')
    host, _, port = guarded.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as line:  # the body never comes
        login = f"authorization: {shown}\r\n" if shown else ""
        line.sendall(f"PUT /v1/buses/x HTTP/1.1\r\nhost: localhost\r\n{login}content-length: 8000000\r\n\r\n".encode())
        assert line.recv(100).split()[1] in (b"401", b"429")


def test_guesses_are_limited_and_who_is_known_goes_on(guarded: Bridge) -> None:
    assert ask(guarded, "boss", "GET", "/v1/buses").status == 200
    statuses = set()
    for number in range(40):
        statuses.add(guarded.call("GET", "/v1/buses", authorization=basic("boss", f"guess {number}")).status)
    assert statuses == {401, 429} or statuses == {429}
    assert ask(guarded, "boss", "GET", "/v1/buses").status == 200


def test_the_command_logs_in_as_all_commands_do(guarded: Bridge) -> None:
    def run(**env: str) -> tuple[int, str]:
        command = ["event", "--events", guarded.address, "bus", "list", "--json"]
        done = CliRunner().invoke(root, command, env=env)
        return done.exit_code, done.output

    status, said = run(PENSTOCK_USER="boss", PENSTOCK_PASSWORD="boss-pw")
    assert (status, [json.loads(line)["name"] for line in said.splitlines()]) == (0, ["default", "in"])
    status, said = run()
    assert status != 0
    assert "has not logged in" in said


def test_a_login_that_goes_in_the_clear_to_another_machine_is_not_sent() -> None:
    env = {"PENSTOCK_USER": "boss", "PENSTOCK_PASSWORD": "secret"}
    done = CliRunner().invoke(root, ["event", "--events", "192.0.2.1:1", "bus", "list"], env=env)
    assert done.exit_code != 0
    assert "TLS" in done.output
    assert "secret" not in done.output
