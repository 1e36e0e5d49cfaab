"""Who sends a request, and whether it may: the one place where the HTTP face asks.

There are no users yet: the port listens on loopback, or where the operator says `insecure`, and every caller may do
everything. A request that a web page makes for another origin is refused. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from events.problems import Problem
from penstock.service.status import ANY_HOST, host_of, is_own

ANYBODY: Final = "anybody"


class Callers:
    """Judges requests. ``hosts``: names that a Host header may have beside this machine's own, ``*`` for any."""

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self._hosts = frozenset(host_of(one) for one in hosts)

    def check(self, headers: Mapping[str, str], at: str) -> str:
        """The caller's name. ``headers``: names in lower case; ``at``: the address that the connection came to. Raises
        ``Problem``."""
        host = headers.get("host", "")
        if host and not self._is_here(host_of(host), at):
            raise Problem(421, "wrong-host", "this host is not served here: the setting hosts lists others")
        origin = headers.get("origin", "")
        if origin and urlsplit(origin).netloc.lower() != host.lower():
            raise Problem(403, "wrong-origin", "a web page of another origin may not send requests here")
        return ANYBODY

    def _is_here(self, host: str, at: str) -> bool:
        return ANY_HOST in self._hosts or host in self._hosts or is_own(host, at)
