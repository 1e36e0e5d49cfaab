"""Settings of the broker, the store's included. docs/guide/settings.md lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.store.settings import StoreSettings
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import NATIVE
from penstock.service.native_room import HELD_BYTES_MAX
from penstock.service.paced_lines import check_detail

LEVELS: Final = ("cache", "disk", "quorum")
QUEUES_MAX: Final = 1 << 16
SEGMENT_BYTES_MIN: Final = 1 << 14
"""A message that does not fit a segment is refused as too large; below this nothing much would fit."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
_POSITIVE: Final = (
    "topics_max",
    "filters_max",
    "shares_max",
    "share_unsettled_max",
    "share_lease_s",
    "sessions_max",
    "sessions_bytes_max",
    "groups_max",
    "timers_bytes_max",
    "halves_max",
    "halves_bytes_max",
    "half_check_after_s",
    "half_checks_max",
    "pull_bytes_max",
    "held_bytes_max",
    "owner_lease_s",
    "handover_wait_s",
    "reader_silence_s",
    "reserve_step_bytes",
    "election_s",
    "chunk_bytes",
)
_NOT_NEGATIVE: Final = (
    "user_topics_per_min_max",
    "resync_bytes_s",
    "trace_rows_per_s_max",
    "trace_kept_s",
    "audit_kept_s",
    "empty_topic_s",
    "flush_after_s",
    "flush_bytes",
    "quick_sync_s",
    "ahead_bytes",
    "emergency_bytes",
    "retention_bytes",
    "retention_s",
    "fresh_bytes",
    "seal_after_s",
)
RETRY_DELAYS_S: Final = (10.0, 30.0, *[60.0 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)])


@dataclass(frozen=True, slots=True)
class BrokerSettings(AccessSettings):
    """How one broker runs.

    Attributes:
        name: unique among the brokers of a cluster.
        room: where its machine is, in your words: a room, a rack, a zone. Groups with the strategy ``room`` or
            ``nearest-room`` have its queues read there.
        host, port: where it listens; port 0 takes any free one.
        peers_tls_ca: the authority of the certificates of other brokers and name servers, where these speak TLS.
        advertise: ``host:port`` that clients are to use; empty for where it listens.
        data: folder of all durable state.
        node: name of this node in the group of copies of this broker's log; its folder keeps it for ever.
        replica_port: where the other nodes of the group reach it, with the key in ``cluster_secret_file``; 0 takes any
            free one, -1: this log has no copies.
        replica_advertise: ``host:port`` that other nodes use; empty for where it listens.
        join: addresses for replicas of nodes of a group; a new node asks them to let it in. Without one it begins a
            group of its own.
        resync_bytes_s: bytes per second that a whole copy of a log may take; 0: no limit.
        election_s: a node that has heard no leader for one to two times this asks for votes.
        namesrv: addresses of all name servers; it registers with each.
        default_queues: queues of a topic that is created without saying.
        default_level: level of a topic that is created without saying: ``cache``, ``disk``, or in a group of copies
            ``quorum``; empty for the strongest.
        auto_create_topics: whether a message to an unknown topic creates it. Gateways create the two that they need
            for themselves (sessions and ``$SYS``) all the same.
        queues_max: queues of a topic.
        topics_max: topics.
        topics_anonymous_share: the part of them, 0 to 1, that clients without a user name may fill; the rest is
            left for users, services and operators.
        user_topics_per_min_max: maximum number of topics per minute, and in one burst, that messages of one user make
            at this port; of clients without a user name, from one address. 0: no limit. Gateways have limits of their
            own; a port that asks for no login has none.
        empty_topic_s: a topic that its first message made, and that has had no message and no use for these seconds, is
            deleted; 0: never. Topics made by hand stay.
        retained_max: retained messages.
        retained_bytes_max: bytes of all retained messages.
        filters_max: open MQTT filters.
        shares_max: shared subscriptions.
        share_unsettled_max: messages of a shared subscription that may be on their way.
        share_lease_s: what a gateway has of shared subscriptions goes to others after this long without a word from
            it.
        sessions_max: MQTT sessions, of connected clients and of others.
        sessions_bytes_max: what is kept in memory of all sessions: wills, subscriptions, places and open exchanges.
        groups_max: consumer groups, with members or with committed offsets. Where nine tenths of them are there, those
            that have been silent for ``reader_silence_s`` are forgotten.
        timers_bytes_max: bytes of delayed messages that wait, and at most an eighth of ``retention_bytes``; more are
            refused.
        halves_max: halves of transactions that wait for their outcome.
        halves_bytes_max: bytes of them, and at most an eighth of ``retention_bytes``.
        half_check_after_s: how long after it began a producer is first asked for the outcome of a half; the pause
            doubles with each check, up to 10 minutes.
        half_checks_max: how often; then the half waits for an operator.
        retry_delays_s: how long a message that a consumer returns waits before its second attempt, its third, and so
            on; the last value applies to all later attempts.
        pull_bytes_max: the most that one pull is answered with.
        trace_rows_per_s_max: rows of message traces stored in a second; rows above that are dropped. 0: none.
        trace_kept_s: seconds for which rows of message traces are kept, where the topic ``%TRACE%`` is not there yet;
            ``penstock topic change %TRACE% --retention`` changes it. 0: as long as the log.
        audit_kept_s: seconds for which entries of the audit log are kept, where the topic ``%AUDIT%`` is not there yet;
            ``penstock topic change %AUDIT% --retention`` changes it. 0: as long as the log.
        filter_bodies: topics whose JSON bodies filters may look into (``$.a.b``); ``*`` for all.
        connection_log: lines in the log for connects and disconnects (level ``info``) and failed TLS handshakes
            (``warning``): ``off``, ``sampled`` (of each kind 1 a second, 10 at once), or ``on`` (50 and 1,000).
        trace_export: the collector to which spans of stored messages go, over OTLP and HTTP, for example
            ``http://127.0.0.1:4318/v1/traces``; empty: none are made. It needs the extra ``otel``. What is recorded
            its sender decides.
        held_bytes_max: maximum bytes that all connections together may have this server hold: once of incomplete
            requests, and once of replies that their peers have not read.
        lease_s: lease with the name servers.
        register_every_s: how often the lease with the name servers is renewed.
        owner_lease_s: after this long without a word from a gateway, the filters that only it holds are closed.
        handover_wait_s: seconds that a broker that starts waits for what sessions hold at their home.
        flush_after_s: seconds after which topics of level ``cache`` are fsynced at the latest; a
            power cut costs no more than that. 0: at once.
        flush_bytes: bytes of such topics after which they are fsynced earlier.
        quick_sync_s: a disk whose fsyncs take less, on average, is synced by the event loop, any other by a thread; 0:
            always by the thread.
        reader_silence_s: retention by age waits for a group that has members, that a gateway holds, or that committed
            within this time.
        status_host, status_port: where it has its status pages if it runs alone; port -1 for none, 0 for any free one.
        status_hosts: names that a Host header of the status pages may have beside ``localhost``, loopback addresses and
            the address that the connection came to; ``*`` for any.

    The others are the store's (``broker/store/settings.py``) and those of access. Raises ``ValueError`` for a value
    outside its limits.
    """

    name: str = "broker-a"
    room: str = ""
    host: str = "127.0.0.1"
    port: int = 10911
    peers_tls_ca: str = ""
    advertise: str = ""
    data: Path = Path("penstock-data")
    node: str = ""
    replica_port: int = -1
    replica_advertise: str = ""
    join: tuple[str, ...] = ()
    resync_bytes_s: float = 0.0
    election_s: float = 1.0
    namesrv: tuple[str, ...] = ("127.0.0.1:9876",)
    default_queues: int = 4
    default_level: str = ""
    auto_create_topics: bool = True
    queues_max: int = 1024
    topics_max: int = 10_000
    topics_anonymous_share: float = 0.9
    user_topics_per_min_max: int = 1000
    empty_topic_s: float = 3600.0
    retained_max: int = 1_000_000
    retained_bytes_max: int = 256 << 20
    filters_max: int = 1_000_000
    shares_max: int = 100_000
    share_unsettled_max: int = 65_536
    share_lease_s: float = 15.0
    sessions_max: int = 1_000_000
    sessions_bytes_max: int = 512 << 20
    groups_max: int = 100_000
    timers_bytes_max: int = 1 << 30
    halves_max: int = 100_000
    halves_bytes_max: int = 1 << 30
    half_check_after_s: float = 6.0
    half_checks_max: int = 15
    retry_delays_s: tuple[float, ...] = RETRY_DELAYS_S
    pull_bytes_max: int = 4 << 20
    trace_rows_per_s_max: int = 1_000
    trace_kept_s: int = 86_400
    audit_kept_s: int = 7_776_000
    filter_bodies: tuple[str, ...] = ()
    connection_log: str = "sampled"
    trace_export: str = ""
    held_bytes_max: int = HELD_BYTES_MAX
    lease_s: float = 120.0
    register_every_s: float = 30.0
    owner_lease_s: float = 120.0
    handover_wait_s: float = 10.0
    flush_after_s: float = 0.1
    flush_bytes: int = 4 << 20
    quick_sync_s: float = 0.001
    reader_silence_s: float = 7 * 24 * 3600.0
    segment_bytes: int = 1 << 30
    reserve_step_bytes: int = 16 << 20
    ahead_bytes: int = 64 << 20
    emergency_bytes: int = 4 << 20
    chunk_bytes: int = 16 << 20
    retention_bytes: int = 0
    retention_s: float = 3 * 24 * 3600.0
    fresh_bytes: int = 1 << 20
    seal_after_s: float = 0.05
    status_host: str = "127.0.0.1"
    status_port: int = -1
    status_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name has 1 to 255 characters of A-Z a-z 0-9 . _ -, not {self.name!r}")
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is from 0 to 65535, not {self.port}")
        self.check_access(self.host, NATIVE)
        if self.status_port >= 0:
            self.check_pages("status_host", self.status_host)
        if self.default_level not in ("", *self.levels):
            raise ValueError(f"default_level is one of {', '.join(self.levels)}, not {self.default_level!r}")
        self._check_copies()
        if not 1 <= self.default_queues <= self.queues_max <= QUEUES_MAX:
            raise ValueError(f"1 <= default_queues <= queues_max <= {QUEUES_MAX} must hold")
        if self.segment_bytes < SEGMENT_BYTES_MIN:
            raise ValueError(f"segment_bytes is at least {SEGMENT_BYTES_MIN}, not {self.segment_bytes}")
        if not 0 < self.register_every_s < self.lease_s:
            raise ValueError("register_every_s is more than 0 and less than lease_s")
        if not 0 <= self.topics_anonymous_share <= 1:
            raise ValueError(f"topics_anonymous_share is from 0 to 1, not {self.topics_anonymous_share}")
        check_detail(self.connection_log)
        if not self.retry_delays_s or min(self.retry_delays_s) < 0:
            raise ValueError(f"retry_delays_s has at least one delay, and none below 0, not {self.retry_delays_s}")
        for setting in _NOT_NEGATIVE:
            if getattr(self, setting) < 0:
                raise ValueError(f"{setting} is at least 0, not {getattr(self, setting)}")
        for setting in _POSITIVE:
            if getattr(self, setting) <= 0:
                raise ValueError(f"{setting} is more than 0, not {getattr(self, setting)}")

    def _check_copies(self) -> None:
        if not -1 <= self.replica_port <= 65_535:
            raise ValueError(f"replica_port is from 0 to 65535, or -1 for none, not {self.replica_port}")
        if self.has_copies and not _NAME.fullmatch(self.node):
            raise ValueError(
                f"node has 1 to 255 characters of A-Z a-z 0-9 . _ - where there are copies, not {self.node!r}"
            )
        if self.join and not self.has_copies:
            raise ValueError("join is set, and replica_port is not: other nodes could not reach this one")

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
        return StoreSettings(
            segment_bytes=self.segment_bytes,
            reserve_step_bytes=self.reserve_step_bytes,
            ahead_bytes=self.ahead_bytes,
            emergency_bytes=self.emergency_bytes,
            chunk_bytes=self.chunk_bytes,
            retention_bytes=self.retention_bytes,
            retention_s=self.retention_s,
            fresh_bytes=self.fresh_bytes,
            seal_after_s=self.seal_after_s,
        )
