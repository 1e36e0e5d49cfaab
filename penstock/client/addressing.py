"""Where a client's name servers are.

A program says their addresses; if it does not, the environment variable ``PENSTOCK_SERVER`` does, and else they are on
this machine. In place of addresses there may be one URL, ``http://host:port/path``: an address server, whose answer is
the list of them, separated by commas, semicolons or white space. It is asked at the first use and again every two
minutes; while it does not answer, or its answer is no list, the last list counts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

from penstock.errors import InvalidConfig, Unavailable
from penstock.protocol.addresses import SERVERS, parse_servers
from penstock.world import Clock, RealClock

VARIABLE: Final = "PENSTOCK_SERVER"
FRESH_S: Final = 120.0
RETRY_S: Final = 5.0
FETCH_S: Final = 3.0
LIST_BYTES_MAX: Final = 1 << 16
_SCHEMES: Final = ("http://", "https://")
_log = logging.getLogger(__name__)


class NameServers:
    """The name servers of one client.

    Attributes:
        addresses: those that are known; none before the first ``fetch`` where an address server has them.
    """

    def __init__(self, servers: str | Sequence[str], clock: Clock) -> None:
        """Raises ``InvalidConfig`` for what is no address."""
        given = os.environ.get(VARIABLE, "") or servers if servers == SERVERS else servers
        self._clock = clock
        self._url = given.strip() if isinstance(given, str) and given.strip().startswith(_SCHEMES) else ""
        self._fetched_until = clock.monotonic()
        self.addresses: tuple[str, ...] = () if self._url else parse_servers(given)

    @property
    def is_due(self) -> bool:
        """Whether the address server is to be asked: ``fetch`` blocks."""
        return bool(self._url) and self._clock.monotonic() >= self._fetched_until

    def fetch(self) -> None:
        """Asks the address server. Raises ``Unavailable`` or ``InvalidConfig`` where no list is known."""
        try:
            self.addresses = parse_servers(",".join(_read(self._url).replace(";", " ").replace(",", " ").split()))
            self._fetched_until = self._clock.monotonic() + FRESH_S
        except (Unavailable, InvalidConfig) as error:
            if not self.addresses:
                raise
            _log.warning("the address server %s gives no list, the last one counts: %s", self._url, error)
            self._fetched_until = self._clock.monotonic() + RETRY_S


def check_servers(servers: object) -> None:
    """Raises ``InvalidConfig`` unless a program gave addresses or a URL."""
    NameServers(servers, RealClock())  # type: ignore[arg-type]  # it checks the type


def _read(url: str) -> str:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=FETCH_S) as answer:
            return str(answer.read(LIST_BYTES_MAX).decode())
    except HTTPError as error:
        error.close()
        raise Unavailable(f"the address server {url} does not answer: {error}") from None
    except (OSError, HTTPException, UnicodeError, ValueError) as error:
        raise Unavailable(f"the address server {url} does not answer: {error}") from None
