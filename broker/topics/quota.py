"""The rate at which native clients create topics by their messages.

A topic stays for long, so a client that makes up names could use up a broker's topics. Each user has a rate; clients
without a user name count by their address. Users with all rights are not counted: services of the cluster, whose
gateways count their own clients, and clients at a port without logins. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.service.guard import Asker
from penstock.service.topic_rate import TopicRate, peer_of

Asking = Callable[[], Asker | None]
"""The client whose request is carried out now, ``None`` for one that is not counted."""


class TopicQuota:
    """The topics that messages make at one broker. ``per_min_max``: of one user, each minute and at once; 0: no limit.
    ``asker``: who makes them."""

    def __init__(self, per_min_max: int, asker: Asking) -> None:
        self._asker = asker
        self._rate = TopicRate(per_min_max)

    def take(self, now_ms: int) -> bool:
        """Counts one topic. Returns whether a client without a user name makes it. Raises ``Busy`` above the limit."""
        asker = self._asker()
        if asker is None:
            return False
        self._rate.take(peer_of(asker.user, asker.host), now_ms / 1000)
        return not asker.user
