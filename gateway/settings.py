"""The gateway's settings: one frozen value, every limit in it. ``gateway/limits/quotas.py`` says which reason code each
limit has.

Durations end in ``_s``, sizes in ``_bytes`` or ``_bytes_max``. docs/guide/settings.md lists them with their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.transports.listening import ANONYMOUS, parse_listeners
from penstock.access.token_keys import check_algorithms
from penstock.access.tokens import TokenRules
from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service.exposure import PAGES, refuse_exposed
from penstock.service.setting import check_bounds, constant, port_setting, setting
from topicmap.names import LEVELS_MAX, InvalidName, check_name
from topicmap.queues import Rule, TopicMap

OVER_RATE: Final = ("wait", "close")
KEEP_ALIVE_OVER_MAX: Final = ("keep", "refuse")
VERSIONS: Final[Mapping[str, int]] = MappingProxyType({"3.1": 3, "3.1.1": 4, "5": 5})
"""A version of MQTT -> its protocol level."""
OUTPUT_BYTES_LEAST: Final = 16 * 1024
"""Output that each client may leave untaken, however many clients there are."""
STRING_BYTES_MAX: Final = 65_535
"""Of a string in a packet (MQTT 5, 1.5.4)."""
NAME_BYTES_MAX: Final = 255
"""Of a gateway's name: no broker takes a longer one of an owner of sessions."""
_NAME_MADE_UP: Final = "gateway-000000000000"
_SYS_TAIL: Final = "publish/messages/received"  # no figure's name under the prefix is longer or deeper


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of a gateway."""

    name: str = setting(
        "",
        "the owner of its sessions and, with the time of its start, of its light queues; no other has it. Empty: made"
        " up at each start",
    )
    host: str = common.host()
    port: int = port_setting(1883, "port where MQTT is spoken; 0 takes any free one")
    share_port: bool = setting(
        False, "several gateway processes listen on the same port, and the system spreads connections over them"
    )
    listeners: tuple[str, ...] = setting((), "further ones, each `KIND HOST:PORT [OPTION=VALUE ...]`")
    namesrv: tuple[str, ...] = common.namesrv()
    cluster_secret_file: str = common.cluster_secret_file()
    peers_tls_ca: str = common.peers_tls_ca()
    shards: int = constant(1, least=1, most=64)
    anonymous: str = setting(
        "loopback",
        "clients that need no credentials: `nobody`, peers on `loopback`, or `everyone`; at a further listener as its"
        " option `anonymous` says, if it has one",
        choices=ANONYMOUS,
    )
    password_file: str = setting("", "the users and what is kept of their passwords (`penstock user`); empty for none")
    acl_file: str = setting("", "what each client may do (`penstock acl`); empty: everything but to publish under `$`")
    checks_max: int = setting(1000, "maximum number of queued password checks", least=1, most=1 << 30)
    credentials_cached_s: float = setting(
        300.0, "how long a password that was right is not checked again", least=0, most=1 << 30
    )
    jwt_key_file: str = common.jwt_key_file()
    jwt_algorithms: tuple[str, ...] = common.jwt_algorithms()
    jwt_audience: str = common.jwt_audience()
    jwt_issuer: str = common.jwt_issuer()
    jwt_claim: str = setting("sub", "the claim of a token that names the user")
    jwt_expiry_required: bool = setting(True, "whether a token must say when it ends")
    jwt_leeway_s: float = setting(
        5.0, "how far the clocks of the issuer of tokens and of the gateway may differ", least=0, most=300
    )
    topic_rules: tuple[str, ...] = setting(
        (), "rules of the topic map, each `PATTERN TOPIC [KEY LEVEL]`; the first that matches a name wins"
    )
    accepts_per_s_max: int = setting(
        0, "connections that each listener accepts in a second; 0 is no limit", least=0, most=1 << 30
    )
    accept_backlog: int = setting(1024, "further connections that may wait at each listener", least=1, most=65_535)
    connections_max: int = setting(100_000, "connections at a time", least=1, most=1 << 30)
    half_open_max: int = setting(10_000, "connections without an accepted CONNECT", least=1, most=1 << 30)
    connect_wait_s: float = setting(
        10.0, "the time until a CONNECT is there, or until a client has authenticated again", least=0.1, most=3600
    )
    connect_packet_bytes_max: int = setting(64 * 1024, "the size of a CONNECT", least=1024, most=4 * 1024 * 1024)
    packet_bytes_max: int = setting(
        1024 * 1024, "the size of any other packet, told as Maximum Packet Size", least=1024, most=4 * 1024 * 1024
    )
    keep_alive_s_max: int = setting(
        0,
        "maximum keep-alive. An MQTT 5 client that asks for more, or for none, gets this one; 0 is no maximum. MQTT 3"
        " has no way to change it: `keep_alive_over_max`",
        least=0,
        most=65_535,
    )
    keep_alive_over_max: str = setting(
        "keep",
        "an MQTT 3.1 or 3.1.1 client that asks for more than `keep_alive_s_max`, or for none, may `keep` that, or the"
        " gateway is to `refuse` its CONNECT, with a line in the log",
        choices=KEEP_ALIVE_OVER_MAX,
    )
    protocol_versions: tuple[str, ...] = setting(
        ("3.1", "3.1.1", "5"), "versions of MQTT that are accepted, of `3.1`, `3.1.1` and `5`", choices=VERSIONS
    )
    empty_client_ids: bool = setting(
        True, "whether the gateway makes up an id for a client that has none; else its CONNECT is refused"
    )
    qos_max: int = setting(2, "the highest QoS that clients may publish with and are granted, 0 to 2", least=0, most=2)
    retained_messages: bool = setting(
        True,
        "whether messages are retained. If not, an MQTT 5 client learns it from its CONNACK, and the retain flag of"
        " an older client's message is ignored",
    )
    session_expiry_s_max: int = setting(
        7 * 24 * 3600, "a session outlives its last connection by no more than this", least=0, most=(1 << 32) - 1
    )
    client_id_bytes_max: int = setting(256, "the size of a client id", least=1, most=4096)
    subscriptions_max: int = setting(1000, "subscriptions of one client", least=0, most=1 << 30)
    replays_max: int = setting(
        1000, "maximum number of subscriptions that are sent history at a time", least=0, most=1 << 30
    )
    shared_subscriptions: bool = setting(True, "whether there are any")
    share_members_max: int = setting(
        10_000, "maximum number of clients of this gateway in one shared subscription", least=0, most=1 << 30
    )
    receive_max: int = setting(
        1024, "QoS 1 and 2 messages that a client may have open, told as Receive Maximum", least=1, most=65_535
    )
    topic_alias_max: int = setting(64, "how many topic aliases a client may make", least=0, most=65_535)
    topic_alias_sent_max: int = setting(
        64, "how many topic aliases the gateway makes for a client that takes them", least=0, most=65_535
    )
    in_flight_max: int = setting(
        1024, "messages that a client has been sent and not acknowledged", least=1, most=32_767
    )
    in_flight_bytes_max: int = setting(
        8 * 1024 * 1024,
        "bytes of messages that a client has been sent and not acknowledged; one message always goes",
        least=1024,
        most=1 << 40,
    )
    stalled_s_max: float = setting(
        300.0,
        "time after which a client that takes nothing of a full output is dropped; 0 for never",
        least=0,
        most=1 << 30,
    )
    tcp_keep_alive_s: int = setting(
        300, "silence after which TCP asks whether the client is still there; 0 for never", least=0, most=32_767
    )
    address_connections_max: int = setting(
        0, "connections of one address at a time; 0 is no limit", least=0, most=1 << 30
    )
    user_properties_max: int = setting(256, "user properties of one packet", least=0, most=1 << 20)
    user_properties_bytes_max: int = setting(
        16 * 1024, "bytes of the user properties of one packet", least=0, most=1 << 20
    )
    filters_per_packet_max: int = setting(1000, "filters of one SUBSCRIBE or UNSUBSCRIBE", least=1, most=1 << 20)
    topic_levels_max: int = setting(128, "levels of a name or filter", least=1, most=LEVELS_MAX)
    output_bytes_max: int = setting(
        512 * 1024,
        "output that a client may leave untaken; beyond it QoS 0 is dropped, and the rest waits in the log",
        least=OUTPUT_BYTES_LEAST,
        most=1 << 30,
    )
    unstored_bytes_max: int = setting(
        2 * 1024 * 1024,
        "what a client has sent and no broker has stored; beyond it the client is not read",
        least=1,
        most=1 << 40,
    )
    held_bytes_max: int = setting(
        256 * 1024 * 1024,
        "untaken output, unstored messages and incomplete packets of all clients together, each of the three",
        least=1024 * 1024,
        most=1 << 40,
    )
    append_bytes_max: int = constant(4 * 1024 * 1024, least=1, most=8 * 1024 * 1024)
    pull_wait_s: float = constant(60.0, least=0.1, most=3600)
    pull_bytes_max: int = constant(256 * 1024, least=1, most=1 << 30)
    pull_count_max: int = constant(1024, least=1, most=1 << 20)
    messages_per_s_max: int = setting(
        0, "messages that each client may send in a second; 0 is no limit", least=0, most=1 << 30
    )
    bytes_per_s_max: int = setting(
        0, "bytes that each client may send in a second; 0 is no limit", least=0, most=1 << 40
    )
    connects_per_s_max: int = setting(0, "CONNECTs to each listener in a second; 0 is no limit", least=0, most=1 << 30)
    address_connects_per_s_max: int = setting(
        0, "CONNECTs from each address in a second; 0 is no limit", least=0, most=1 << 30
    )
    address_failed_logins_per_min_max: int = setting(
        100, "logins that may fail from an address in a minute; 0 is no limit", least=0, most=1 << 30
    )
    takeovers_per_min_max: int = setting(
        30,
        "how often in a minute connections may take a session over from each other; 0 is no limit",
        least=0,
        most=1 << 30,
    )
    client_topics_per_min_max: int = setting(
        100,
        "maximum number of topics that one client creates per minute, and in one burst. A first level that no broker"
        " has yet creates one. 0 is no limit",
        least=0,
        most=1 << 30,
    )
    user_topics_per_min_max: int = setting(
        1000,
        "the same for all clients of a user, and for all clients without a user name from one address",
        least=0,
        most=1 << 30,
    )
    over_rate: str = setting(
        "wait",
        "a client that sends too fast is made to `wait`, or the gateway is to `close` its connection",
        choices=OVER_RATE,
    )
    connection_log: str = common.connection_log(", refused CONNECTs and failed handshakes")
    sys_every_s: float = setting(
        0.0, "how often the gateway publishes its figures under `$SYS`; 0 for never", least=0, most=1 << 30
    )
    sys_prefix: str = setting(
        "$SYS/brokers/{name}", "the name under which it publishes them; `{name}` stands for that of the gateway"
    )
    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()
    insecure: bool = setting(False, "allows `status_host` beyond loopback: the pages ask for no login")
    trace_export: str = setting(
        "",
        "the collector to which spans of traces go, over OTLP and HTTP, for example"
        " `http://127.0.0.1:4318/v1/traces`; empty: none are made. It needs the extra `otel`",
    )
    trace_sample: float = setting(
        0.0,
        "the part of the publications without `traceparent` that begin a trace, 0 to 1; those that come in one read"
        " of a socket may count as one. For those that have `traceparent`, the sender has decided",
        least=0,
        most=1,
    )
    redirect_to: str = setting("", "the server that clients are sent to when this gateway is drained or has moved")
    has_moved: bool = setting(False, "the gateway refuses all clients and sends them to `redirect_to`")
    drain_per_s: int = setting(
        500, "clients that are sent away in a second when the gateway is drained (SIGUSR1)", least=1, most=1 << 30
    )
    response_prefix: str = setting(
        "", "clients that ask for response information get this, a slash and their id; empty: nothing"
    )
    filter_lease_s: float = setting(
        60.0, "silence after which a gateway loses the filters that it has open at a broker", least=1, most=1 << 20
    )
    session_lease_s: float = setting(
        15.0,
        "silence after which a gateway loses its sessions; other gateways then publish the wills",
        least=1,
        most=1 << 20,
    )
    route_refresh_s: float = constant(5.0, least=0.1, most=3600)

    def __post_init__(self) -> None:
        check_bounds(self)
        if not self.protocol_versions:
            raise InvalidConfig("protocol_versions is []", hint=f"it lists one or more of {', '.join(VERSIONS)}")
        if not self.sys_prefix.startswith("$SYS/"):
            raise InvalidConfig(f"sys_prefix is {self.sys_prefix!r}", hint="it begins with $SYS/")
        if self.name:
            _check_levels("name", self.name, "gateway-a")
        if len(self.name.encode()) > NAME_BYTES_MAX:
            raise InvalidConfig(f"name has more than {NAME_BYTES_MAX} bytes", hint="no broker takes it")
        told = f"{self.sys_prefix.replace('{name}', self.name or _NAME_MADE_UP)}/{_SYS_TAIL}"
        _check_levels("sys_prefix", told, "$SYS/brokers/{name}")
        if self.response_prefix:
            _check_levels("response_prefix", self.response_prefix, "replies")
        if len(self.redirect_to.encode()) > STRING_BYTES_MAX:
            raise InvalidConfig(f"redirect_to has more than {STRING_BYTES_MAX} bytes", hint="no packet holds it")
        if not self.namesrv:
            raise InvalidConfig("namesrv names no name server", hint='for example namesrv = ["127.0.0.1:9876"]')
        if self.status_port >= 0:
            refuse_exposed("status_host", self.status_host, self.insecure, PAGES)
        check_algorithms(self.jwt_algorithms)
        if not self.jwt_claim:
            raise InvalidConfig("jwt_claim is empty", hint="it is a claim's name, sub by default")
        parse_rules(self.topic_rules)
        parse_listeners(self.listeners)


def token_rules(settings: GatewaySettings) -> TokenRules:
    """What a token must be."""
    return TokenRules(
        settings.jwt_algorithms,
        settings.jwt_audience,
        settings.jwt_issuer,
        settings.jwt_claim,
        settings.jwt_expiry_required,
        settings.jwt_leeway_s,
    )


def _check_levels(setting: str, value: str, example: str) -> None:
    """Raises ``InvalidConfig`` unless this may be levels of a topic name."""
    try:
        check_name(value)
    except InvalidName as error:
        raise InvalidConfig(f"{setting}: {error}", hint=f"for example {example}") from None


def parse_rules(lines: Sequence[str]) -> list[Rule]:
    """The topic map's rules. Raises ``InvalidConfig`` for one that is none."""
    rules = []
    for line in lines:
        words = line.split()
        try:
            if len(words) not in (2, 3):
                raise ValueError(f"it has two or three words, not {len(words)}")
            rule = Rule(words[0], words[1], int(words[2]) if len(words) == 3 else None)
            TopicMap([rule])
        except (ValueError, InvalidName) as error:
            raise InvalidConfig(f"topic rule {line!r}: {error}", hint="it is: PATTERN TOPIC [KEY LEVEL]") from None
        rules.append(rule)
    return rules
