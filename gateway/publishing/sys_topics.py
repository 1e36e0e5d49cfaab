"""A gateway's figures under ``$SYS``: retained messages, published at an interval.

Each value is a message of its own, ``$SYS/brokers/NAME/clients/connected`` and so on; the last levels are mosquitto's
where they mean the same. They take the ordinary way to the broker, into the topic of the first level, which is made
with the level ``cache`` because a lost value is published again. A value expires after three intervals, so that one of
a gateway that is gone does not outlive it for long; at a clean stop it is taken back at once. Clients never publish
here (``topicmap.names.is_reserved``), nor do native producers: each value says which gateway tells it, and the broker
refuses one that does not. A wildcard in the first level never matches (MQTT-4.7.2-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.messages.envelope import record_properties
from gateway.publishing.broker_batch import NameRoute
from gateway.publishing.upstream import Upstream
from penstock.protocol.message import FLAG_RETAIN
from penstock.version import VERSION

_EXPIRY_INTERVALS: Final = 3

# Last levels of the topic name -> the figure that they tell (``gateway.figures.Figures``).
TOLD: Final[Mapping[str, str]] = {
    "clients/connected": "gateway_connections",
    "clients/maximum": "gateway_connections_most",
    "subscriptions/count": "gateway_subscriptions",
    "messages/received": "gateway_packets_in_total",
    "messages/sent": "gateway_packets_out_total",
    "publish/messages/received": "gateway_publications_in_total",
    "publish/messages/sent": "gateway_publications_out_total",
    "publish/messages/dropped": "gateway_delivery_dropped_total",
    "bytes/received": "gateway_bytes_in_total",
    "bytes/sent": "gateway_bytes_out_total",
}


class SysTopics:
    """The values of one gateway. ``prefix`` may hold ``{name}``."""

    def __init__(self, upstream: Upstream, prefix: str, name: str, every_s: float, now: float) -> None:
        self._upstream = upstream
        self._name = name
        self._prefix = prefix.replace("{name}", name)
        self._every_s = every_s
        self._started = now
        self._due = now
        self._routes: dict[str, NameRoute] = {}

    def is_due(self, now: float) -> bool:
        """Whether values are to be told; to be asked about twice a second."""
        return self._every_s > 0 and now >= self._due

    def tell(self, figures: Mapping[str, float], now: float) -> None:
        """Publishes all values; none while nothing leaves this gateway, because they would stay queued."""
        self._due = now + self._every_s
        if self._upstream.is_held:
            return
        self._publish("version", f"penstock version {VERSION}")
        self._publish("uptime", f"{int(now - self._started)} seconds")
        for tail, figure in TOLD.items():
            if figure in figures:
                self._publish(tail, str(int(figures[figure])))

    def take_back(self) -> None:
        """The gateway stops: its values are no longer retained."""
        for tail in self._routes:
            self._publish(tail, "")

    def _publish(self, tail: str, value: str) -> None:
        route = self._routes.get(tail)
        if route is None:
            route = self._routes[tail] = self._upstream.route(f"{self._prefix}/{tail}", "")
        expiry_s = max(1, int(self._every_s * _EXPIRY_INTERVALS))
        properties = record_properties(route.name, route.key, self._name, expiry_s)
        self._upstream.publish(None, route, value.encode(), FLAG_RETAIN, b"", properties)
