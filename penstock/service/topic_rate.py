"""How many topics the messages of one peer may make in a minute.

A topic stays for long, so a client that makes up names could use up a broker's topics. Each user has a rate; peers
without a user name count by their address. Pure.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import Busy
from penstock.service.buckets import Buckets, host_of

MINUTE_S: Final = 60


class TopicRate:
    """The topics that messages make at one server.

    Args:
        per_min_max: of each peer, in a minute and in one burst; 0: no limit.
        setting: the name of the setting that says so.
    """

    def __init__(self, per_min_max: int, setting: str = "user_topics_per_min_max") -> None:
        self._per_min_max = per_min_max
        self._setting = setting
        self._peers = Buckets(per_min_max / MINUTE_S, per_min_max)

    def take(self, peer: str, now: float) -> None:
        """Counts one topic that a peer makes. Raises ``Busy`` above the limit."""
        if not self._peers.take(peer, now):
            raise Busy(
                f"messages of {peer} make more than {self._per_min_max} topics in a minute "
                f"({self._setting}): `penstock topic create` makes others"
            )


def peer_of(user: str, host: str) -> str:
    """The name under which a peer is counted, and called in errors."""
    return f"user {user}" if user else f"address {host_of(host)}"
