"""Access rules: who may publish under which MQTT names, subscribe to which filters, keep which positions and use which
client ids; and who may produce to, consume, view and administer which topics and groups of the native ports.
docs/formats/access.md is the page.

One rule per line: ``allow|deny WHO ACTION PATTERN``. WHO is ``all``, ``anonymous``,
``user NAME`` or ``group NAME``. Lines ``group NAME USER ...``, anywhere in the file, list the members of a group. The
first rule that applies decides; without one the answer is no. A level of a pattern may be ``%c`` (the client id) or
``%u`` (the user name): it stands for exactly one level with exactly that text, never for a wildcard, and where the text
is empty or could be read as anything else (``/``, ``+``, ``#``, a ``$`` at the beginning) for nothing in a rule that
allows, and for any level in one that denies.

A filter is allowed by a rule that covers it, so that every name it can ever match is allowed; it is denied by a rule
that it overlaps anywhere. A pattern that begins with a wildcard never speaks of names that begin with ``$``. Rules
about client ids have patterns of their own (``penstock/access/text_patterns.py``). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Final, NamedTuple

from penstock.access.text_patterns import check_pattern, is_match
from penstock.errors import InvalidConfig
from topicmap.names import InvalidName, check_filter, covers, overlaps

_CLIENT: Final = "client"
PRODUCE: Final = "produce"
CONSUME: Final = "consume"
GROUP: Final = "group"
VIEW: Final = "view"
ADMIN: Final = "admin"
NATIVE: Final = (PRODUCE, CONSUME, GROUP, VIEW, ADMIN)
"""Actions at the native ports. A rule that allows the last allows the others too, for the same pattern."""
ACTIONS: Final = ("publish", "subscribe", "position", _CLIENT, "all", *NATIVE)
_OF: Final = {_CLIENT: "client ids", GROUP: "groups"}
_ALL: Final = "all"
_ANONYMOUS: Final = "anonymous"
_USER: Final = "user"
_GROUP: Final = "group"
"""Begins the line of a group, and says in a rule that it is about one."""

RULES_MAX: Final = 10_000
"""Maximum number of rules in a file, because each rule that may match is checked for each new name that a client
uses."""
MEMBERS_MAX: Final = 100_000
_WILDCARDS: Final = ("+", "#")
_ANY_FIRST: Final = (*_WILDCARDS, "%c", "%u")


class Rule(NamedTuple):
    """One line. ``who``: ``all``, ``user`` or ``group``, and ``name``: which; a user without a name stands for clients
    without credentials."""

    allows: bool
    who: str
    name: str
    action: str
    pattern: str
    line: int


class Verdict(NamedTuple):
    """A decision, and the line of the rule; 0: no rule applied."""

    allowed: bool
    line: int


class _About:
    """The places of the rules about one user, group or all, in their order: those about client ids; those about native
    actions; of the others those whose first level says which names they speak of, by that; those that may speak of any;
    and of the former those that deny."""

    __slots__ = ("any", "by_first", "clients", "denials", "native")

    def __init__(self) -> None:
        self.by_first: dict[str, list[int]] = {}
        self.any: list[int] = []
        self.denials: list[int] = []
        self.clients: list[int] = []
        self.native: list[int] = []

    def add(self, place: int, rule: Rule) -> None:
        if rule.action == _CLIENT:
            self.clients.append(place)
            return
        if rule.action in NATIVE:
            self.native.append(place)
            return
        first = rule.pattern.partition("/")[0]
        if first in _ANY_FIRST:
            self.any.append(place)
            return
        self.by_first.setdefault(first, []).append(place)
        if not rule.allows:
            self.denials.append(place)


class Acl:
    """The rules of a file, in their order, and the members of groups. For a name or filter only few rules are checked:
    those about its user whose first level is the same, or none. A filter that begins with a wildcard is overlapped by
    any that denies, and covered by none that speaks of one first level only.

    Attributes:
        rules: all of them.
        has_client_rules: whether any is about client ids.
    """

    def __init__(self, rules: Sequence[Rule], groups: Mapping[str, Set[str]]) -> None:
        self.rules = tuple(rules)
        self.has_client_rules = any(rule.action == _CLIENT for rule in rules)
        self._about: dict[tuple[str, str], _About] = {}
        for place, rule in enumerate(self.rules):
            about = self._about.get((rule.who, rule.name))
            if about is None:
                about = self._about[rule.who, rule.name] = _About()
            about.add(place, rule)
        self._groups_of: dict[str, list[str]] = {}
        for group, users in groups.items():
            for user in users if (_GROUP, group) in self._about else ():
                self._groups_of.setdefault(user, []).append(group)

    def publish(self, user: str, client: str, name: str) -> Verdict:
        """Whether this client may publish under this name, or have it in its will."""
        return self._judge("publish", user, client, name)

    def position(self, user: str, client: str, name: str) -> Verdict:
        """Whether this client may begin at the position of this name, and move it."""
        return self._judge("position", user, client, name)

    def _judge(self, action: str, user: str, client: str, name: str) -> Verdict:
        for rule in self._rules_for(action, user, name):
            pattern = _resolved(rule, user, client)
            if pattern is not None and covers(pattern, name):
                return Verdict(rule.allows, rule.line)
        return Verdict(False, 0)

    def subscribe(self, user: str, client: str, filter: str) -> Verdict:
        """Whether this client may subscribe to this filter."""
        for rule in self._rules_for("subscribe", user, filter):
            pattern = _resolved(rule, user, client)
            if pattern is not None and (covers(pattern, filter) if rule.allows else overlaps(pattern, filter)):
                return Verdict(rule.allows, rule.line)
        return Verdict(False, 0)

    def client(self, user: str, client: str) -> Verdict:
        """Whether this user may use this client id. Without any rule about client ids, every client may use all."""
        if not self.has_client_rules:
            return Verdict(True, 0)
        for place in sorted([place for about in self._about_user(user) for place in about.clients]):
            rule = self.rules[place]
            if is_match(rule.pattern, user, client, allows=rule.allows):
                return Verdict(rule.allows, rule.line)
        return Verdict(False, 0)

    def native(self, user: str, action: str, name: str) -> Verdict:
        """Whether this user may do one of ``NATIVE`` to a topic or group; an empty name stands for the cluster."""
        for place in sorted([place for about in self._about_user(user) for place in about.native]):
            rule = self.rules[place]
            is_about = rule.action == action or (rule.action == ADMIN and rule.allows)
            if is_about and is_match(rule.pattern, user, name, allows=rule.allows):
                return Verdict(rule.allows, rule.line)
        return Verdict(False, 0)

    def _about_user(self, user: str) -> Iterator[_About]:
        for subject in ((_ALL, ""), (_USER, user), *[(_GROUP, group) for group in self._groups_of.get(user, ())]):
            about = self._about.get(subject)
            if about is not None:
                yield about

    def _rules_for(self, action: str, user: str, name: str) -> Iterator[Rule]:
        """The rules that may decide about a name or a filter, in order."""
        first = name.partition("/")[0]
        places: list[int] = []
        for about in self._about_user(user):
            places += about.any
            places += about.denials if first in _WILDCARDS else about.by_first.get(first, ())
        places.sort()
        return (rule for rule in map(self.rules.__getitem__, places) if rule.action in (action, _ALL))


def parse_acl(text: str) -> Acl:
    """The rules of a file. Raises ``InvalidConfig`` that names the line."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, words) for number, words in lines if words and not words[0].startswith("#")]
    groups: dict[str, set[str]] = {}
    members = 0
    for number, words in lines:
        if words[0] == _GROUP:
            members += len(words) - 2
            with _names(number):
                if len(words) < 3:
                    raise ValueError("a group has a name and users behind it")
                if members > MEMBERS_MAX:
                    raise ValueError(f"groups have at most {MEMBERS_MAX} members, all together")
            groups.setdefault(words[1], set()).update(words[2:])
    rules: list[Rule] = []
    for number, words in lines:
        if words[0] != _GROUP:
            with _names(number):
                rules.append(_rule(words, number, groups))
                if len(rules) > RULES_MAX:
                    raise ValueError(f"there are at most {RULES_MAX} rules; groups and %u make one of many")
    return Acl(rules, groups)


@contextmanager
def _names(number: int) -> Iterator[None]:
    """Names the line that something is wrong with."""
    try:
        yield
    except (ValueError, InvalidName) as error:
        raise InvalidConfig(
            f"line {number} of the access rules: {error}",
            hint=f"a rule is: allow|deny all|anonymous|user NAME|group NAME {'|'.join(ACTIONS)} PATTERN",
        ) from None


def _rule(words: list[str], number: int, groups: Mapping[str, Set[str]]) -> Rule:
    verdict, who, *rest = words if len(words) > 1 else [*words, ""]
    if verdict not in ("allow", "deny"):
        raise ValueError("it begins with neither allow nor deny")  # it may be a line of another file: a secret
    name = ""
    if who in (_USER, _GROUP) and rest:
        name, *rest = rest
        if who == _GROUP and name not in groups:
            raise ValueError(f"there is no group {name}")
    elif who == _ANONYMOUS:
        who = _USER
    elif who != _ALL:
        raise ValueError(f"{who!r} is not all, anonymous, user NAME or group NAME")
    if len(rest) != 2:
        raise ValueError("it has an action and a pattern behind whom it is about")
    action, pattern = rest
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is not one of {', '.join(ACTIONS)}")
    if action == _CLIENT or action in NATIVE:
        check_pattern(pattern, _OF.get(action, "topics and groups"))
        return Rule(verdict == "allow", who, name, action, pattern, number)
    check_filter(pattern)
    if any("%c" in level or "%u" in level for level in pattern.split("/") if level not in ("%c", "%u")):
        raise ValueError("%c and %u each are a whole level")
    return Rule(verdict == "allow", who, name, action, pattern, number)


def _resolved(rule: Rule, user: str, client: str) -> str | None:
    """The pattern with its names in place. With a name that is no level it matches nothing (``None``) where the rule
    allows, and any level there where it denies: no client chooses an id that gets round a rule."""
    if "%" not in rule.pattern:
        return rule.pattern
    levels = rule.pattern.split("/")
    for at, level in enumerate(levels):
        text = {"%c": client, "%u": user}.get(level)
        if text is None:
            continue
        if text and text not in ("+", "#") and "/" not in text and (at or not text.startswith("$")):
            levels[at] = text
        elif rule.allows:
            return None
        else:
            levels[at] = "+"
    return "/".join(levels)
