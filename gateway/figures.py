"""Figures of a gateway, read on request: counters since its start, and gauges.

docs/guide/metrics.md lists the names; the ones that devices of each listener count up have its name as a label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.build import Gateway
from gateway.health import Health
from gateway.login.access import Access
from gateway.login.verifier import Verifier
from penstock.service.metrics import with_label


class Figures:
    """The figures of one gateway."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        health: Health | None = None,
        access: Access | None = None,
        verifier: Verifier | None = None,
        certificates: Callable[[], Mapping[str, float]] = dict,
        clock: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """``certificates`` and ``clock``: the figures of listeners and of the clock, by metric name."""
        self._gateway = gateway
        self._health = health
        self._access = access
        self._verifier = verifier
        self._certificates = certificates
        self._clock = clock

    def read(self) -> dict[str, float]:
        """All of them, by metric name."""
        refused = {f"gateway_refused_{limit}_total": count for limit, count in self._gateway.quotas.refused.items()}
        counted = self._of_all() | self._gateway.connections.counters.by_listener() | refused | self._logins()
        return {**counted, **self._latencies(), **self._certificates(), **self._clock()}

    def _latencies(self) -> dict[str, float]:
        gateway = self._gateway
        return {
            **gateway.connections.admitted_s.figures("gateway_connect_seconds"),
            **gateway.upstream.stored_s.figures("gateway_publish_seconds"),
            **gateway.downstream.sending.waited_s.figures("gateway_delivery_seconds"),
            **gateway.downstream.sending.travelled_s.figures("gateway_end_to_end_seconds"),
        }

    def _logins(self) -> dict[str, int]:
        access = self._access
        if access is None or self._verifier is None:
            return {}
        return {
            "gateway_access_files_failed_total": self._verifier.failures,
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
        return self._of_all() | self._gateway.connections.counters.sums()

    def _of_all(self) -> dict[str, int]:
        gateway = self._gateway
        connections, services = gateway.connections, gateway.services
        upstream, downstream, sessions = gateway.upstream, gateway.downstream, gateway.sessions
        return {
            "gateway_connections": len(connections),
            "gateway_connections_most": connections.counters.most_connected,
            "gateway_connections_half_open": connections.half_open,
            "gateway_connections_failed_total": (
                sum([shard.failures for shard in gateway.shards]) + downstream.failures + connections.failures
            ),
            "gateway_sessions": len(sessions),
            "gateway_sessions_refused_total": gateway.home.refused,
            "gateway_subscriptions": sum([len(session.subscriptions) for session in sessions.values()]),
            "gateway_filters_open": downstream.filters_open,
            "gateway_filters_refused_total": downstream.refused,
            "gateway_appends_total": upstream.appends,
            "gateway_published_total": upstream.stored,
            "gateway_publish_dropped_total": upstream.dropped,
            "gateway_publish_unauthorized_total": upstream.unauthorized,
            "gateway_unanswered": upstream.unanswered,
            "gateway_held": int(upstream.is_held),
            "gateway_unfinished_bytes": services.room.unfinished,
            "gateway_untaken_bytes": services.room.untaken,
            "gateway_unstored_bytes": services.room.unstored,
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
            "gateway_logins_expired_total": connections.timeouts.expired + gateway.removals.count,
            "gateway_takeovers_total": gateway.takeovers.count,
            "gateway_paced": services.pacing.waiting,
            "gateway_subscribing": services.turns.waiting,
            "gateway_brokers_away": self._health.brokers_away if self._health is not None else 0,
        }
