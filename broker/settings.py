"""Settings of the broker, the store's included. docs/guide/operator.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.store.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How one broker runs.

    Attributes:
        name: unique among the brokers of a cluster.
        host, port: where it listens; port 0 takes any free one.
        advertise: "host:port" that clients are told to use; empty for where it listens.
        data: folder of all durable state.
        namesrv: addresses of all name servers; it registers with each.
        default_queues, default_level: of topics that are created without saying.
        auto_create_topics: whether a message to an unknown topic creates it.
        queues_max, topics_max: limits of a topic and of the broker.
        retained_max, retained_bytes_max: limits of retained messages.
        filters_max: open MQTT filters.
        pull_bytes_max: the most that one pull is answered with.
        lease_s, register_every_s: lease with the name servers and how often it is renewed.
        owner_lease_s: after this long without a word from a gateway, the filters that only it holds are closed.
    """

    name: str = "broker-a"
    host: str = "127.0.0.1"
    port: int = 10911
    advertise: str = ""
    data: Path = Path("penstock-data")
    namesrv: tuple[str, ...] = ("127.0.0.1:9876",)
    default_queues: int = 4
    default_level: str = "disk"
    auto_create_topics: bool = True
    queues_max: int = 1024
    topics_max: int = 10_000
    retained_max: int = 1_000_000
    retained_bytes_max: int = 256 << 20
    filters_max: int = 1_000_000
    pull_bytes_max: int = 4 << 20
    lease_s: float = 120.0
    register_every_s: float = 30.0
    owner_lease_s: float = 120.0
    segment_bytes: int = 1 << 30
    reserve_step_bytes: int = 16 << 20
    emergency_bytes: int = 4 << 20
    chunk_bytes: int = 64 << 20
    retention_bytes: int = 0
    retention_s: float = 3 * 24 * 3600.0
    seal_after_s: float = 0.05

    def store(self) -> StoreSettings:
        """The store's part of these settings."""
        return StoreSettings(
            segment_bytes=self.segment_bytes,
            reserve_step_bytes=self.reserve_step_bytes,
            emergency_bytes=self.emergency_bytes,
            chunk_bytes=self.chunk_bytes,
            retention_bytes=self.retention_bytes,
            retention_s=self.retention_s,
            seal_after_s=self.seal_after_s,
        )
