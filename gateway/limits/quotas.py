"""The limits that a client can reach: their settings, their reason codes, and how often each was reached.

This is the only place that counts refusals. The table is data; the caller decides what happens at the limit.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gateway.mqtt.reason_codes import Told

# Limit -> MQTT 5 reason code. Each is also the name of the field of ``GatewaySettings`` that holds the number.
REASONS: Final = MappingProxyType(
    {
        "connections_max": 0x97,
        "half_open_max": 0x97,
        "subscriptions_max": 0x97,
        "replays_max": 0x97,
        "share_members_max": 0x97,
        "client_id_bytes_max": 0x85,
        "keep_alive_s_max": 0x87,
        "qos_max": 0x9B,
        "packet_bytes_max": 0x95,
        "connect_packet_bytes_max": 0x95,
        "held_bytes_max": 0x97,
        "receive_max": 0x93,
        "topic_alias_max": 0x94,
        "connect_wait_s": 0x82,
        "stalled_s_max": 0x97,
        "address_connections_max": 0x97,
        "user_properties_max": 0x97,
        "user_properties_bytes_max": 0x97,
        "filters_per_packet_max": 0x97,
        "topic_levels_max": 0x90,
        "messages_per_s_max": 0x96,
        "bytes_per_s_max": 0x96,
        "connects_per_s_max": 0x9F,
        "address_connects_per_s_max": 0x9F,
        "address_failed_logins_per_min_max": 0x9F,
        "takeovers_per_min_max": 0x9F,
        "client_topics_per_min_max": 0x97,
        "user_topics_per_min_max": 0x97,
    }
)


class Quotas:
    """Counts refusals by limit."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused: dict[str, int] = dict.fromkeys(REASONS, 0)

    def refuse(self, limit: str) -> Told:
        """Counts one refusal and returns its reason code, which names the limit."""
        self.refused[limit] += 1
        return Told(REASONS[limit], f"the limit {limit} is reached")
