"""The settings of a server that an operator changes while it runs.

They are a list, each with the function that checks and takes a value. No other name is taken, and no value is a path, a
command or code. A change of a broker or name server lasts until it starts again. Those of all gateways are entries of
the name servers' key-value store, which check them, and which gateways ask (``gateway/live.py``). Pure but for the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from penstock.errors import InvalidConfig, InvalidRequest
from penstock.service.paced_lines import check_detail
from penstock.service.process_log import LogSettings, level_now, set_level

_SHOWN_CHARACTERS: Final = 60
Takers = Mapping[str, Callable[[str], object]]

_log = logging.getLogger(__name__)


class LiveSettings:
    """The changeable settings of a server.

    Args:
        connection_log: takes a new detail of that log.
        own_detail: the detail that the server began with.
    """

    def __init__(self, connection_log: Callable[[str], object], own_detail: str) -> None:
        self._takers: Takers = {"connection_log": connection_log, "log_level": set_level}
        self._own = {"connection_log": own_detail, "log_level": level_now()}

    def change(self, name: str, value: str) -> None:
        """Changes one setting; an empty value is the one that the server began with. Raises ``InvalidRequest``."""
        changed = value or self._own.get(name, "")
        _take(self._takers, name, changed)
        _log.warning("%s is %s now%s", name, changed, ", until the next start" if value else ", its own again")


def _take(takers: Takers, name: str, value: str) -> None:
    taker = takers.get(name)
    if taker is None:
        known = ", ".join(takers)
        raise InvalidRequest(f"{name[:_SHOWN_CHARACTERS]!r} does not change while a server runs; {known} do")
    try:
        taker(value[:_SHOWN_CHARACTERS])
    except InvalidConfig as error:
        raise InvalidRequest(f"{name}: {error.message}", hint=error.hint) from None


def check_gateways(name: str, value: str) -> None:
    """Raises ``InvalidRequest`` for what is no changeable setting of gateways, or no value of it."""
    _take(_OF_GATEWAYS, name, value)


def share_of(value: str) -> float:
    """A part, 0 to 1. Raises ``InvalidConfig``."""
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidConfig(f"{value!r} is no part", hint="it is a number from 0 to 1")
    return share


_OF_GATEWAYS: Final[Takers] = {"connection_log": check_detail, "log_level": LogSettings, "trace_sample": share_of}
