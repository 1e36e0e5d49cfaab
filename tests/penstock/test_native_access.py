"""Logins at the native ports of a real broker and name server: with the clients that programs have, and with those of
attackers, over TCP and TLS."""

from __future__ import annotations

import ssl
import struct
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import jwt
import msgpack
import pytest
import scramp
import trio
import trustme
from click.testing import CliRunner

from console.cluster import open_cluster
from penstock import Admin, Consumer, Message, PopConsumer, Producer, Reader, blocking
from penstock.blocking.link import BlockingLink
from penstock.cli.root import root
from penstock.client.credentials import NO_CREDENTIALS, Credentials, credentials_of, service_credentials
from penstock.client.wire_link import WireLinks, call
from penstock.errors import NotAuthorized, PenstockError, Unavailable
from penstock.protocol import wire
from penstock.protocol.logins import SCRAM
from penstock.protocol.requests.routes import QueryRoute, RegisterBroker
from penstock.protocol.requests.servers import Login, LoginStep, Ping, ServerInfo
from penstock.protocol.requests.sessions import OpenSession
from penstock.service.guard import STRANGER_BYTES_MAX
from tests.patience import PATIENCE_S
from tests.penstock.native_access import KEY, PASSWORDS, access_files, servers

pytestmark = pytest.mark.endtoend  # the servers work in threads and on real sockets

SECRET = "a secret of more than thirty-two bytes"


def as_user(nursery: trio.Nursery, user: str, password: str = "", **more: object) -> WireLinks:
    given = credentials_of(user, password or PASSWORDS[user], environ={}, **more)  # type: ignore[arg-type]
    return WireLinks(nursery, credentials=given)


async def test_users_may_do_what_the_rules_say_and_hear_what_would_mend_a_refusal(tmp_path: Path) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at, trio.open_nursery() as nursery:
        async with Producer(servers=at.namesrv, links=as_user(nursery, "billing")) as producer:
            assert (await producer.send("orders-1", b"one")).offset == 0
            with pytest.raises(NotAuthorized) as refused:
                await producer.send("payments", b"two")
        assert "'billing' may not" in str(refused.value)
        assert "allow user billing" in refused.value.hint
        member = partial(Consumer, topics="orders-1", servers=at.namesrv, start="earliest")
        with trio.fail_after(PATIENCE_S):
            async with member("billing-1", links=as_user(nursery, "billing")) as consumer:
                assert [message.body for message in await anext(aiter(consumer))] == [b"one"]
            with pytest.raises(NotAuthorized, match="may not use the group 'other'"):
                async with member("other", links=as_user(nursery, "billing")) as consumer:
                    await anext(aiter(consumer))
        async with Admin(at.namesrv, links=as_user(nursery, "ada")) as admin:
            assert "orders-1" in [one.topic for one in await admin.topics()]
            await admin.delete_topic("orders-1")
        for user, password in (("billing", "wrong"), ("stranger", "pencil")):
            with pytest.raises(NotAuthorized, match="did not accept this login"):
                async with Admin(at.namesrv, links=as_user(nursery, user, password)) as admin:
                    await admin.topics()
        nursery.cancel_scope.cancel()


async def test_both_servers_keep_who_did_what_in_the_audit_log(tmp_path: Path) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at, trio.open_nursery() as nursery:
        async with Admin(at.namesrv, links=as_user(nursery, "ada")) as admin:
            await admin.create_topic("orders-1")
            with trio.fail_after(PATIENCE_S):
                with pytest.raises(NotAuthorized):
                    async with Admin(at.namesrv, links=as_user(nursery, "ada", "wrong")) as other:
                        await other.topics()
                async with Producer(servers=at.namesrv, links=as_user(nursery, "billing")) as producer:
                    with pytest.raises(NotAuthorized):
                        await producer.send("payments", b"two")
                    await producer.send("orders-1", b"one")
                wanted = {
                    ("broker-a", "ada", "CreateTopic", "orders-1", True, ""),
                    ("name server", "ada", "Login", "SCRAM-SHA-256", False, "wrong_proof"),
                    ("name server", "billing", "QueryRoute", "payments", False, "consume"),
                }
                told: set[tuple[object, ...]] = set()
                while not wanted <= told:
                    rows = await admin.audit()
                    told = {
                        (one.server.split(" 127")[0], one.user, one.act, one.name, one.allowed, one.why) for one in rows
                    }
            assert not {"AppendRuns", "QueryTopics"} & {one[2] for one in told}, "what is allowed is not an act"
            assert all(one.address.startswith("127.0.0.1:") for one in rows)
            (tmp_path / "secret").write_text("lovelace")
            (tmp_path / "secret").chmod(0o600)
            ada = ["--server", at.namesrv, "--user", "ada", "--password-file", str(tmp_path / "secret")]
            for more, is_shown in (([], False), (["--all"], True)):
                listed = partial(CliRunner().invoke, root, [*ada, "topic", "list", *more])
                assert ("%AUDIT%" in (await trio.to_thread.run_sync(listed)).stdout) == is_shown
            with pytest.raises(NotAuthorized):
                async with Admin(at.namesrv, links=as_user(nursery, "billing")) as other:
                    await other.audit()
        nursery.cancel_scope.cancel()


async def test_each_client_takes_a_login_as_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at:
        billing = {"servers": at.namesrv, "user": "billing", "password": "pencil"}
        with trio.fail_after(PATIENCE_S):
            async with Producer(**billing) as producer:
                await producer.send("orders-1", b"one")
            for client in (
                Consumer("billing-1", "orders-1", start="earliest", **billing),
                PopConsumer("billing-2", "orders-1", start="earliest", **billing),
                Reader("orders-1", start="earliest", **billing),
            ):
                async with client:
                    await anext(aiter(client))
            async with Admin(at.namesrv, user="auditor", password="ledger") as admin:
                assert "orders-1" in [one.topic for one in await admin.topics()]

            def with_blocking_clients() -> None:
                with blocking.Producer(**billing) as producer:
                    producer.send("orders-1", b"two")
                with blocking.Admin(at.namesrv, user="auditor", password="ledger") as admin:
                    assert "orders-1" in [one.topic for one in admin.topics()]
                monkeypatch.setenv("PENSTOCK_USER", "billing")
                monkeypatch.setenv("PENSTOCK_PASSWORD", "pencil")
                with blocking.Producer(servers=at.namesrv) as producer:
                    producer.send("orders-1", b"three")

            await trio.to_thread.run_sync(with_blocking_clients)


async def test_services_with_the_key_may_act_for_devices_and_nobody_else_may(tmp_path: Path) -> None:
    opened = OpenSession("gateway-1", "d1", True, 0, b"")
    async with servers(tmp_path, access_files(tmp_path)) as at, trio.open_nursery() as nursery:
        for credentials, is_service in (
            (service_credentials(KEY, "gateway-1"), True),
            (credentials_of("ada", "lovelace", environ={}), False),
            (NO_CREDENTIALS, False),
        ):
            link = WireLinks(nursery, credentials=credentials).link(at.broker)
            if is_service:
                await call(link, opened)
            else:
                with pytest.raises(NotAuthorized, match="only brokers, gateways"):
                    await call(link, opened)
        wrong = WireLinks(nursery, credentials=service_credentials(bytes(32), "gateway-1"))
        with pytest.raises(NotAuthorized):
            await call(wrong.link(at.broker), opened)
        nursery.cancel_scope.cancel()


async def test_the_console_comes_with_the_key_of_the_cluster(tmp_path: Path) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at:
        async with open_cluster([at.namesrv], service_credentials(KEY, "console")) as cluster:
            await cluster.publish(Message("orders-1", b"one"))
            assert "orders-1" in [one.topic for one in await cluster.reads.topics()]
        async with open_cluster([at.namesrv], NO_CREDENTIALS) as cluster:
            with pytest.raises(NotAuthorized):
                await cluster.reads.topics()


async def test_a_token_is_a_login_and_its_end_ends_the_connection(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET)
    given = access_files(tmp_path, jwt_key_file=str(tmp_path / "key"))
    async with servers(tmp_path, given) as at, trio.open_nursery() as nursery:
        now_s = at.running.guard.wall_s()
        token = jwt.encode({"sub": "auditor", "exp": now_s + 60}, SECRET, "HS256")
        links = WireLinks(nursery, credentials=credentials_of(token=token, environ={}))
        async with Admin(at.namesrv, links=links) as admin:
            assert "orders-1" not in [one.topic for one in await admin.topics()]
        ended = jwt.encode({"sub": "auditor", "exp": now_s - 60}, SECRET, "HS256")
        links = WireLinks(nursery, credentials=credentials_of(token=ended, environ={}))
        with pytest.raises(NotAuthorized):
            async with Admin(at.namesrv, links=links) as admin:
                await admin.topics()
        nursery.cancel_scope.cancel()


def blocking_link(address: str, credentials: Credentials) -> BlockingLink:
    return BlockingLink(address, PATIENCE_S, credentials=credentials)


async def test_the_blocking_client_logs_in_too(tmp_path: Path) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at:

        def look() -> None:
            with blocking_link(at.namesrv, credentials_of("auditor", "ledger", environ={})) as link:
                link.call(QueryRoute(""))
            with (
                pytest.raises(NotAuthorized, match="did not accept this login"),
                blocking_link(at.namesrv, credentials_of("auditor", "pencil", environ={})) as link,
            ):
                link.call(QueryRoute(""))

        await trio.to_thread.run_sync(look)


# ---------------------------------------------------------------- TLS


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, str]:
    """Settings of servers that speak TLS and know certificates of clients, and the authority's file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.issue_cert("x", common_name="auditor").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "auditor.pem"
    )
    return {
        "tls_certificate": str(tmp_path / "server.pem"),
        "tls_client_ca": str(tmp_path / "ca.pem"),
        "tls_clients": "optional",
    }


async def test_over_tls_clients_are_who_their_certificate_names_or_log_in(tmp_path: Path, tls: dict[str, str]) -> None:
    ca = str(tmp_path / "ca.pem")
    async with (
        servers(tmp_path, access_files(tmp_path, **tls), peers_tls_ca=ca) as at,
        trio.open_nursery() as nursery,
    ):
        environ = {"PENSTOCK_TLS": ca, "PENSTOCK_CLIENT_CERTIFICATE": str(tmp_path / "auditor.pem")}
        by_certificate = WireLinks(nursery, credentials=credentials_of(environ=environ))
        async with Admin(at.namesrv, links=by_certificate) as admin:
            assert "orders-1" not in [one.topic for one in await admin.topics()]
            with pytest.raises(NotAuthorized, match="user 'auditor' may not administer"):
                await admin.delete_topic("orders-1")
        async with Producer(servers=at.namesrv, links=as_user(nursery, "billing", tls=ca)) as producer:
            assert (await producer.send("orders-1", b"x" * 100_000)).offset == 0
        nursery.cancel_scope.cancel()


async def test_a_client_whose_certificate_is_not_taken_is_told_where_to_look(
    tmp_path: Path, tls: dict[str, str]
) -> None:
    ca, own = str(tmp_path / "ca.pem"), tmp_path / "own.pem"
    trustme.CA().issue_cert("x", common_name="auditor").private_key_and_cert_chain_pem.write_to_path(own)
    stranger = credentials_of(environ={"PENSTOCK_TLS": ca, "PENSTOCK_CLIENT_CERTIFICATE": str(own)})
    async with servers(tmp_path, access_files(tmp_path, **tls), peers_tls_ca=ca) as at, trio.open_nursery() as nursery:
        with pytest.raises(Unavailable, match="its log says why"):
            await call(WireLinks(nursery, credentials=stranger).link(at.broker), Ping(), PATIENCE_S)
        blocking = BlockingLink(at.broker, credentials=stranger, timeout_s=PATIENCE_S)
        with pytest.raises(Unavailable, match="its log says why"):
            await trio.to_thread.run_sync(blocking.call, Ping())
        nursery.cancel_scope.cancel()


async def test_no_client_goes_on_without_tls_or_with_another_server(
    tmp_path: Path, tls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("CONNECT_S", "LOGIN_S"):  # a starved machine takes longer, and then that is what a client says
        monkeypatch.setattr(f"penstock.client.wire_link.{limit}", PATIENCE_S)
    ca, other = str(tmp_path / "ca.pem"), tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    access = access_files(tmp_path, **tls)
    async with servers(tmp_path, access, peers_tls_ca=ca) as at, trio.open_nursery() as nursery:
        with pytest.raises(NotAuthorized, match="the certificate of"):
            await call(as_user(nursery, "ada", tls=str(other)).link(at.broker), Ping(), PATIENCE_S)
        with pytest.raises(Unavailable):  # plain bytes are no handshake
            await call(as_user(nursery, "ada").link(at.broker), Ping(), PATIENCE_S)
        old = ssl.create_default_context(cafile=ca)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")  # or it is the client that refuses
        with warnings.catch_warnings():  # it is, and that is why nobody shall come with it
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with pytest.raises(Unavailable, match="no TLS with"):
            await call(as_user(nursery, "ada", tls=old).link(at.broker), Ping(), PATIENCE_S)
        nursery.cancel_scope.cancel()
    async with servers(tmp_path / "plain", access_files(tmp_path)) as at, trio.open_nursery() as nursery:
        with pytest.raises(PenstockError):
            await call(as_user(nursery, "ada", tls=ca).link(at.broker), Ping(), PATIENCE_S)
        nursery.cancel_scope.cancel()


# ---------------------------------------------------------------- attackers


class Attacker:
    """A connection on which anything is said."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.reader = wire.FrameReader()
        self.frames: list[wire.RawFrame] = []

    async def say(self, data: bytes) -> wire.RawFrame | None:
        """The next frame from the server; None where it has closed the connection."""
        try:
            await self.stream.send_all(data)
            while not self.frames:
                got = await self.stream.receive_some()
                if not got:
                    return None
                self.frames += self.reader.receive(got)
        except trio.BrokenResourceError:
            return None
        return self.frames.pop(0)

    async def login(self, mechanism: str, data: bytes) -> LoginStep | PenstockError:
        frame = await self.say(wire.join(wire.encode_request(1, Login(mechanism, data))))
        assert frame is not None
        result = wire.decode_result(frame, Login)
        assert isinstance(result, LoginStep | PenstockError)
        return result


@asynccontextmanager
async def attacker(address: str) -> AsyncIterator[Attacker]:
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Attacker(stream)


async def test_a_login_that_was_overheard_is_worth_nothing_on_another_connection(tmp_path: Path) -> None:
    client = scramp.ScramClient([SCRAM], "ada", "lovelace")
    messages = [client.get_client_first().encode()]
    async with (
        servers(tmp_path, access_files(tmp_path)) as at,
        attacker(at.broker) as first,
        attacker(at.broker) as second,
    ):
        step = await first.login(SCRAM, messages[0])
        assert isinstance(step, LoginStep)
        client.set_server_first(step.data.decode())
        messages.append(client.get_client_final().encode())
        step = await first.login("", messages[1])
        assert isinstance(step, LoginStep)
        assert step.user == "ada"
        assert isinstance(await second.login(SCRAM, messages[0]), LoginStep)
        assert isinstance(await second.login("", messages[1]), NotAuthorized)
        with trio.fail_after(PATIENCE_S):
            assert await second.say(b"") is None  # and the connection ends


async def test_a_name_server_believes_no_stranger_about_brokers(tmp_path: Path) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at, trio.open_nursery() as nursery:
        rogue = RegisterBroker("broker-a", "192.0.2.1:1", 1, 60.0, ())
        for links in (as_user(nursery, "ada"), WireLinks(nursery, credentials=NO_CREDENTIALS)):
            with pytest.raises(NotAuthorized):
                await call(links.link(at.namesrv), rogue)
        nursery.cancel_scope.cancel()


def frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


BOMBS: dict[str, bytes] = {
    "long frame": struct.pack(">II", 1 << 24, 1 << 22),
    "over the bound": frame(msgpack.packb([2, 1, "TOKEN", b"x" * STRANGER_BYTES_MAX])),
    "array of a billion": frame(b"\xdd\x3b\x9a\xca\x00" + b"\xc0" * 100),
    "deep": frame(b"\x91" * 10_000),
    "many arrays": frame(b"\xdc\x0f\xa0" + b"\xdc\xff\xff" * 4000),
    "map": frame(b"\x93\x02\x01\x81\xa1a\x01"),
    "extension": frame(b"\x94\x02\x01\xa5TOKEN\xc7\x01\x05\x00"),
    "random": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10,
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_stranger_s_bytes_cost_its_own_connection_alone(tmp_path: Path, bomb: str) -> None:
    async with servers(tmp_path, access_files(tmp_path)) as at:
        for address in (at.broker, at.namesrv):
            async with attacker(address) as other, attacker(address) as one:
                with trio.fail_after(PATIENCE_S):
                    answer = await one.say(BOMBS[bomb])
                    if answer is not None:
                        assert isinstance(wire.decode_result(answer, Ping), PenstockError)
                    assert isinstance(wire.decode_result(await pinged(other), Ping), ServerInfo)


async def pinged(one: Attacker) -> wire.RawFrame:
    answer = await one.say(wire.join(wire.encode_request(1, Ping())))
    assert answer is not None
    return answer
