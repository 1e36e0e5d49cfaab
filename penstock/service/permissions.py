"""The permissions of one peer, once its identity is proven: asked of the policy in force, and remembered.

A permission is remembered until the authority's version changes, so that a check costs a microsecond or two.
Refusals and acts of administration are noted in the audit log. Pure.
"""

from __future__ import annotations

from typing import Final

from penstock.access.acl import ADMIN
from penstock.access.authority import Authority
from penstock.access.needs import KNOWN, OPEN, PEER, Need, needs_of
from penstock.access.policy import Identity
from penstock.errors import NotAuthorized
from penstock.protocol.requests.request import Request
from penstock.service.audit import Audit

REMEMBERED_MAX: Final = 4096


class Permissions:
    """Permissions of a peer.

    Args:
        authority: has the policy in force.
        audit: the log of refusals and acts of administration.
        address: the peer's.
        identity: who the peer has proved to be.

    Attributes:
        identity: the same, or who it has become since.
    """

    def __init__(self, authority: Authority, audit: Audit, address: str, identity: Identity) -> None:
        self._authority = authority
        self._audit = audit
        self._address = address
        self._version = authority.version
        self._allowed: set[Need] = set()
        self.identity = identity

    def become(self, identity: Identity) -> None:
        """Counts for another identity from now on."""
        self.identity = identity
        self._allowed.clear()

    def check_request(self, request: Request) -> None:
        """Raises ``NotAuthorized`` unless all that a request needs is allowed."""
        act = type(request).__name__
        for need in needs_of(request):
            self.check(act, need)

    def check(self, act: str, need: Need) -> None:
        """Raises ``NotAuthorized`` unless a need is met. ``act``: the name of the act, for the audit log."""
        if self._version != self._authority.version:
            self._version = self._authority.version
            self._allowed.clear()
        if need in self._allowed:
            return
        identity, is_noted = self.identity, need.actions == (ADMIN,)
        act, about = need.act or act, need.about or need.name
        if not self.meets(need):
            self._audit.note(identity, self._address, act, about, allowed=False, why=need.actions[0])
            raise self._refusal(need)
        if is_noted:  # each time, but what is part of an act that is noted
            self._audit.note(identity, self._address, act, about, allowed=True)
            if not need.act:
                return
            need = need._replace(goes_on=True)
        if len(self._allowed) >= REMEMBERED_MAX:
            self._allowed.clear()
        self._allowed.add(need)

    def meets(self, need: Need) -> bool:
        """Whether a need is met; nothing is noted."""
        policy, identity = self._authority.policy, self.identity
        for action in need.actions:
            if action == OPEN or (action == KNOWN and identity.user):
                return True
            if action not in (KNOWN, PEER) and policy.may(identity, action, need.name):
                return True
        return False

    def _refusal(self, need: Need) -> NotAuthorized:
        action = need.actions[0]
        if action == PEER:
            return NotAuthorized(
                "only brokers, gateways and name servers of the cluster may ask this",
                hint="give this service the cluster_secret_file of the others",
            )
        if action == KNOWN:
            return NotAuthorized("a client that has not logged in may not ask this", hint="log in: user and password")
        return self._authority.policy.refusal(self.identity, need.actions, need.name)
