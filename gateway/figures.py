"""Figures of a gateway, read on request: counters since its start, and gauges.

docs/guide/metrics.md lists the names; the ones that devices of each listener count up have its name as a label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gateway.devices.reception import Reception
from gateway.downstream import Downstream
from gateway.health import Health
from gateway.limits.quotas import Quotas
from gateway.login.access import Access
from gateway.login.verifier import Verifier
from gateway.publishing.upstream import Upstream
from gateway.shards.shard import Shard
from penstock.service.metrics import with_label


class Figures:
    """The figures of one gateway."""

    __slots__ = (
        "_downstream",
        "_quotas",
        "_reception",
        "_upstream",
        "access",
        "certificates",
        "clock",
        "health",
        "shards",
        "verifier",
    )

    def __init__(self, reception: Reception, upstream: Upstream, downstream: Downstream, quotas: Quotas) -> None:
        self._reception = reception
        self._upstream = upstream
        self._downstream = downstream
        self._quotas = quotas
        self.access: Access | None = None
        self.verifier: Verifier | None = None
        self.health: Health | None = None
        self.certificates: Callable[[], Mapping[str, float]] = dict
        self.clock: Callable[[], Mapping[str, float]] = dict
        self.shards: Sequence[Shard] = ()

    def read(self) -> dict[str, float]:
        """All of them, by metric name."""
        refused = {f"gateway_refused_{limit}_total": count for limit, count in self._quotas.refused.items()}
        counted = self._of_all() | self._reception.tallies.by_listener() | refused | self._logins()
        return {**counted, **self.certificates(), **self.clock()}

    def _logins(self) -> dict[str, int]:
        access = self.access
        if access is None or self.verifier is None:
            return {}
        return {
            "gateway_access_files_failed_total": self.verifier.failures,
            "gateway_logins_checked_total": access.checked,
            "gateway_logins_remembered_total": access.remembered,
            "gateway_logins_proven_total": access.proven,
            "gateway_logins_tokens_total": access.tokens,
            "gateway_logins_busy_total": access.busy,
            "gateway_logins_unchecked_total": access.unchecked,
        } | {
            with_label("gateway_logins_refused_total", "cause", cause): n
            for cause, n in access.attempts.refused.items()
        }

    def sums(self) -> dict[str, int]:
        """Those of the whole gateway, listeners taken together."""
        return self._of_all() | self._reception.tallies.sums()

    def _of_all(self) -> dict[str, int]:
        reception, upstream, downstream = self._reception, self._upstream, self._downstream
        return {
            "gateway_connections": reception.connections,
            "gateway_connections_most": reception.tallies.most_connected,
            "gateway_connections_half_open": reception.half_open,
            "gateway_connections_failed_total": (
                sum([shard.failures for shard in self.shards]) + downstream.failures + reception.failures
            ),
            "gateway_sessions": len(reception.sessions),
            "gateway_sessions_refused_total": reception.home.refused,
            "gateway_subscriptions": sum([len(session.subscriptions) for session in reception.sessions.values()]),
            "gateway_filters_open": downstream.filters_open,
            "gateway_filters_refused_total": downstream.refused,
            "gateway_appends_total": upstream.appends,
            "gateway_published_total": upstream.stored,
            "gateway_publish_dropped_total": upstream.dropped,
            "gateway_publish_unauthorized_total": upstream.unauthorized,
            "gateway_unanswered": upstream.unanswered,
            "gateway_held": int(upstream.is_held),
            "gateway_unfinished_bytes": reception.room.unfinished,
            "gateway_untaken_bytes": reception.room.untaken,
            "gateway_unstored_bytes": reception.room.unstored,
            "gateway_delivered_total": downstream.sending.delivered,
            "gateway_delivery_dropped_total": downstream.sending.dropped + downstream.shared.dropped,
            "gateway_delivery_lost_total": downstream.lost,
            "gateway_shares": len(downstream.shared),
            "gateway_shared_settled_total": downstream.shared.settled,
            "gateway_shared_returned_total": downstream.shared.returned,
            "gateway_replays": len(downstream.replays),
            "gateway_replayed_total": downstream.replays.replayed,
            "gateway_position_commits_total": downstream.positions.commits,
            "gateway_position_commits_refused_total": downstream.positions.refused,
            "gateway_logins_expired_total": reception.patience.expired + reception.removals.count,
            "gateway_takeovers_total": reception.takeovers.count,
            "gateway_paced": reception.pacing.waiting,
            "gateway_subscribing": reception.turns.waiting,
            "gateway_brokers_away": self.health.brokers_away if self.health is not None else 0,
        }
