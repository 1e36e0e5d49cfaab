"""Legal MQTT topic names and topic filters, and the match between them.

Nothing is normalised: ``a/b``, ``a/b/`` and ``/a/b`` are different names (MQTT-4.7.3-4). Work is linear in the length
of the input and never recursive. Beyond the standard, names and filters have a limit of levels and bytes, and control
characters are refused, which the standard allows a server to do (MQTT 1.5.4).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NAME_BYTES_MAX: Final = 65_535
"""Of a name or filter: the most that a string of MQTT has."""
SHORT_BYTES_MAX: Final = 1024
"""Longer names and filters are legal. They are remembered nowhere and count several times where filters are counted, so
that they take no more memory than short ones."""
SHARE_BYTES_MAX: Final = 1024
"""Of the name of a share's group."""
LEVELS_MAX: Final = 128
SHARE_PREFIX: Final = "$share/"
ORDERED_PREFIX: Final = "$oshare/"
SYS_LEVEL: Final = "$SYS"
"""First level of the names under which only gateways publish."""

EVENTS_LEVEL: Final = "$events"
"""First level of the names under which event bridges keep their configuration; no client reads them either."""

REPLY_LEVEL: Final = "$reply"
"""First level of the names of answers, ``$reply/`` and who asked."""
P2P_LEVEL: Final = "$p2p"
"""First level of the names that each stand for one device: ``$p2p/CLIENT``."""

_QUOTED_MAX: Final = 100
_AFTER_SLASH: Final = chr(ord("/") + 1)
_REFUSED: Final = re.compile(r"[\u0000-\u001f\u007f-\u009f\ud800-\udfff]")


class InvalidName(ValueError):
    """A string that is no legal topic name, filter or topic; the message says which rule it breaks."""


class Share(NamedTuple):
    """A shared subscription: members of ``group`` divide what matches ``filter`` (MQTT 5, 4.8.2). ``is_ordered``: what
    has one key goes to one member, in order, as long as some of it is on its way."""

    group: str
    filter: str
    is_ordered: bool = False


def check_name(name: str) -> None:
    """Raises ``InvalidName`` unless a message may be published under ``name``."""
    _check_text(name, "topic name")
    if "+" in name or "#" in name:
        raise InvalidName("a topic name must not hold the wildcards + and # (MQTT-3.3.2-2)")


def is_level(name: str) -> bool:
    """Whether a message may be published under a name that has one level."""
    try:
        check_name(name)
    except InvalidName:
        return False
    return "/" not in name


def is_reserved(name: str) -> bool:
    """Whether only services of the cluster publish under this topic name."""
    return name.partition("/")[0] in (SYS_LEVEL, EVENTS_LEVEL)


def device_name(client_id: str) -> str:
    """The name under which one device gets its own messages. Raises ``InvalidName`` where its client id is no level of
    a name."""
    if not is_level(client_id):
        raise InvalidName("a level of a name has no / + # and no control characters")
    return f"{P2P_LEVEL}/{client_id}"


def is_other_device(filter: str, client_id: str) -> bool:
    """Whether a filter may match what is for other devices than this client, or answers to others. A filter that begins
    with a wildcard does not: it matches no name that begins with ``$`` (MQTT-4.7.2-1)."""
    level, _, rest = filter.partition("/")
    if level == REPLY_LEVEL:
        return rest != client_id and not rest.startswith(client_id + "/")
    return level == P2P_LEVEL and rest != client_id


def is_reply(name: str) -> bool:
    """Whether a name is that of answers, which their sender was told."""
    return name.startswith(REPLY_LEVEL + "/")


def check_filter(filter: str) -> None:
    """Raises ``InvalidName`` unless ``filter`` may be subscribed to (a plain filter, not a ``$share`` one)."""
    _check_text(filter, "topic filter")
    if "#" in filter:
        at = filter.index("#")
        if at != len(filter) - 1:
            raise InvalidName("# must be the last character of a filter (MQTT-4.7.1-1)")
        if at and filter[at - 1] != "/":
            raise InvalidName("# must stand alone in its level (MQTT-4.7.1-1)")
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        raise InvalidName("+ must stand alone in its level (MQTT-4.7.1-2)")


def is_share(filter: str) -> bool:
    """Whether this is meant as a shared subscription."""
    return filter.startswith((SHARE_PREFIX, ORDERED_PREFIX))


def parse_share(filter: str) -> Share | None:
    """Group and filter of a shared subscription, None for a plain one. Raises ``InvalidName`` (MQTT-4.8.2-1, -2)."""
    if not is_share(filter):
        return None
    prefix, _, rest = filter.partition("/")
    group, slash, plain = rest.partition("/")
    if not group or "+" in group or "#" in group:
        raise InvalidName("a share name has at least one character and none of / + #")
    if not slash or not plain:
        raise InvalidName("a shared subscription needs a filter after the share name")
    if is_share(plain):
        raise InvalidName("a shared subscription is about a plain filter, not about another shared subscription")
    return Share(group, plain, prefix + "/" == ORDERED_PREFIX)


def plain_filter(filter: str) -> str:
    """The filter that decides which messages a subscription is about. Raises ``InvalidName``."""
    share = parse_share(filter)
    return filter if share is None else share.filter


def legal_filter(filter: str) -> str:
    """The plain filter of what may be subscribed to, shared or not. Raises ``InvalidName`` for anything else: the name
    of a group is text as names and filters are, with their characters and at most as many bytes."""
    share = parse_share(filter)
    if share is not None:
        _check_text(share.group, "share name", SHARE_BYTES_MAX)
    plain = filter if share is None else share.filter
    check_filter(plain)
    return plain


def matches(filter: str, name: str) -> bool:
    """Whether a legal filter matches a legal name. A leading wildcard never matches a ``$`` name (MQTT-4.7.2-1)."""
    if name[:1] == "$" and filter[:1] in ("+", "#"):
        return False
    wanted, levels = filter.split("/"), name.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(want in ("+", levels[at]) for at, want in enumerate(wanted))


def first_match(filter: str, name: str) -> str | None:
    """From where on, in the order of strings, the next match is to be looked for: ``name`` itself if it matches, else a
    string behind it before which there is none; ``None`` if none comes any more. For a legal filter and legal names:
    what leads past whole subtrees of names in order that cannot match."""
    if name[:1] == "$" and filter[:1] in ("+", "#"):
        return "%"  # behind all that begins with $
    wanted, levels = filter.split("/"), name.split("/")
    free = 0  # behind the last level that may be another one
    for at, want in enumerate(wanted):
        if want == "#":
            return name
        if at == len(levels):  # "a!/b" stands between "a" and "a/b"
            return name + ("\0" if free == at else "/")
        if want == "+":
            free = at + 1
        elif want != levels[at]:
            ahead = _ahead("/".join([*levels[:at], ""]), wanted[at:], name)
            return ahead if ahead is not None else _behind(levels[:free])
    return name if len(levels) == len(wanted) else _behind(levels[:free])


def _ahead(above: str, wanted: list[str], name: str) -> str | None:
    """The beginning of the names that match below ``above``, if it is behind ``name``."""
    stem = above + wanted[0]
    if len(wanted) == 1 or (wanted[1] == "#" and name < stem):
        return stem if name < stem else None
    return stem + "/" if name < stem + "/" else None


def _behind(levels: list[str]) -> str | None:
    """Behind all names that begin with these levels and go on below them."""
    return "/".join(levels) + _AFTER_SLASH if levels else None


def overlaps(first: str, second: str) -> bool:
    """Whether some name matches both of two legal filters."""
    if _differ_in_guard(first, second):
        return False
    one, other = first.split("/"), second.split("/")
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if "#" in (left, right):
            return True
        if left != right and "+" not in (left, right):
            return False
        if at + 1 == min(len(one), len(other)):
            break
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return len(longer) == len(shorter) or longer[len(shorter) :] == ["#"]


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that matches one legal filter matches another."""
    if _differ_in_guard(wide, narrow):
        return False
    wanted, levels = wide.split("/"), ("+/#" if narrow == "#" else narrow).split("/")
    for at, want in enumerate(wanted):
        if want == "#":
            return True
        if at == len(levels) or levels[at] == "#" or (want != "+" and want != levels[at]):
            return False
    return len(levels) == len(wanted)


def _differ_in_guard(first: str, second: str) -> bool:
    """Whether one of two filters is for ``$`` names and the other begins with a wildcard (MQTT-4.7.2-1)."""
    starts = (first[:1], second[:1])
    return "$" in starts and ("+" in starts or "#" in starts)


def weight(filter: str) -> int:
    """The number of filters that this one counts as: one for each 1,024 bytes that it has begun."""
    return 1 if len(filter) <= SHORT_BYTES_MAX // 4 else -(-len(filter.encode()) // SHORT_BYTES_MAX)


def quoted(text: str) -> str:
    """A name or filter for a message: its beginning, if it is long."""
    return repr(text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}…")


def _check_text(text: str, what: str, bytes_max: int = NAME_BYTES_MAX) -> None:
    if not text:
        raise InvalidName(f"a {what} has at least one character (MQTT-4.7.3-1)")
    refused = _REFUSED.search(text)
    if refused:
        raise InvalidName(f"a {what} must not hold the character U+{ord(refused[0]):04X} (MQTT-1.5.4-1, -2)")
    size = len(text) if text.isascii() else len(text.encode())
    if size > bytes_max:
        raise InvalidName(f"a {what} has at most {bytes_max} bytes, not {size}")
    if text.count("/") >= LEVELS_MAX:
        raise InvalidName(f"a {what} has at most {LEVELS_MAX} levels here, not {text.count('/') + 1}")
