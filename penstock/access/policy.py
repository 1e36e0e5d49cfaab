"""Decides what an identity may do at the native ports of brokers and name servers.

An *identity* is the user or service that a peer has proved to be; a *policy* is the set of access rules. An action is
one of ``acl.NATIVE``; its object is the name of a topic or group, or empty for the cluster as a whole, which only the
pattern ``*`` covers. An action that no rule allows is refused, with the line that would allow it.

Without access rules, users who have logged in may produce, consume, join groups and view; administering takes a rule.
Other services of the cluster, which have its key, may do everything. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.access.acl import ADMIN, CONSUME, GROUP, PRODUCE, VIEW, Acl, Verdict
from penstock.errors import NotAuthorized

CLUSTER: Final = ""
"""The object of an action that is about no topic or group."""
ANONYMOUS: Final = "anonymous"
PASSWORD: Final = "password"
SCRAM: Final = "scram"
TOKEN: Final = "token"
CERTIFICATE: Final = "certificate"
SIGNATURE: Final = "signature"
SERVICE: Final = "cluster key"
LOCAL: Final = "open port"
HOW: Final = (ANONYMOUS, PASSWORD, SCRAM, TOKEN, CERTIFICATE, SIGNATURE, SERVICE, LOCAL)
"""How an identity was proved; ``LOCAL``: not at all, at a port that asks for nothing."""
_WITHOUT_RULES: Final = (PRODUCE, CONSUME, GROUP, VIEW)


class Identity(NamedTuple):
    """The user or service that a peer has proved to be.

    Attributes:
        user: the name; empty for an anonymous peer.
        how: one of ``HOW``.
        until_s: wall-clock seconds since 1970 at which the proof ends, as a token's; infinite where it does not.
    """

    user: str = ""
    how: str = ANONYMOUS
    until_s: float = math.inf

    @property
    def is_service(self) -> bool:
        """Whether it is a broker, gateway or other service of this cluster."""
        return self.how == SERVICE

    @property
    def name(self) -> str:
        """A text for people: the user, or the kind of peer."""
        return self.user or self.how


UNPROVEN: Final = Identity()
AT_OPEN_PORT: Final = Identity("", LOCAL)
"""The identity of every peer at a port that asks for no login; it may do everything there."""


class Policy:
    """The access rules in force.

    Args:
        acl: the rules; None where there is no file of them.
    """

    __slots__ = ("acl",)

    def __init__(self, acl: Acl | None = None) -> None:
        self.acl = acl

    def judge(self, identity: Identity, action: str, name: str = CLUSTER) -> Verdict:
        """Whether an identity may do one of ``acl.NATIVE`` to a topic, a group or the cluster, and by which rule."""
        if identity.how in (SERVICE, LOCAL):
            return Verdict(True, 0)
        if self.acl is not None:
            return self.acl.native(identity.user, action, name)
        return Verdict(bool(identity.user) and action in _WITHOUT_RULES, 0)

    def may(self, identity: Identity, action: str, name: str = CLUSTER) -> bool:
        """The same without the rule."""
        return self.judge(identity, action, name).allowed

    def refusal(self, identity: Identity, actions: Sequence[str], name: str = CLUSTER) -> NotAuthorized:
        """The error for what it may not do, none of these, which says what would allow it."""
        what = repr(name) if name else "the cluster"
        if not identity.user:
            who, hint = "a client that has not logged in", "log in: user and password, or a token"
        else:
            who = f"user {identity.user!r}"
            rule = f"allow user {identity.user} {actions[0]} {name or '*'}"
            others = f" (or {' or '.join(actions[1:])} in place of {actions[0]})" if actions[1:] else ""
            where = "acl_file" if self.acl is not None else "a file, name it with acl_file"
            hint = f"an operator allows it with a line in {where}: {rule}{others}"
        verbs = " or ".join([_VERBS[action] for action in actions])
        return NotAuthorized(f"{who} may not {verbs} {what}", hint=hint)


_VERBS: Final = {
    PRODUCE: "produce to",
    CONSUME: "consume",
    GROUP: "use the group",
    VIEW: "view",
    ADMIN: "administer",
}
