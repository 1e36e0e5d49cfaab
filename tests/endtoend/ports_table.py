"""Draws the table of docs/formats/access.md that says what each port does for whom; ``python
tests/endtoend/ports_table.py`` writes it there.

Each cell is the answer of a running system to one request of that kind at that port, from a client with that right
alone. ``yes``: it was carried out, or failed for another reason than rights; ``no``: it was refused; ``–``: that port
has no such clients. So each cell was tried.
"""

from __future__ import annotations

import re
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import paho.mqtt.client as paho
import trustme
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from node.addresses import Addresses  # noqa: E402
from penstock.access.passwords import Users, format_passwords, parse_passwords  # noqa: E402
from penstock.blocking.link import BlockingLink  # noqa: E402
from penstock.client.credentials import Credentials, service_credentials  # noqa: E402
from penstock.errors import NotAuthorized, PenstockError, Unavailable  # noqa: E402
from penstock.protocol.message import Message, encode_message  # noqa: E402
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup  # noqa: E402
from penstock.protocol.requests.messages import Append, Pull  # noqa: E402
from penstock.protocol.requests.replicas import TakeLead  # noqa: E402
from penstock.protocol.requests.request import Request  # noqa: E402
from penstock.protocol.requests.routes import PutConfig, QueryRoute, RegisterBroker  # noqa: E402
from penstock.protocol.requests.servers import ReadFigures  # noqa: E402
from penstock.protocol.requests.topics import CreateTopic  # noqa: E402
from remoting import codes  # noqa: E402
from tests.node.running import RunningSystem  # noqa: E402
from tests.patience import PATIENCE_S  # noqa: E402
from tests.penstock.native_access import write_users  # noqa: E402
from tests.remoting.remoting_rig import RemotingClient  # noqa: E402

PAGE = ROOT / "docs" / "formats" / "access.md"
BEGIN, END = "<!-- ports: begin -->\n", "<!-- ports: end -->\n"
PASSWORD: Final = "pencil-pencil"
SECRET: Final = "k" * 32
USERS: Final = ("none", "writer", "reader", "member", "viewer", "boss")
RULES: Final = """
allow user writer publish orders/#
allow user writer produce orders
allow user reader subscribe orders/#
allow user reader consume orders
allow user member group members
allow user viewer view *
allow user boss admin *
"""
COLUMNS: Final = (
    *("nobody", "wrong password", "no rule", "`produce`", "`consume`", "`group`", "`view *`", "`admin *`"),
    *("wrong token", "token, `view *`", "foreign certificate", "certificate, `view *`", "service"),
)
UNPROVEN, WRONG, SERVICE = "nobody", "wrong", "service"
WRONG_TOKEN, TOKEN, FOREIGN, CERTIFICATE = "wrong-token", "token", "foreign", "certificate"
WHO: Final = (UNPROVEN, WRONG, *USERS, WRONG_TOKEN, TOKEN, FOREIGN, CERTIFICATE, SERVICE)
YES, NO, NONE = "yes", "no", "–"

Try = Callable[["Ports", str], str]


class Ports:
    """A running system with users, and one connection for each cell."""

    def __init__(self, folder: Path) -> None:
        users = folder / "users"
        write_users(users, dict.fromkeys(USERS, PASSWORD))
        known = parse_passwords(users.read_text())
        signing = {name: one._replace(signing=PASSWORD.encode()) for name, one in known.by_name.items()}
        users.write_text(format_passwords(Users(signing, bytes(32))))
        (folder / "rules").write_text(RULES)
        (folder / "key").write_text(SECRET)
        (folder / "key").chmod(0o600)
        self._write_certificates(folder)
        files = {name: str(folder / path) for name, path in FILES.items()}
        tls = f"certificate={files['tls_certificate']} client_ca={files['tls_client_ca']} clients=optional"
        file = folder / "penstock.toml"
        file.write_text(
            "".join([f'{name} = "{path}"\n' for name, path in files.items()])
            + 'tls_clients = "optional"\n[gateway]\nanonymous = "nobody"\naddress_failed_logins_per_min_max = 0\n'
            + f'listeners = ["tls 127.0.0.1:0 name=tls {tls}"]\n[console]\ntls_clients = "optional"\n'
            + f'tls_certificate = "{files["tls_certificate"]}"\ntls_client_ca = "{files["tls_client_ca"]}"\n'
        )
        more = {"console_port": 0, "events_port": 0, "rocketmq_port": 0, "rocketmq_namesrv_port": 0}
        self.system = RunningSystem(folder / "data", file, **more)  # type: ignore[arg-type]
        self.at: Addresses = self.system.addresses
        self.ca = files["tls_client_ca"]
        self.native(self.at.broker, "boss", CreateTopic("orders", 1))

    def cell(self, tried: Try, who: str) -> str:
        """What a try gives. Whoever shows a foreign certificate gets no further than the handshake."""
        try:
            return tried(self, who)
        except (httpx.TransportError, OSError):
            assert who == FOREIGN
            return NO

    def _write_certificates(self, folder: Path) -> None:
        authority, other = trustme.CA(), trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        server = authority.issue_cert("127.0.0.1", "localhost")
        server.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
        self._certificates = {
            CERTIFICATE: authority.issue_cert("x", common_name="viewer"),
            FOREIGN: other.issue_cert("x", common_name="viewer"),
        }

    def tls(self, who: str) -> ssl.SSLContext:
        """What a client speaks TLS with, which shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.ca)
        if who in self._certificates:
            self._certificates[who].configure_cert(context)
        return context

    def credentials(self, who: str) -> Credentials:
        """The credentials of a column at native ports."""
        if who == SERVICE:
            return service_credentials(SECRET.encode(), "gateway-1", self.ca)
        if who in BY_TOKEN:
            return Credentials(token=token_of(who), tls=self.tls(who))
        return Credentials(*(() if who in BY_NOTHING else shown_by(who)), tls=self.tls(who))

    def native(self, address: str, who: str, request: Request) -> str:
        """A request at a native port."""
        try:
            with BlockingLink(address, PATIENCE_S, credentials=self.credentials(who)) as link:
                link.call(request)
        except NotAuthorized:
            return NO
        except Unavailable:
            return NO if who == FOREIGN else YES
        except PenstockError:
            return YES
        return YES

    def mqtt(self, who: str, act: str) -> str:
        """A CONNECT, and behind it a SUBSCRIBE or PUBLISH."""
        if who == SERVICE:
            return NONE
        told: list[int] = []
        heard = threading.Event()

        def note(reason: Any) -> None:
            told.append(int(reason.value))
            heard.set()

        client = paho.Client(CallbackAPIVersion.VERSION2, f"d-{who}", protocol=MQTTProtocolVersion.MQTTv5)
        client.on_connect = lambda *given: note(given[3])
        client.on_subscribe = lambda *given: note(given[3][0])
        client.on_publish = lambda *given: note(given[3])
        if who in BY_TOKEN:
            client.username_pw_set("viewer", token_of(who))
        elif who not in BY_NOTHING:
            client.username_pw_set(*shown_by(who))
        client.tls_set_context(self.tls(who))
        host, _, port = self.at.listeners["tls"].rpartition(":")
        client.reconnect_delay_set(PATIENCE_S, PATIENCE_S)
        client.connect(host, int(port))
        client.on_disconnect = lambda *given: note(given[3]) if not told else None
        client.loop_start()
        try:
            assert heard.wait(PATIENCE_S)
            if act and told[-1] < 0x80:
                heard.clear()
                client.subscribe("orders/#", 1) if act == "read" else client.publish("orders/1", "x", 1)
                assert heard.wait(PATIENCE_S)
            return YES if told[-1] < 0x80 else NO
        finally:
            client.disconnect()
            client.loop_stop()

    def console(self, who: str, method: str, path: str, **form: str) -> str:
        """A page or a form, behind a login."""
        if who == SERVICE:
            return NONE
        with httpx.Client(base_url=self.at.console, timeout=PATIENCE_S, verify=self.tls(who)) as client:
            if who in BY_TOKEN:
                client.post("/login", data={"token": token_of(who)})
            elif who not in BY_NOTHING:
                user, password = shown_by(who)
                client.post("/login", data={"user": user, "password": password})
            token = re.search(r'name="csrf" value="(\w+)"', client.get("/").text)
            data = {**form, "csrf": token[1] if token else ""}
            answer = client.request(method, path, data=data if method == "POST" else None)
            has_to_log_in = answer.headers.get("location", "").startswith("/login")
            return NO if answer.status_code in (401, 403) or has_to_log_in else YES

    def http(self, address: str, who: str, method: str, path: str, value: Any = None) -> str:
        """A request of HTTP, with Basic where it has a user."""
        if who == SERVICE:
            return NONE
        login = None if who in BY_NOTHING or who in BY_TOKEN else shown_by(who)
        headers = {"authorization": f"Bearer {token_of(who)}"} if who in BY_TOKEN else {}
        scheme = "http" if address == self.at.http else "https"
        with httpx.Client(verify=self.tls(who), timeout=PATIENCE_S) as client:
            answer = client.request(method, f"{scheme}://{address}{path}", json=value, auth=login, headers=headers)
        return NO if answer.status_code in (401, 403, 405) else YES

    def remoting(self, address: str, who: str, code: int, **fields: object) -> str:
        """A command of RocketMQ, signed where it has a user."""
        if who == SERVICE or who in BY_TOKEN:
            return NONE
        user, secret = ("", "") if who in BY_NOTHING else shown_by(who)
        source = f"127.0.{2 + WHO.index(who)}.{code % 250 + 1}"
        with closing(RemotingClient(address, user=user, secret=secret, source=source, tls=self.tls(who))) as client:
            answer = client.produce("orders", b"x") if code == codes.SEND_V2 else client.ask(code, **fields)
            return NO if answer.code == codes.NO_PERMISSION else YES


FILES: Final = {
    "password_file": "users",
    "acl_file": "rules",
    "cluster_secret_file": "key",
    "jwt_key_file": "key",
    "tls_certificate": "server.pem",
    "tls_client_ca": "ca.pem",
    "peers_tls_ca": "ca.pem",
}
BY_TOKEN: Final = (WRONG_TOKEN, TOKEN)
BY_NOTHING: Final = (UNPROVEN, FOREIGN, CERTIFICATE)
"""Columns that show neither password nor token."""
APPEND: Final = Append(1, False, encode_message(Message("orders", b"x")))
EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def shown_by(who: str) -> tuple[str, str]:
    """The user and password of a column."""
    return ("boss", "wrong") if who == WRONG else (who, PASSWORD)


def token_of(who: str) -> str:
    """The token of a column, of a user who may view."""
    key = SECRET if who == TOKEN else "x" * 32
    return jwt.encode({"sub": "viewer", "exp": int(time.time()) + 86_400}, key, "HS256")


def _native(part: str, request: Request) -> Try:
    return lambda ports, who: ports.native(getattr(ports.at, part), who, request)


ROWS: Final[tuple[tuple[str, str, Try], ...]] = (
    ("MQTT", "connect", lambda ports, who: ports.mqtt(who, "")),
    ("MQTT", "subscribe", lambda ports, who: ports.mqtt(who, "read")),
    ("MQTT", "publish", lambda ports, who: ports.mqtt(who, "write")),
    ("broker", "pull", _native("broker", Pull("orders:0", 0))),
    ("broker", "append", _native("broker", APPEND)),
    ("broker", "join a group", _native("broker", JoinGroup("members", "m", ("orders",)))),
    ("broker", "commit offsets", _native("broker", CommitOffsets("members", "", 0, ()))),
    ("broker", "read figures", _native("broker", ReadFigures())),
    ("broker", "create a topic", _native("broker", CreateTopic("orders", 1))),
    ("broker", "lead its replicas", _native("broker", TakeLead(1))),
    ("name server", "ask for a route", _native("namesrv", QueryRoute("orders"))),
    ("name server", "set an entry", _native("namesrv", PutConfig("n", "k", "v"))),
    ("name server", "register a broker", _native("namesrv", RegisterBroker("rogue", "192.0.2.1:1", 1, 60.0, ()))),
    ("console", "look", lambda ports, who: ports.console(who, "GET", "/topics")),
    ("console", "read messages", lambda ports, who: ports.console(who, "GET", "/messages?topic=orders")),
    ("console", "change", lambda ports, who: ports.console(who, "POST", "/topics/create", name="orders", queues="1")),
    ("status pages", "`/metrics`", lambda ports, who: ports.http(ports.at.http, who, "GET", "/metrics")),
    ("status pages", "any change", lambda ports, who: ports.http(ports.at.http, who, "POST", "/metrics")),
    ("event bridge", "list buses", lambda ports, who: ports.http(ports.at.events, who, "GET", "/v1/buses")),
    ("event bridge", "put a bus", lambda ports, who: ports.http(ports.at.events, who, "PUT", "/v1/buses/orders", {})),
    (
        "event bridge",
        "send an event",
        lambda ports, who: ports.http(ports.at.events, who, "POST", "/v1/buses/orders/events", EVENT),
    ),
    (
        "RocketMQ front",
        "read an offset",
        lambda ports, who: ports.remoting(ports.at.rocketmq, who, codes.MAX_OFFSET, topic="orders", queueId=0),
    ),
    ("RocketMQ front", "send", lambda ports, who: ports.remoting(ports.at.rocketmq, who, codes.SEND_V2)),
    (
        "RocketMQ front",
        "create a topic",
        lambda ports, who: ports.remoting(
            ports.at.rocketmq, who, codes.CREATE_TOPIC, topic="orders", writeQueueNums=1, perm=6
        ),
    ),
    (
        "RocketMQ front, routes",
        "ask for a route",
        lambda ports, who: ports.remoting(ports.at.rocketmq_namesrv, who, codes.ROUTE, topic="orders"),
    ),
)
"""Port, action, and how it is tried."""


def table(folder: Path) -> str:
    """The table, as it stands in the page, of a system in a folder."""
    ports = Ports(folder)
    try:
        lines = [f"| port | what | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
        for port, what, tried in ROWS:
            cells = [ports.cell(tried, who) for who in WHO]
            assert set(cells) <= {YES, NO, NONE}, (port, what, cells)
            lines.append(f"| {port} | {what} | {' | '.join(cells)} |")
    finally:
        ports.system.stop()
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the table into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(before + BEGIN + table(Path(folder)) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
