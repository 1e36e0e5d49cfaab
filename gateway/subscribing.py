"""One SUBSCRIBE under way: each filter judged, opened at the brokers, and answered by one SUBACK with a code per
filter, in order.

A filter that is refused (malformed, not allowed, over the quota, shared) has its code at once; the others stand
when every broker has opened them. The SUBACK goes before anything that the subscriptions deliver, retained messages
included. If the connection is gone by then the subscriptions stay with the session and nothing is sent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.mqtt.packets import Subscribe
from gateway.mqtt.packets import Subscription as Asked
from gateway.mqtt.reason_codes import ReasonCode
from gateway.reception import Reception
from gateway.subscriptions import Subscription
from topicmap.names import InvalidName, check_filter, parse_share

if TYPE_CHECKING:
    from gateway.device import Device

_PENDING: Final = -1
_SEND_NEVER: Final = 2
_SEND_IF_NEW: Final = 1


class Subscribing:
    """The state of one SUBSCRIBE."""

    __slots__ = ("_codes", "_device", "_packet", "_reception", "_session")

    def __init__(self, device: Device, reception: Reception, packet: Subscribe) -> None:
        assert device.session is not None
        self._device = device
        self._session = device.session
        self._reception = reception
        self._packet = packet
        self._codes = [_PENDING] * len(packet.subscriptions)

    def begin(self) -> None:
        """Judges all filters, then opens those that may be."""
        identifiers = self._packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        for at, asked in enumerate(self._packet.subscriptions):
            self._codes[at] = self._unfit(asked.filter) or _PENDING
            if self._codes[at] == _PENDING:
                self._open(at, asked, identifier)
        self._answer()

    def _unfit(self, filter: str) -> int:
        try:
            if parse_share(filter) is not None:
                return ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
            check_filter(filter)
        except InvalidName:
            return ReasonCode.TOPIC_FILTER_INVALID
        device = self._device
        assert device.identity is not None
        if not self._reception.authenticator.may_subscribe(device.identity, filter):
            return ReasonCode.NOT_AUTHORIZED
        known = self._session.subscriptions
        if filter not in known and len(known) >= self._reception.settings.subscriptions_max:
            return self._reception.quotas.refuse("subscriptions_max")
        return 0

    def _open(self, at: int, asked: Asked, identifier: int) -> None:
        is_new = asked.filter not in self._session.subscriptions
        wants_retained = asked.retain_handling != _SEND_NEVER and (is_new or asked.retain_handling != _SEND_IF_NEW)
        subscription = Subscription(
            asked.filter,
            asked.qos,
            no_local=asked.no_local,
            as_published=asked.retain_as_published,
            retain_handling=asked.retain_handling,
            identifier=identifier,
        )
        opened = partial(self._opened, at, asked.qos)
        self._reception.downstream.subscribe(self._session, subscription, wants_retained, opened)

    def _opened(self, at: int, qos: int, stands: bool) -> None:
        self._codes[at] = qos if stands else ReasonCode.UNSPECIFIED_ERROR
        self._answer()

    def _answer(self) -> None:
        if _PENDING not in self._codes and self._session.device is self._device:
            self._device.send_suback(self._packet, self._codes)
