"""Reasons to refuse a name, a will or a subscription: the name itself, limits, access rules, a broker's limits."""

from __future__ import annotations

from gateway.limits.limits import Limits
from gateway.login.auth import Authenticator, Identity
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.publishing.upstream import Upstream
from gateway.sessions.session_state import Will
from penstock.errors import InvalidMessage
from topicmap.names import EVENTS_LEVEL, InvalidName, check_name, is_reserved


class Judge:
    """Judge of what clients of one gateway may publish and subscribe to."""

    def __init__(self, authenticator: Authenticator, upstream: Upstream, limits: Limits) -> None:
        self._authenticator = authenticator
        self._upstream = upstream
        self._limits = limits

    def unfit_name(self, identity: Identity, name: str) -> Reason:
        """The reason code that keeps a client from publishing under a name, 0 for none."""
        try:
            check_name(name)
            self._upstream.topic_of(name)  # it must have a topic that can hold it
        except InvalidName:
            return ReasonCode.TOPIC_NAME_INVALID
        too_deep = self._limits.too_deep(name)
        if too_deep:
            return too_deep
        may = not is_reserved(name) and self._authenticator.may_publish(identity, name)
        return 0 if may else ReasonCode.NOT_AUTHORIZED

    def unfit_subscription(self, identity: Identity, filter: str, position: str) -> Reason:
        """The reason code by which the rules keep a client from a filter, or from the named position with it, 0 for
        none."""
        if filter.partition("/")[0] == EVENTS_LEVEL or not self._authenticator.may_subscribe(identity, filter):
            return ReasonCode.NOT_AUTHORIZED
        if position and not self._authenticator.may_position(identity, position):
            return Told(ReasonCode.NOT_AUTHORIZED, f"the position {position} is not this client's to keep")
        return 0

    def unfit_will(self, identity: Identity, will: Will) -> Reason:
        """The reason code that keeps a client from leaving this will, 0 for none: an accepted will must be publishable
        later."""
        unfit = self.unfit_name(identity, will.name)
        if not unfit:
            try:
                self._upstream.will_properties(identity.client_id, will)
            except InvalidMessage as error:
                return Told(ReasonCode.QUOTA_EXCEEDED, error.message)
        return unfit

    def may_leave(self, client_id: str, will: Will) -> bool:
        """Whether a will may be published: the rules may have changed since its client left it."""
        return not self.unfit_will(Identity(client_id, will.user), will)
