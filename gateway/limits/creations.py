"""The rate at which clients create topics by the first message under a new first level.

A topic stays for long, so a client that makes up first levels could use up a broker's topics. Each client has a rate,
and each user; clients without a user name count by their address, because they choose their ids. Only a topic that no
broker has is counted, when it is about to be created. Pure.
"""

from __future__ import annotations

from gateway.limits.quotas import Quotas
from gateway.settings import GatewaySettings
from penstock.errors import Busy
from penstock.protocol.requests.topics import DescribeTopic
from penstock.service.buckets import Buckets, host_of


class Creations:
    """The topics that the clients of one gateway make."""

    def __init__(self, settings: GatewaySettings, quotas: Quotas) -> None:
        self._quotas = quotas
        clients, users = settings.client_topics_per_min_max, settings.user_topics_per_min_max
        self._clients = Buckets(clients / 60, clients)
        self._users = Buckets(users / 60, users)

    def take(self, topic: str, client_id: str, user: str, address: str, now: float) -> DescribeTopic | Busy:
        """Counts one topic. The request with which it is made, or the error for a client or a user that has made too
        many; ``address``: of a client without a user name."""
        whose = f"user {user}" if user else f"address {host_of(address)}"
        if not self._users.has(whose, now):
            return Busy(self._quotas.refuse("user_topics_per_min_max").why)
        if not self._clients.take(client_id, now):
            return Busy(self._quotas.refuse("client_topics_per_min_max").why)
        self._users.spend(whose, now)
        return DescribeTopic(topic, create=True, is_anonymous=not user)
