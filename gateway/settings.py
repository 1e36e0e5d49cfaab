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
from penstock.service.exposure import PAGES, refuse_exposed
from penstock.service.paced_lines import check_detail
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
    """Settings of a gateway.

    Attributes:
        name: the owner of its sessions and, with the time of its start, of its light queues; no other has it. Empty:
            made up at each start.
        host, port: where MQTT is spoken; port 0 takes any free one.
        share_port: several gateway processes listen on the same port, and the system spreads connections over them.
        listeners: further ones, each ``KIND HOST:PORT [OPTION=VALUE ...]``.
        namesrv: ``host:port`` of each name server.
        cluster_secret_file: the key by which brokers and name servers know their gateways; empty where they ask for
            none.
        peers_tls_ca: the authority of the certificates of brokers and name servers, where these speak TLS.
        shards: how many tasks share the sockets of this process.
        anonymous: clients that need no credentials: ``nobody``, peers on ``loopback``, or ``everyone``; at a further
            listener as its option ``anonymous`` says, if it has one.
        password_file: the users and what is kept of their passwords (`penstock user`); empty for none.
        acl_file: what each client may do (`penstock acl`); empty: everything but to publish under ``$``.
        checks_max: maximum number of queued password checks.
        credentials_cached_s: how long a password that was right is not checked again.
        jwt_key_file: the secret or public keys that tokens are checked with; empty for no tokens.
        jwt_algorithms: by which tokens may be signed; empty for that of the key or its usual one.
        jwt_audience: the audience of tokens; empty: a token that names one is refused.
        jwt_issuer: the issuer of tokens; empty: any that has the key.
        jwt_claim: the claim of a token that names the user.
        jwt_expiry_required: whether a token must say when it ends.
        jwt_leeway_s: how far the clocks of the issuer of tokens and of the gateway may differ.
        topic_rules: rules of the topic map, each ``PATTERN TOPIC [KEY LEVEL]``; the first that matches a name wins.
        accepts_per_s_max: connections that each listener accepts in a second; 0 is no limit.
        accept_backlog: further connections that may wait at each listener.
        connections_max: connections at a time.
        half_open_max: connections without an accepted CONNECT.
        connect_wait_s: the time until a CONNECT is there, or until a client has authenticated again.
        connect_packet_bytes_max: the size of a CONNECT.
        packet_bytes_max: the size of any other packet, told as Maximum Packet Size.
        keep_alive_s_max: maximum keep-alive. An MQTT 5 client that asks for more, or for none, gets this one; 0 is no
            maximum. MQTT 3 has no way to change it: ``keep_alive_over_max``.
        keep_alive_over_max: an MQTT 3.1 or 3.1.1 client that asks for more than ``keep_alive_s_max``, or for none, may
            ``keep`` that, or the gateway is to ``refuse`` its CONNECT, with a line in the log.
        protocol_versions: versions of MQTT that are accepted, of ``3.1``, ``3.1.1`` and ``5``.
        empty_client_ids: whether the gateway makes up an id for a client that has none; else its CONNECT is refused.
        qos_max: the highest QoS that clients may publish with and are granted, 0 to 2.
        retained_messages: whether messages are retained. If not, an MQTT 5 client learns it from its CONNACK, and the
            retain flag of an older client's message is ignored.
        session_expiry_s_max: a session outlives its last connection by no more than this.
        client_id_bytes_max: the size of a client id.
        subscriptions_max: subscriptions of one client.
        replays_max: maximum number of subscriptions that are sent history at a time.
        shared_subscriptions: whether there are any.
        share_members_max: maximum number of clients of this gateway in one shared subscription.
        receive_max: QoS 1 and 2 messages that a client may have open, told as Receive Maximum.
        topic_alias_max: how many topic aliases a client may make.
        topic_alias_sent_max: how many topic aliases the gateway makes for a client that takes them.
        in_flight_max: messages that a client has been sent and not acknowledged.
        in_flight_bytes_max: bytes of messages that a client has been sent and not acknowledged; one message always
            goes.
        stalled_s_max: time after which a client that takes nothing of a full output is dropped; 0 for never.
        tcp_keep_alive_s: silence after which TCP asks whether the client is still there; 0 for never.
        address_connections_max: connections of one address at a time; 0 is no limit.
        user_properties_max: user properties of one packet.
        user_properties_bytes_max: bytes of the user properties of one packet.
        filters_per_packet_max: filters of one SUBSCRIBE or UNSUBSCRIBE.
        topic_levels_max: levels of a name or filter.
        output_bytes_max: output that a client may leave untaken; beyond it QoS 0 is dropped, and the rest waits in
            the log.
        unstored_bytes_max: what a client has sent and no broker has stored; beyond it the client is not read.
        held_bytes_max: untaken output, unstored messages and incomplete packets of all clients together, each of the
            three.
        append_bytes_max: messages that go to a broker in one request.
        pull_wait_s: how long a broker holds a request for messages while there are none.
        pull_bytes_max: bytes of messages that are asked for at a time.
        pull_count_max: messages that are asked for at a time.
        messages_per_s_max: messages that each client may send in a second; 0 is no limit.
        bytes_per_s_max: bytes that each client may send in a second; 0 is no limit.
        connects_per_s_max: CONNECTs to each listener in a second; 0 is no limit.
        address_connects_per_s_max: CONNECTs from each address in a second; 0 is no limit.
        address_failed_logins_per_min_max: logins that may fail from an address in a minute; 0 is no limit.
        takeovers_per_min_max: how often in a minute connections may take a session over from each other; 0 is no
            limit.
        client_topics_per_min_max: maximum number of topics that one client creates per minute, and in one burst. A
            first level that no broker has yet creates one. 0 is no limit.
        user_topics_per_min_max: the same for all clients of a user, and for all clients without a user name from one
            address.
        over_rate: a client that sends too fast is made to ``wait``, or the gateway is to ``close`` its connection.
        connection_log: lines in the log for connects and disconnects (level ``info``), refused CONNECTs and failed
            handshakes (``warning``): ``off``, ``sampled`` (of each kind 1 a second, 10 at once), or ``on`` (50 and
            1,000). A line says how many were left out before it. The log's own level is that of ``[log]``.
        sys_every_s: how often the gateway publishes its figures under ``$SYS``; 0 for never.
        sys_prefix: the name under which it publishes them; ``{name}`` stands for that of the gateway.
        status_host, status_port: where a gateway that runs alone has its status pages; port -1 for none, 0 for any
            free one.
        status_hosts: names that a Host header of the status pages may have beside ``localhost``, loopback addresses and
            the address that the connection came to; ``*`` for any.
        insecure: allows ``status_host`` beyond loopback: the pages ask for no login.
        trace_export: the collector to which spans of traces go, over OTLP and HTTP, for example
            ``http://127.0.0.1:4318/v1/traces``; empty: none are made. It needs the extra ``otel``.
        trace_sample: the part of the publications without ``traceparent`` that begin a trace, 0 to 1; those that come
            in one read of a socket may count as one. For those that have ``traceparent``, the sender has decided.
        redirect_to: the server that clients are sent to when this gateway is drained or has moved.
        has_moved: the gateway refuses all clients and sends them to ``redirect_to``.
        drain_per_s: clients that are sent away in a second when the gateway is drained (SIGUSR1).
        response_prefix: clients that ask for response information get this, a slash and their id; empty: nothing.
        filter_lease_s: silence after which a gateway loses the filters that it has open at a broker.
        session_lease_s: silence after which a gateway loses its sessions; other gateways then publish the wills.
        route_refresh_s: how often the name servers are asked which brokers there are.
    """

    name: str = ""
    host: str = "127.0.0.1"
    port: int = 1883
    share_port: bool = False
    listeners: tuple[str, ...] = ()
    namesrv: tuple[str, ...] = ("127.0.0.1:9876",)
    cluster_secret_file: str = ""
    peers_tls_ca: str = ""
    shards: int = 1
    anonymous: str = "loopback"
    password_file: str = ""
    acl_file: str = ""
    checks_max: int = 1000
    credentials_cached_s: float = 300.0
    jwt_key_file: str = ""
    jwt_algorithms: tuple[str, ...] = ()
    jwt_audience: str = ""
    jwt_issuer: str = ""
    jwt_claim: str = "sub"
    jwt_expiry_required: bool = True
    jwt_leeway_s: float = 5.0
    topic_rules: tuple[str, ...] = ()
    accepts_per_s_max: int = 0
    accept_backlog: int = 1024
    connections_max: int = 100_000
    half_open_max: int = 10_000
    connect_wait_s: float = 10.0
    connect_packet_bytes_max: int = 64 * 1024
    packet_bytes_max: int = 1024 * 1024
    keep_alive_s_max: int = 0
    keep_alive_over_max: str = "keep"
    protocol_versions: tuple[str, ...] = ("3.1", "3.1.1", "5")
    empty_client_ids: bool = True
    qos_max: int = 2
    retained_messages: bool = True
    session_expiry_s_max: int = 7 * 24 * 3600
    client_id_bytes_max: int = 256
    subscriptions_max: int = 1000
    replays_max: int = 1000
    shared_subscriptions: bool = True
    share_members_max: int = 10_000
    receive_max: int = 1024
    topic_alias_max: int = 64
    topic_alias_sent_max: int = 64
    in_flight_max: int = 1024
    in_flight_bytes_max: int = 8 * 1024 * 1024
    stalled_s_max: float = 300.0
    tcp_keep_alive_s: int = 300
    address_connections_max: int = 0
    user_properties_max: int = 256
    user_properties_bytes_max: int = 16 * 1024
    filters_per_packet_max: int = 1000
    topic_levels_max: int = 128
    output_bytes_max: int = 512 * 1024
    unstored_bytes_max: int = 2 * 1024 * 1024
    held_bytes_max: int = 256 * 1024 * 1024
    append_bytes_max: int = 4 * 1024 * 1024
    pull_wait_s: float = 60.0
    pull_bytes_max: int = 256 * 1024
    pull_count_max: int = 1024
    messages_per_s_max: int = 0
    bytes_per_s_max: int = 0
    connects_per_s_max: int = 0
    address_connects_per_s_max: int = 0
    address_failed_logins_per_min_max: int = 100
    takeovers_per_min_max: int = 30
    client_topics_per_min_max: int = 100
    user_topics_per_min_max: int = 1000
    over_rate: str = "wait"
    connection_log: str = "sampled"
    sys_every_s: float = 0.0
    sys_prefix: str = "$SYS/brokers/{name}"
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()
    insecure: bool = False
    trace_export: str = ""
    trace_sample: float = 0.0
    redirect_to: str = ""
    has_moved: bool = False
    drain_per_s: int = 500
    response_prefix: str = ""
    filter_lease_s: float = 60.0
    session_lease_s: float = 15.0
    route_refresh_s: float = 5.0

    def __post_init__(self) -> None:
        if self.anonymous not in ANONYMOUS:
            raise InvalidConfig(f"anonymous is {self.anonymous!r}", hint=f"it is one of {', '.join(ANONYMOUS)}")
        if self.over_rate not in OVER_RATE:
            raise InvalidConfig(f"over_rate is {self.over_rate!r}", hint=f"it is one of {', '.join(OVER_RATE)}")
        check_detail(self.connection_log)
        if self.keep_alive_over_max not in KEEP_ALIVE_OVER_MAX:
            hint = f"it is one of {', '.join(KEEP_ALIVE_OVER_MAX)}"
            raise InvalidConfig(f"keep_alive_over_max is {self.keep_alive_over_max!r}", hint=hint)
        if not self.protocol_versions or not set(self.protocol_versions) <= set(VERSIONS):
            hint = f"it lists one or more of {', '.join(VERSIONS)}"
            raise InvalidConfig(f"protocol_versions is {list(self.protocol_versions)}", hint=hint)
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
        for name, low, high in _RANGES:
            if not low <= getattr(self, name) <= high:
                raise InvalidConfig(f"{name} is {getattr(self, name)}", hint=f"it is from {low} to {high}")


_RANGES: Final = (
    ("port", 0, 65_535),
    ("tcp_keep_alive_s", 0, 32_767),
    ("topic_levels_max", 1, LEVELS_MAX),
    ("in_flight_bytes_max", 1024, 1 << 40),
    ("user_properties_max", 0, 1 << 20),
    ("user_properties_bytes_max", 0, 1 << 20),
    ("filters_per_packet_max", 1, 1 << 20),
    ("stalled_s_max", 0, 1 << 30),
    ("shards", 1, 64),
    ("trace_sample", 0, 1),
    ("jwt_leeway_s", 0, 300),
    ("receive_max", 1, 65_535),
    ("in_flight_max", 1, 32_767),
    ("topic_alias_max", 0, 65_535),
    ("topic_alias_sent_max", 0, 65_535),
    ("keep_alive_s_max", 0, 65_535),
    ("qos_max", 0, 2),
    ("packet_bytes_max", 1024, 4 * 1024 * 1024),
    ("connect_packet_bytes_max", 1024, 4 * 1024 * 1024),
    ("connect_wait_s", 0.1, 3600),
    ("connections_max", 1, 1 << 30),
    ("half_open_max", 1, 1 << 30),
    ("address_connections_max", 0, 1 << 30),
    ("accepts_per_s_max", 0, 1 << 30),
    ("accept_backlog", 1, 65_535),
    ("checks_max", 1, 1 << 30),
    ("credentials_cached_s", 0, 1 << 30),
    ("client_id_bytes_max", 1, 4096),  # it is twice in the properties of each of its messages, which have 32,767 bytes
    ("session_expiry_s_max", 0, (1 << 32) - 1),
    ("subscriptions_max", 0, 1 << 30),
    ("replays_max", 0, 1 << 30),
    ("share_members_max", 0, 1 << 30),
    ("unstored_bytes_max", 1, 1 << 40),
    ("held_bytes_max", 1024 * 1024, 1 << 40),
    ("append_bytes_max", 1, 8 * 1024 * 1024),  # what is added last may have 4 MiB, and a broker takes 16
    ("pull_wait_s", 0.1, 3600),
    ("pull_bytes_max", 1, 1 << 30),
    ("pull_count_max", 1, 1 << 20),
    ("sys_every_s", 0, 1 << 30),
    ("filter_lease_s", 1, 1 << 20),
    ("session_lease_s", 1, 1 << 20),
    ("route_refresh_s", 0.1, 3600),
    ("output_bytes_max", OUTPUT_BYTES_LEAST, 1 << 30),
    ("messages_per_s_max", 0, 1 << 30),
    ("drain_per_s", 1, 1 << 30),
    ("bytes_per_s_max", 0, 1 << 40),
    ("connects_per_s_max", 0, 1 << 30),
    ("address_connects_per_s_max", 0, 1 << 30),
    ("address_failed_logins_per_min_max", 0, 1 << 30),
    ("takeovers_per_min_max", 0, 1 << 30),
    ("client_topics_per_min_max", 0, 1 << 30),
    ("user_topics_per_min_max", 0, 1 << 30),
)


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
