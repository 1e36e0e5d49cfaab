"""What CONNECT and SUBSCRIBE ask for beyond the standard, in their user properties.

In a CONNECT ``penstock-level`` is ``true`` or ``false``: whether acknowledgements are to say the level that a message
has reached.

In a SUBSCRIBE ``penstock-start`` says from where on its filters are wanted: ``beginning``, ``last=N``, ``time=T``
(milliseconds since 1970, or ISO 8601), ``offset=N`` (in every queue of the topic) or ``offset=QUEUE:N`` (again for each
queue), or ``named=NAME``, a position that the server keeps. A new named position begins where a second
``penstock-start`` says, or now. ``penstock-place`` is ``true`` or ``false``: whether each message says where it is
stored.

docs/guide/device.md is the page of this; whatever differs from it is refused, a property that begins with ``penstock-``
and is none of these too, so that a slip of the pen never means "from now on". Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.mqtt.connection import LEVEL

PREFIX: Final = "penstock-"
START: Final = "penstock-start"
PLACE: Final = "penstock-place"
EVERY_QUEUE: Final = -1
NAME_BYTES_MAX: Final = 255
_QUOTED_CHARS_MAX: Final = 60
LAST_MAX: Final = 4096
"""Number of messages that ``last=N`` may ask for: their beginning is looked for in memory."""
_MOST: Final = (1 << 63) - 1

NOW: Final = "now"
BEGINNING: Final = "beginning"
OFFSET: Final = "offset"
TIME: Final = "time"
LAST: Final = "last"
NAMED: Final = "named"


class InvalidOption(ValueError):
    """An option that is none; the message says what it may be."""


class Start(NamedTuple):
    """Beginning of a subscription.

    Attributes:
        kind: ``now``, ``beginning``, ``offset``, ``time`` or ``last``: where a queue begins of which ``name`` says
            nothing.
        number: the time in milliseconds, or how many.
        offsets: queue id (or ``EVERY_QUEUE``) and offset.
        name: of the position that is kept, or empty.
    """

    kind: str
    number: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    name: str = ""


class Options(NamedTuple):
    """``start`` is ``None`` where the SUBSCRIBE does not speak of it."""

    start: Start | None = None
    shows_place: bool = False


PLAIN: Final = Options()


def asks_for_level(user_properties: Sequence[tuple[str, str]]) -> bool:
    """Whether a CONNECT asks for the level in acknowledgements. Raises ``InvalidOption``."""
    asks = False
    for name, value in user_properties:
        if name == LEVEL:
            asks = _flag(name, value)
        elif name.startswith(PREFIX):
            raise InvalidOption(f"a CONNECT has no option {name[:_QUOTED_CHARS_MAX]}; there is {LEVEL}")
    return asks


def read_options(user_properties: Sequence[tuple[str, str]]) -> Options:
    """The options among a SUBSCRIBE's user properties. Raises ``InvalidOption``."""
    starts: list[str] = []
    shows_place = False
    for name, value in user_properties:
        if name == START:
            starts.append(value)
        elif name == PLACE:
            shows_place = _flag(name, value)
        elif name.startswith(PREFIX):
            raise InvalidOption(f"a SUBSCRIBE has no option {name[:_QUOTED_CHARS_MAX]}; there are {START} and {PLACE}")
    return Options(_start(starts) if starts else None, shows_place)


def _start(values: Sequence[str]) -> Start:
    start = Start(NOW)
    for value in values:
        kind, _, said = value.partition("=")
        if kind == NAMED:
            if start.name:
                raise InvalidOption("only one position can be named")
            start = start._replace(name=_name(said))
        elif kind == OFFSET and start.kind in (NOW, OFFSET):
            start = start._replace(kind=OFFSET, offsets=(*start.offsets, _offset(said)))
        elif start.kind != NOW:
            raise InvalidOption(f"{START} begins at {start.kind} or at {kind}, not at both")
        elif value == BEGINNING:
            start = start._replace(kind=BEGINNING)
        elif kind == TIME:
            start = start._replace(kind=TIME, number=_time_ms(said))
        elif kind == LAST:
            start = start._replace(kind=LAST, number=_number(said, "last", LAST_MAX))
        else:
            raise InvalidOption(
                f"{START} is beginning, last=N, time=T, offset=N, offset=QUEUE:N or named=NAME, not {_cut(value)}"
            )
    return start


def _cut(said: str) -> str:
    """The valid part of the options."""
    return repr(said if len(said) <= _QUOTED_CHARS_MAX else said[:_QUOTED_CHARS_MAX] + "...")


def _flag(name: str, said: str) -> bool:
    if said not in ("true", "false"):
        raise InvalidOption(f"{name} is true or false, not {_cut(said)}")
    return said == "true"


def _name(said: str) -> str:
    if not said.isprintable() or not 0 < len(said.encode()) <= NAME_BYTES_MAX:
        raise InvalidOption(f"the name of a position has 1 to {NAME_BYTES_MAX} bytes, all of them printable")
    return said


def _offset(said: str) -> tuple[int, int]:
    queue, colon, offset = said.rpartition(":")
    return (_number(queue, "the queue of an offset") if colon else EVERY_QUEUE, _number(offset, "offset"))


def _number(said: str, what: str, most: int = _MOST) -> int:
    if not said.isascii() or not said.isdigit() or len(said) > 19 or int(said) > most:
        raise InvalidOption(f"{what} is a number from 0 {'on' if most == _MOST else f'to {most}'}, not {_cut(said)}")
    return int(said)


def _time_ms(said: str) -> int:
    if said.isdigit():
        return _number(said, "time")
    try:
        moment = datetime.datetime.fromisoformat(said)
    except ValueError:
        raise InvalidOption(
            f"time is in milliseconds since 1970, or like 2026-01-31T12:00:00Z, not {_cut(said)}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0, int(moment.timestamp() * 1000))
