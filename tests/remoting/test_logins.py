"""Logins at a running front whose broker has users: what is not signed, or not allowed, changes and tells nothing."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import jwt
import pytest
import trustme

from penstock.access.acl import CONSUME, GROUP, PRODUCE, parse_acl
from penstock.access.authority import Authority
from penstock.access.needs import of_group, of_topic
from penstock.access.passwords import Users, format_passwords
from penstock.access.policy import SIGNATURE as BY_SIGNATURE
from penstock.access.policy import Identity
from penstock.errors import NotAuthorized
from penstock.service.audit import Audit, Trail
from penstock.service.frame_connection import Peer
from penstock.service.guard import Guard
from penstock.service.permissions import Permissions
from remoting import codes
from remoting.frames import Command
from remoting.handlers import handlers
from remoting.logins import SignedLogins
from remoting.sending import STALE_MS
from remoting.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.penstock.native_access import KEY, write_users
from tests.remoting.remoting_rig import RemotingClient, running_front, seen

RULES = """
allow user ada admin *
allow user billing produce orders-*
allow user billing consume orders-*
allow user billing group billing-*
"""
SECRETS = {"ada": "secret of ada", "billing": "secret of billing", "nothing": "secret of nothing"}
JWT_KEY = "a secret of more than thirty-two bytes"
REFUSED = codes.NO_PERMISSION
_SOURCES = (f"127.0.{number // 250 + 1}.{number % 250 + 1}" for number in count())
"""An address for each client: failures are counted by address."""


def users() -> Users:
    made = Users({}, bytes(32))
    for name, secret in SECRETS.items():
        made.by_name[name] = made.decoy(name)._replace(signing=secret.encode())
    made.by_name["keyless"] = made.decoy("keyless")
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(tmp_path_factory.mktemp("logins"))
    (folder / "users").write_text(format_passwords(users()))
    (folder / "rules").write_text(RULES)
    (folder / "token.key").write_text(JWT_KEY)
    names = {"password_file": "users", "acl_file": "rules", "jwt_key_file": "token.key"}
    text = "".join([f'{name} = "{folder / file}"\n' for name, file in names.items()])
    (folder / "penstock.toml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[RunningSystem]:
    with running_front(folder / "data", folder / "penstock.toml") as system:
        yield system


@pytest.fixture
def join(node: RunningSystem) -> Iterator[Callable[..., RemotingClient]]:
    """Makes clients of a user, with the right secret key or another."""
    made: list[RemotingClient] = []

    def make(user: str = "", **options: str) -> RemotingClient:
        given = {"user": user, "secret": SECRETS.get(user, ""), "source": next(_SOURCES)} | options
        made.append(RemotingClient(node.addresses.rocketmq, **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for client in made:
        client.close()


Join = Callable[..., RemotingClient]


def is_over(client: RemotingClient) -> bool:
    client.socket.settimeout(PATIENCE_S)
    try:
        return client.socket.recv(1) == b""
    except ConnectionError:
        return True


def test_a_user_produces_and_consumes_what_the_rules_say(join: Join) -> None:
    billing = join("billing")
    assert billing.produce("orders-1", b"one", e=0).code == codes.SUCCESS
    assert billing.beat("billing-1", topics=("orders-1",), producers=("whatever",)).code == codes.SUCCESS
    assert [one.body for one in seen(billing.pull("billing-1", "orders-1").body)] == [b"one"]
    for refused in (
        billing.produce("payments", b"x"),
        billing.pull("others", "orders-1"),
        billing.pull("billing-1", "payments"),
        billing.ask(codes.QUERY_OFFSET, consumerGroup="others", topic="orders-1", queueId=0),
        billing.ask(codes.CREATE_TOPIC, topic="orders-2", writeQueueNums=1, perm=6),
        billing.ask(codes.ALL_TOPICS),
        billing.produce("orders-1", b"x", "TRAN_MSG\x01true", a="others"),
    ):
        assert refused.code == REFUSED, refused
        assert "user 'billing' may not" in refused.remark
    assert join("ada").ask(codes.CREATE_TOPIC, topic="orders-2", writeQueueNums=1, perm=6).code == codes.SUCCESS


@pytest.mark.parametrize(
    "changed",
    [
        {ACCESS_KEY: None},
        {ACCESS_KEY: "nobody"},
        {ACCESS_KEY: "keyless"},
        {ACCESS_KEY: "ada"},
        {SIGNATURE: None},
        {SIGNATURE: ""},
        {SIGNATURE: "\u00e9\ud7ff"},
        {"topic": "payments"},
        {"one_more": "x"},
        {"queueId": None},
    ],
)
def test_whatever_is_changed_in_a_command_refuses_it_and_ends_a_first_connection(
    changed: dict[str, str | None], join: Join
) -> None:
    client = join("billing")
    command = client.made(codes.MAX_OFFSET, topic="orders-1", queueId=0)
    for name, value in changed.items():
        command.fields.pop(name, None)
        if value is not None:
            command.fields[name] = value
    answer = client.show(command)
    assert (answer.code, answer.body) == (REFUSED, b"")
    assert answer.remark.startswith("the server did not accept this login"), "it does not say what is wrong"
    assert is_over(client)


def test_a_changed_body_stores_nothing_and_a_connection_that_has_logged_in_goes_on(join: Join) -> None:
    client = join("billing")
    client.produce("orders-changed", b"one", e=0)
    forged = client.made(codes.SEND_V2, b"two", a="p", b="orders-changed", e=0, f=0, g=time.time_ns() // 10**6, i="")
    forged.body = b"2wo"
    assert client.show(forged).code == REFUSED
    assert client.ask(codes.MAX_OFFSET, topic="orders-changed", queueId=0).fields["offset"] == "1"


def test_a_message_that_is_sent_once_more_counts_only_for_a_while(join: Join) -> None:
    """The signature has no number: within that time whoever overhears it without TLS can send it again."""
    client = join("billing")
    now_ms = time.time_ns() // 1_000_000
    fields = {"a": "p", "b": "orders-again", "c": "TBW102", "d": 1, "e": 0, "f": 0, "i": ""}
    fresh = client.made(codes.SEND_V2, b"x", g=now_ms, **fields)
    assert [client.show(fresh).code, join("billing").show(fresh).code] == [codes.SUCCESS] * 2
    for born in (now_ms - STALE_MS - 60_000, now_ms + STALE_MS + 60_000):
        answer = client.show(client.made(codes.SEND_V2, b"x", g=born, **fields))
        assert answer.code == REFUSED
        assert "its signature counts for 900" in answer.remark
    assert client.ask(codes.MAX_OFFSET, topic="orders-again", queueId=0).fields["offset"] == "2"


HEARTBEAT = {
    "clientID": "attacker",
    "producerDataSet": [{"groupName": "billing-1"}],
    "consumerDataSet": [{"groupName": "billing-1", "subscriptionDataSet": [{"topic": "orders-1"}]}],
}
LOCKS = {"consumerGroup": "billing-1", "clientId": "attacker", "mqSet": [{"topic": "orders-1", "queueId": 0}]}
HARMLESS = {codes.CHECK_CLIENT_CONFIG, codes.CREATE_GROUP, codes.DELETE_TOPIC_AT_NAMES, codes.UNREGISTER_CLIENT}
"""What does nothing: there is no group to make, the first pull judges a subscription, and the client is not there."""
OPEN_ROUTES = {codes.CLUSTER_INFO}
"""Where brokers are is for everybody who has logged in."""


def ask_all(code: int, client: RemotingClient, position: int) -> Command:
    """A command with the fields of all of them, about what ``billing`` may use and nobody else; the message at the
    ``position`` among it."""
    body = {codes.HEARTBEAT: HEARTBEAT, codes.LOCK_QUEUES: LOCKS, codes.UNLOCK_QUEUES: LOCKS}.get(code)
    texts = dict.fromkeys(("topic", "b"), "orders-1") | dict.fromkeys(("group", "groupName", "a"), "billing-1")
    texts |= dict.fromkeys(("consumerGroup", "producerGroup"), "billing-1") | {"clientID": "x", "key": "k"}
    texts |= {"clientId": "x", "msgId": f"{position:032X}"}
    numbers = dict.fromkeys(("queueId", "queueOffset", "offset", "commitOffset", "timestamp", "e", "f", "perm"), 0)
    numbers |= dict.fromkeys(("tranStateTableOffset", "commitOrRollback", "delayLevel", "writeQueueNums"), 1)
    now_ms = time.time_ns() // 1_000_000
    whole = json.dumps(body or {}).encode()
    if code == codes.SEND_BATCH:
        whole = b"".join([size.to_bytes(4, "big") for size in (23, 0, 0, 0, 1)]) + b"x" + bytes(2)
    return client.ask(code, whole, **texts, **numbers | {"offset": position}, g=now_ms, bornTimestamp=now_ms)


@pytest.mark.parametrize("code", sorted(handlers()))
def test_each_code_is_closed_to_strangers_and_to_users_without_a_right(code: int, join: Join) -> None:
    sent = join("billing").produce("orders-1", b"one", "KEYS\x01k", e=0)
    position = int(sent.fields["msgId"][16:], 16)
    assert ask_all(code, join(), position).code == REFUSED
    answer = ask_all(code, join("nothing"), position)
    if code in HARMLESS | OPEN_ROUTES:
        assert answer.code == codes.SUCCESS
    else:
        assert (answer.code, answer.body) == (REFUSED, b""), answer


def test_a_client_id_belongs_to_the_user_who_has_it(join: Join) -> None:
    billing, ada = join("billing", client_id="shared@1"), join("ada", client_id="shared@1")
    billing.produce("orders-ids", b"x")
    billing.beat("billing-ids", topics=("orders-ids",))
    assert ada.beat().code == REFUSED
    assert ada.ask(codes.UNREGISTER_CLIENT, clientID="shared@1", consumerGroup="billing-ids").code == REFUSED
    found = json.loads(billing.ask(codes.CONSUMERS_OF_GROUP, consumerGroup="billing-ids").body)
    assert found == {"consumerIdList": ["shared@1"]}


def test_a_heartbeat_counts_for_the_groups_that_are_allowed_and_names_the_other(join: Join) -> None:
    billing = join("billing", client_id="beats@1")
    billing.produce("orders-beats", b"x")
    answer = billing.beat("billing-beats", "others", topics=("orders-beats",))
    assert (answer.code, "the group 'others'" in answer.remark) == (REFUSED, True)
    found = json.loads(billing.ask(codes.CONSUMERS_OF_GROUP, consumerGroup="billing-beats").body)
    assert found == {"consumerIdList": ["beats@1"]}


def test_a_token_counts_as_at_other_ports_with_itself_as_the_secret_key(join: Join) -> None:
    def max_offset(token: str, user: str, **fields: str) -> Command:
        client = join(user, secret=token)
        return client.ask(codes.MAX_OFFSET, topic="orders-token", queueId=0, **{SECURITY_TOKEN: token}, **fields)

    join("billing").produce("orders-token", b"x", e=0)
    good = jwt.encode({"sub": "billing", "exp": time.time() + 3600}, JWT_KEY)
    assert max_offset(good, "billing").fields["offset"] == "1"
    assert max_offset(good, "ada").code == REFUSED
    assert max_offset(jwt.encode({"sub": "billing", "exp": 1}, JWT_KEY), "billing").code == REFUSED
    assert max_offset(jwt.encode({"sub": "billing"}, JWT_KEY + "x"), "billing").code == REFUSED


def test_a_revoked_key_ends_a_connection_that_was_let_in(join: Join, folder: Path) -> None:
    client = join("billing")
    assert client.produce("orders-revoked", b"x").code == codes.SUCCESS
    left = users()
    left.by_name["billing"] = left.by_name["billing"]._replace(signing=b"")
    try:
        (folder / "users").write_text(format_passwords(left))
        while client.ask(codes.MAX_OFFSET, topic="orders-revoked", queueId=0).code != REFUSED:
            time.sleep(0.1)
    finally:
        (folder / "users").write_text(format_passwords(users()))
    while join("billing").ask(codes.MAX_OFFSET, topic="orders-revoked", queueId=0).code == REFUSED:
        time.sleep(0.1)


def test_a_front_without_users_does_not_start_before_a_broker_that_has_some(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"ada": "lovelace"})
    (tmp_path / "key").write_text(KEY.hex())
    (tmp_path / "penstock.toml").write_text(
        f'password_file = "{tmp_path / "users"}"\ncluster_secret_file = "{tmp_path / "key"}"\n'
    )
    system = RunningSystem(tmp_path / "data", tmp_path / "penstock.toml")
    try:
        at = system.addresses
        text = f'port = 0\nnamesrv_port = 0\nbroker = "{at.broker}"\nnamesrv = "{at.namesrv}"\n'
        (tmp_path / "remoting.toml").write_text(text + f'cluster_secret_file = "{tmp_path / "key"}"\n')
        command = [sys.executable, "-m", "remoting", "--config", str(tmp_path / "remoting.toml")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    finally:
        system.stop()
    assert ended.returncode == 2
    assert "its clients would come past the users" in ended.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and certificates of a server, of ``ada`` and of an ``ada`` of another authority."""
    folder = Path(tmp_path_factory.mktemp("certificates"))
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    made = {
        "server": authority.issue_cert("localhost", "127.0.0.1"),
        "ada": authority.issue_cert("x", common_name="ada"),
        "stranger": other.issue_cert("x", common_name="ada"),
    }
    for name, one in made.items():
        one.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


@contextmanager
def front_with_tls(certificates: Path, folder: Path, more: str = "") -> Iterator[RunningSystem]:
    """A front with the users, the rules and the server's certificate."""
    (folder / "users").write_text(format_passwords(users()))
    (folder / "rules").write_text(RULES)
    (folder / "penstock.toml").write_text(
        f'password_file = "{folder / "users"}"\nacl_file = "{folder / "rules"}"\n'
        f'tls_certificate = "{certificates / "server.pem"}"\npeers_tls_ca = "{certificates / "ca.pem"}"\n{more}'
    )
    with running_front(folder / "data", folder / "penstock.toml") as system:
        yield system


def test_with_a_certificate_the_front_speaks_tls_alone(certificates: Path, tmp_path: Path) -> None:
    with front_with_tls(certificates, tmp_path) as system:
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        place = system.addresses.rocketmq
        client = RemotingClient(place, user="billing", secret=SECRETS["billing"], tls=context)
        assert client.produce("orders-1", b"x" * 100_000, e=0).code == codes.SUCCESS
        plain = RemotingClient(place, user="billing", secret=SECRETS["billing"])
        with pytest.raises(ConnectionError):
            plain.produce("orders-1", b"x")
        client.close()
        plain.close()


def test_a_client_is_who_its_certificate_names_where_one_is_required(certificates: Path, tmp_path: Path) -> None:
    required = f'tls_client_ca = "{certificates / "ca.pem"}"\ntls_clients = "required"\n'
    with front_with_tls(certificates, tmp_path, required) as system:

        def shown(name: str, **login: str) -> closing[RemotingClient]:
            context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
            if name:
                context.load_cert_chain(certificates / f"{name}.pem")
            return closing(RemotingClient(system.addresses.rocketmq, tls=context, **login))  # type: ignore[arg-type]

        made = {"topic": "orders-1", "writeQueueNums": 1, "perm": 6}
        with shown("ada") as ada:
            assert ada.ask(codes.CREATE_TOPIC, **made).code == codes.SUCCESS
        with shown("ada", user="billing", secret=SECRETS["billing"]) as billing:
            assert billing.ask(codes.CREATE_TOPIC, **made).code == REFUSED
        for name in ("", "stranger"):
            with (
                pytest.raises((ConnectionError, ssl.SSLError)),
                shown(name, user="ada", secret=SECRETS["ada"]) as refused,
            ):
                refused.ask(codes.ALL_TOPICS)


# ------------------------------------------------------------ without a network


def test_the_rules_of_the_guide_let_its_clients_do_what_it_shows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "rocketmq.md").read_text()
    authority = Authority(lambda: bytes(32), lambda: 0)
    authority.set_acl(parse_acl(page.partition("```rules\n")[2].partition("```")[0]))
    audit = Audit(lambda: 0, lambda: 0.0)
    billing = Permissions(authority, audit, "192.0.2.1:5", Identity("billing", BY_SIGNATURE))
    for need in (of_topic((PRODUCE,), "orders"), of_topic((CONSUME,), "orders"), of_group((GROUP,), "orders-service")):
        billing.check("remoting", need)
    with pytest.raises(NotAuthorized):
        billing.check("remoting", of_topic((PRODUCE,), "payments"))


def logins_of(failures_per_min_max: int = 3) -> tuple[SignedLogins, Trail]:
    audit = Audit(lambda: 0, lambda: 0.0)
    authority = Authority(lambda: bytes(32), lambda: 0)
    authority.set_users(users())
    guard = Guard(authority, audit, lambda: 0.0, lambda: 0.0, failures_per_min_max)
    return SignedLogins(guard, Peer(1, "192.0.2.1:5")), audit.trail


def test_an_address_that_fails_often_is_not_heard_and_only_operators_see_why() -> None:
    logins, trail = logins_of()
    wrong = Command(codes.ROUTE, fields={ACCESS_KEY: "ada", SIGNATURE: "x"})
    for _ in range(4):
        with pytest.raises(NotAuthorized):
            logins.permissions(wrong)
    told = [(one.user, one.why, one.times) for one in trail.take()]
    assert told == [("ada", "wrong_signature", 3), ("", "too_many", 1)]
