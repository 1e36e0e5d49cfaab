"""Settings of the broker, the store's included. docs/guide/settings.md lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from broker.store.settings import StoreSettings
from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import NATIVE
from penstock.service.setting import constant, port_setting, setting

LEVELS: Final = ("cache", "disk", "quorum")
QUEUES_MAX: Final = 1 << 16
RETENTION_S_MAX: Final = 10 * 366 * 86_400
"""The longest retention of a topic of its own."""
SEGMENT_BYTES_MIN: Final = 1 << 14
"""A message that does not fit a segment is refused as too large; below this nothing much would fit."""
_STORE: Final = StoreSettings()
_DATA: Final = Path("penstock-data")
_NAME_HINT: Final = "it has 1 to 255 characters of A-Z a-z 0-9 . _ -"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
RETRY_DELAYS_S: Final = (10.0, 30.0, *[60.0 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)])


@dataclass(frozen=True, slots=True)
class BrokerSettings(AccessSettings):
    """Settings of one broker, with those of its store (``broker/store/settings.py``) and of access.

    Raises ``InvalidConfig`` for a value outside its limits.
    """

    FORMER: ClassVar[Mapping[str, str]] = MappingProxyType({"register_every_s": "it is a quarter of lease_s now"})

    name: str = setting("broker-a", "unique among the brokers of a cluster")
    room: str = setting(
        "",
        "where its machine is, in your words: a room, a rack, a zone. Groups with the strategy `room` or"
        " `nearest-room` have its queues read there",
    )
    host: str = common.host()
    port: int = port_setting(10911, "port on which it listens; 0 takes any free one")
    peers_tls_ca: str = common.peers_tls_ca("other brokers and name servers, where these speak TLS")
    advertise: str = setting("", "`host:port` that clients are to use; empty for where it listens")
    data: Path = setting(_DATA, "folder of all durable state")
    node: str = setting(
        "", "name of this node in the group of copies of this broker's log; its folder keeps it for ever"
    )
    replica_port: int = port_setting(
        -1,
        "where the other nodes of the group reach it, with the key in `cluster_secret_file`; 0 takes any free one,"
        " -1: this log has no copies",
        least=-1,
    )
    replica_advertise: str = setting("", "`host:port` that other nodes use; empty for where it listens")
    join: tuple[str, ...] = setting(
        (),
        "addresses for replicas of nodes of a group; a new node asks them to let it in. Without one it begins a group"
        " of its own",
    )
    resync_bytes_s: float = setting(0.0, "bytes per second that a whole copy of a log may take; 0: no limit", least=0)
    election_s: float = setting(
        1.0, "a node that has heard no leader for one to two times this asks for votes", above=0
    )
    namesrv: tuple[str, ...] = setting(("127.0.0.1:9876",), "addresses of all name servers; it registers with each")
    default_queues: int = setting(4, "queues of a topic that is created without saying", least=1)
    default_level: str = setting(
        "",
        "level of a topic that is created without saying: `cache`, `disk`, or in a group of copies `quorum`; empty"
        " for the strongest",
    )
    auto_create_topics: bool = setting(
        True,
        "whether a message to an unknown topic creates it. Gateways create the two that they need for themselves"
        " (sessions and `$SYS`) all the same",
    )
    queues_max: int = setting(1024, "queues of a topic", least=1, most=QUEUES_MAX)
    topics_max: int = setting(10_000, "topics", above=0)
    topics_anonymous_share: float = setting(
        0.9,
        "the part of them, 0 to 1, that clients without a user name may fill; the rest is left for users, services"
        " and operators",
        least=0,
        most=1,
    )
    user_topics_per_min_max: int = setting(
        1000,
        "maximum number of topics per minute, and in one burst, that messages of one user make at this port; of"
        " clients without a user name, from one address. 0: no limit. Gateways have limits of their own; a port that"
        " asks for no login has none",
        least=0,
    )
    empty_topic_s: float = setting(
        3600.0,
        "a topic that its first message made, and that has had no message and no use for these seconds, is deleted;"
        " 0: never. Topics made by hand stay",
        least=0,
    )
    retained_max: int = setting(1_000_000, "retained messages", least=0)
    retained_bytes_max: int = setting(256 << 20, "bytes of all retained messages", least=0)
    filters_max: int = setting(1_000_000, "open MQTT filters", above=0)
    shares_max: int = setting(100_000, "shared subscriptions", above=0)
    share_unsettled_max: int = constant(65_536, above=0)
    share_lease_s: float = setting(
        15.0,
        "what a gateway has of shared subscriptions goes to others after this long without a word from it",
        above=0,
    )
    sessions_max: int = setting(1_000_000, "MQTT sessions, of connected clients and of others", above=0)
    sessions_bytes_max: int = setting(
        512 << 20, "what is kept in memory of all sessions: wills, subscriptions, places and open exchanges", above=0
    )
    groups_max: int = setting(
        100_000,
        "consumer groups, with members or with committed offsets. Where nine tenths of them are there, those that"
        " have been silent for `reader_silence_s` are forgotten",
        above=0,
    )
    timers_bytes_max: int = setting(
        1 << 30,
        "bytes of delayed messages that wait, and at most an eighth of `retention_bytes`; more are refused",
        above=0,
    )
    halves_max: int = setting(100_000, "halves of transactions that wait for their outcome", above=0)
    halves_bytes_max: int = setting(1 << 30, "bytes of them, and at most an eighth of `retention_bytes`", above=0)
    half_check_after_s: float = setting(
        6.0,
        "how long after it began a producer is first asked for the outcome of a half; the pause doubles with each"
        " check, up to 10 minutes",
        above=0,
    )
    half_checks_max: int = setting(15, "how often; then the half waits for an operator", above=0)
    retry_delays_s: tuple[float, ...] = setting(
        RETRY_DELAYS_S,
        "how long a message that a consumer returns waits before its second attempt, its third, and so on; the last"
        " value applies to all later attempts",
    )
    pull_bytes_max: int = constant(4 << 20, above=0)
    trace_rows_per_s_max: int = setting(
        1_000, "rows of message traces stored in a second; rows above that are dropped. 0: none", least=0
    )
    trace_kept_s: int = setting(
        86_400,
        "seconds for which rows of message traces are kept, where the topic `%TRACE%` is not there yet; `penstock"
        " topic change %TRACE% --retention` changes it. 0: as long as the log",
        least=0,
        most=RETENTION_S_MAX,
    )
    audit_kept_s: int = setting(
        7_776_000,
        "seconds for which entries of the audit log are kept, where the topic `%AUDIT%` is not there yet; `penstock"
        " topic change %AUDIT% --retention` changes it. 0: as long as the log",
        least=0,
        most=RETENTION_S_MAX,
    )
    filter_bodies: tuple[str, ...] = setting(
        (), "topics whose JSON bodies filters may look into (`$.a.b`); `*` for all"
    )
    connection_log: str = common.connection_log()
    trace_export: str = setting(
        "",
        "the collector to which spans of stored messages go, over OTLP and HTTP, for example"
        " `http://127.0.0.1:4318/v1/traces`; empty: none are made. It needs the extra `otel`. What is recorded its"
        " sender decides",
    )
    held_bytes_max: int = common.held_bytes_max()
    lease_s: float = setting(
        120.0, "lease with the name servers, which is renewed four times in it", above=0, most=common.LEASE_S_MAX
    )
    owner_lease_s: float = setting(
        120.0,
        "after this long since the start or an opening without a renewal by a gateway, the filters that only it holds"
        " are closed; a renewal sets the gateway's own `filter_lease_s`",
        above=0,
    )
    handover_wait_s: float = constant(10.0, above=0)
    flush_after_s: float = setting(
        0.1,
        "seconds after which topics of level `cache` are fsynced at the latest; a power cut costs no more than that."
        " 0: at once",
        least=0,
    )
    flush_bytes: int = constant(4 << 20, least=0)
    quick_sync_s: float = constant(0.001, least=0)
    reader_silence_s: float = setting(
        7 * 24 * 3600.0,
        "retention by age waits for a group that has members, that a gateway holds, or that committed within this time",
        above=0,
    )
    segment_bytes: int = setting(
        _STORE.segment_bytes,
        "size of a log segment. A record never spans two: a message that does not fit one is refused",
        least=SEGMENT_BYTES_MIN,
    )
    reserve_step_bytes: int = setting(
        _STORE.reserve_step_bytes,
        "how much of a segment is reserved on the disk at a time, so that a full disk refuses a record whole",
        above=0,
    )
    ahead_bytes: int = constant(_STORE.ahead_bytes, least=0)
    emergency_bytes: int = setting(
        _STORE.emergency_bytes,
        "kept aside so that offset commits and deletes still work on a full disk; 0 for none",
        least=0,
        most=1 << 40,
    )
    chunk_bytes: int = constant(_STORE.chunk_bytes, above=0)
    retention_bytes: int = setting(_STORE.retention_bytes, "keep at most this much log; 0 for no limit", least=0)
    retention_s: float = setting(
        _STORE.retention_s, "keep segments at most this long after their last record; 0 for ever", least=0
    )
    fresh_bytes: int = constant(_STORE.fresh_bytes, least=0)
    seal_after_s: float = constant(_STORE.seal_after_s, least=0)
    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidConfig(f"name is {self.name!r}", hint=_NAME_HINT)
        self.check_access(self.host, NATIVE)
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
        if self.default_level not in ("", *self.levels):
            hint = f"it is one of {', '.join(self.levels)}"
            raise InvalidConfig(f"default_level is {self.default_level!r}", hint=hint)
        self._check_copies()
        if self.default_queues > self.queues_max:
            raise InvalidConfig(f"default_queues is {self.default_queues}", hint=f"queues_max is {self.queues_max}")
        if not self.retry_delays_s or min(self.retry_delays_s) < 0:
            raise InvalidConfig(
                f"retry_delays_s is {list(self.retry_delays_s)}", hint="it has at least one delay, and none below 0"
            )

    def _check_copies(self) -> None:
        if self.has_copies and not _NAME.fullmatch(self.node):
            raise InvalidConfig(f"node is {self.node!r}, and there are copies", hint=_NAME_HINT)
        if self.join and not self.has_copies:
            raise InvalidConfig("join is set, and replica_port is not: other nodes could not reach this one")

    @property
    def has_copies(self) -> bool:
        """Whether this is a node of a group."""
        return self.replica_port >= 0

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels that a topic may have here, the weakest first."""
        return LEVELS if self.has_copies else LEVELS[:-1]

    @property
    def level_of_new(self) -> str:
        """The level of a topic that is created without saying."""
        return self.default_level or self.levels[-1]

    @property
    def carried_bytes_max(self) -> int:
        """How many bytes of each kind of sleeping message there may be: retention carries them on, so they must be much
        less than what it keeps."""
        return self.retention_bytes // 8 if self.retention_bytes else 1 << 62

    def store(self) -> StoreSettings:
        """The store's part of these settings."""
        return StoreSettings(**{one.name: getattr(self, one.name) for one in fields(StoreSettings)})
