"""Access rules: who may publish under which names and subscribe to which filters. docs/formats/access.md is the page.

One rule per line: ``allow|deny WHO publish|subscribe|all PATTERN``. WHO is ``all``, ``anonymous`` or ``user NAME``. The
first rule that applies decides; where none does, the answer is no. A level of a pattern may be ``%c`` (the client id)
or ``%u`` (the user name): it stands for exactly one level with exactly that text, never for a wildcard, and where the
text is empty or could be read as anything else (``/``, ``+``, ``#``, a ``$`` at the beginning) for nothing in a rule
that allows, and for any level in one that denies.

A filter is allowed by a rule that covers it, so that every name it can ever match is allowed; it is denied by a rule
that it overlaps anywhere. A pattern that begins with a wildcard never speaks of names that begin with ``$``. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import InvalidConfig
from topicmap.names import InvalidName, check_filter

ACTIONS: Final = ("publish", "subscribe", "all")
_ALL: Final = "all"
_ANONYMOUS: Final = "anonymous"
_USER: Final = "user"


class Rule(NamedTuple):
    """One line. ``user``: whom it is about; ``None``: everybody, empty: who has shown no credentials."""

    allows: bool
    user: str | None
    action: str
    levels: tuple[str, ...]
    line: int


class Verdict(NamedTuple):
    """What was decided, and by which line; 0: no rule applied."""

    allowed: bool
    line: int


class Acl:
    """The rules of a file, in their order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    def publish(self, user: str, client: str, name: str) -> Verdict:
        """Whether this client may publish under this name, or have it in its will."""
        levels = name.split("/")
        for rule in self._rules_for("publish", user):
            if covers(_resolved(rule, user, client), levels):
                return Verdict(rule.allows, rule.line)
        return Verdict(False, 0)

    def subscribe(self, user: str, client: str, filter: str) -> Verdict:
        """Whether this client may subscribe to this filter."""
        levels = filter.split("/")
        for rule in self._rules_for("subscribe", user):
            pattern = _resolved(rule, user, client)
            if covers(pattern, levels) if rule.allows else overlaps(pattern, levels):
                return Verdict(rule.allows, rule.line)
        return Verdict(False, 0)

    def _rules_for(self, action: str, user: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.action in (action, _ALL) and rule.user in (None, user)]


def parse_acl(text: str) -> Acl:
    """The rules of a file. Raises ``InvalidConfig`` that names the line."""
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            rules.append(_rule(words, number))
        except (ValueError, InvalidName) as error:
            raise InvalidConfig(
                f"line {number} of the access rules: {error}",
                hint="a rule is: allow|deny all|anonymous|user NAME publish|subscribe|all PATTERN",
            ) from None
    return Acl(rules)


def _rule(words: list[str], number: int) -> Rule:
    verdict, who, *rest = words if len(words) > 1 else [*words, ""]
    if verdict not in ("allow", "deny"):
        raise ValueError(f"{verdict!r} is neither allow nor deny")
    user: str | None = None
    if who == _USER and rest:
        user, *rest = rest
    elif who == _ANONYMOUS:
        user = ""
    elif who != _ALL:
        raise ValueError(f"{who!r} is not all, anonymous or user NAME")
    if len(rest) != 2:
        raise ValueError("it has an action and a pattern behind whom it is about")
    action, pattern = rest
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is not one of {', '.join(ACTIONS)}")
    check_filter(pattern)
    levels = tuple(pattern.split("/"))
    if any("%c" in level or "%u" in level for level in levels if level not in ("%c", "%u")):
        raise ValueError("%c and %u each are a whole level")
    return Rule(verdict == "allow", user, action, levels, number)


def _resolved(rule: Rule, user: str, client: str) -> list[str | None]:
    """The pattern with its names in place. A name that is no level is ``None``, which matches nothing, where the rule
    allows, and any level where it denies: no client chooses an id that gets round a rule."""
    resolved: list[str | None] = []
    for at, level in enumerate(rule.levels):
        text = {"%c": client, "%u": user}.get(level)
        if text is None:
            resolved.append(level)
        elif text and text not in ("+", "#") and "/" not in text and (at or not text.startswith("$")):
            resolved.append(text)
        else:
            resolved.append(None if rule.allows else "+")
    return resolved


def covers(pattern: Sequence[str | None], levels: Sequence[str]) -> bool:
    """Whether every name that ``levels`` (a name or a filter) stands for is one that the pattern matches."""
    if None in pattern or (levels[0].startswith("$") and pattern[0] in ("+", "#")):
        return False
    for at, part in enumerate(pattern):
        if part == "#":  # it also matches the level above (MQTT-4.7.1-2)
            return True
        if at >= len(levels) or (part != levels[at] and (part != "+" or levels[at] == "#")):
            return False
    return len(pattern) == len(levels)


def overlaps(pattern: Sequence[str | None], levels: Sequence[str]) -> bool:
    """Whether there is a name that both match."""
    first, other = pattern[0], levels[0]
    if (
        None in pattern
        or (other.startswith("$") and first in ("+", "#"))
        or (other in ("+", "#") and str(first).startswith("$"))
    ):
        return False
    for at in range(max(len(pattern), len(levels))):
        mine = pattern[at] if at < len(pattern) else ""
        theirs = levels[at] if at < len(levels) else ""
        is_over = at >= len(pattern) or at >= len(levels)
        if mine == "#" or theirs == "#":
            return True  # also of the level above (MQTT-4.7.1-2)
        if is_over or (mine != theirs and "+" not in (mine, theirs)):
            return False
    return True
