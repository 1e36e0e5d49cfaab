"""The requests that the event bridge serves: for a name of this machine, and not from a web page of another origin.

``logins.py`` finds their users. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from events.problems import Problem
from penstock.service.status import host_of, is_here


class Callers:
    """Judges requests. ``hosts``: names that a Host header may have beside this machine's own, ``*`` for any."""

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self._hosts = frozenset(host_of(one) for one in hosts)

    def check(self, scope: Mapping[str, Any]) -> None:
        """Raises ``Problem`` for an ASGI request that is not served."""
        if not is_here(scope, self._hosts):
            raise Problem(421, "wrong-host", "this host is not served here: the setting hosts lists others")
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin", "")
        if origin and urlsplit(origin).netloc.lower() != headers.get(b"host", "").lower():
            raise Problem(403, "wrong-origin", "a web page of another origin may not send requests here")
