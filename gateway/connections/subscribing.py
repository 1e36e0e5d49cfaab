"""One SUBSCRIBE or UNSUBSCRIBE in progress.

Each filter is judged and opened at the brokers; one SUBACK has a code per filter, in order. Both have turns
(``gateway/connections/turns.py``). User properties may ask for history and places (``gateway/sessions/options.py``);
the SUBACK's reason string names wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from gateway.connections.guests import Guest
from gateway.connections.services import Services
from gateway.connections.turns import Task
from gateway.messages.mounts import mounted_filter
from gateway.mqtt.connection import Connection
from gateway.mqtt.packets import Subscribe, Unsubscribe
from gateway.mqtt.packets import Subscription as Asked
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.sessions.options import PLAIN, START, InvalidOption, read_options
from gateway.sessions.subscriptions import Subscription
from penstock.errors import Busy, PenstockError
from topicmap.names import ORDERED_PREFIX, InvalidName, is_share, legal_filter, weight

_SEND_NEVER: Final = 2
_SEND_IF_NEW: Final = 1


class Subscribing(Task):
    """The state of one SUBSCRIBE."""

    __slots__ = (
        "_answer",
        "_codes",
        "_connection",
        "_device",
        "_options",
        "_packet",
        "_services",
        "_session",
        "_unsettled",
        "_weight",
        "_why",
    )

    def __init__(
        self,
        device: Guest,
        services: Services,
        connection: Connection,
        packet: Subscribe,
        answer: Callable[[bytes], None],
    ) -> None:
        """``answer`` takes the SUBACK."""
        super().__init__(len(packet.subscriptions))
        assert device.session is not None
        self._device = device
        self._session = device.session
        self._services = services
        self._connection = connection
        self._packet = packet
        self._answer = answer
        self._options = PLAIN
        self._why = ""
        self._codes = [0] * len(packet.subscriptions)
        self._weight = 0  # as how many subscriptions the session's count
        self._unsettled = 1  # answers to wait for: filters that are opened, and their judgement

    def go_on(self, most: int) -> None:
        """Judges filters and opens those that may be."""
        properties = self._packet.properties
        identifier = properties.subscription_identifiers[0] if properties.subscription_identifiers else 0
        first = len(self._codes) - self.left
        if not first and not self._begin(properties):
            return
        self.left -= most
        mount = self._device.tally.mount
        for at in range(first, first + most):
            asked = self._packet.subscriptions[at]
            if mount:
                asked = replace(asked, filter=mounted_filter(mount, asked.filter))
            self._codes[at] = self._unfit(asked.filter)
            if not self._codes[at]:
                self._unsettled += 1
                self._open(at, asked, identifier)
        if not self.left:
            self._settled()
            if self._connection.has_more:  # what it publishes next must find its own subscription standing
                self._services.downstream.flush()

    def _begin(self, properties: Properties) -> bool:
        """Whether what it asks for beside its filters is sound; if not it is answered."""
        self._weight = sum(map(weight, self._session.subscriptions))
        try:
            self._options = read_options(properties.user_properties)
        except InvalidOption as error:
            self._why = str(error)
            self._codes = [int(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)] * len(self._codes)
            self.left = 0
            self._settled()
            return False
        return True

    def _unfit(self, filter: str) -> int:
        """The code with which a filter is refused, 0 if it may be opened."""
        try:
            if is_share(filter) and not self._services.settings.shared_subscriptions:
                return ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
            plain = legal_filter(filter)
        except InvalidName:
            return ReasonCode.TOPIC_FILTER_INVALID
        device = self._device
        too_deep = self._services.limits.too_deep(plain)
        if too_deep:
            self._says(too_deep)
            return ReasonCode.TOPIC_FILTER_INVALID
        assert device.identity is not None
        start = self._options.start
        if start is not None and start.name and device.tally.mount:
            self._why = "a listener with a mount point has no named positions"
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        unfit = self._services.judge.unfit_subscription(device.identity, plain, start.name if start is not None else "")
        if unfit:
            self._services.connections.journal.denied("Subscribe", device.peer, device.identity, plain)
            return self._says(unfit)
        known = self._session.subscriptions
        if filter not in known and self._weight + weight(filter) > self._services.settings.subscriptions_max:
            return self._says(self._services.quotas.refuse("subscriptions_max"))
        if is_share(filter):
            return self._unfit_share(filter)
        return self._unfit_start(filter) if self._options.start is not None else 0

    def _says(self, told: Reason) -> int:
        """The code of a refusal, whose words go into the SUBACK."""
        if isinstance(told, Told):
            self._why = told.why
            return told.code
        return told

    def _unfit_share(self, share: str) -> int:
        services = self._services
        if self._options.start is not None:
            self._why = "a shared subscription has no history"
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        members = services.downstream.shared.members_of(share)
        if share not in self._session.subscriptions and members >= services.settings.share_members_max:
            return self._says(services.quotas.refuse("share_members_max"))
        return 0

    def _unfit_start(self, filter: str) -> int:
        """History is in the queues of a topic; so there must be one, and room for another replay."""
        services = self._services
        try:
            topic = services.upstream.topic_of(filter)
        except InvalidName:
            return ReasonCode.TOPIC_FILTER_INVALID
        if topic is None:
            self._why = f"{filter} has names in more than one topic: {START} needs a filter whose first level is a name"
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        if len(services.downstream.replays) >= services.settings.replays_max:
            return self._says(services.quotas.refuse("replays_max"))
        return 0

    def _open(self, at: int, asked: Asked, identifier: int) -> None:
        is_new = asked.filter not in self._session.subscriptions
        self._weight += weight(asked.filter) if is_new else 0
        settings = self._services.settings
        wants_retained = (
            settings.retained_messages
            and asked.retain_handling != _SEND_NEVER
            and (is_new or asked.retain_handling != _SEND_IF_NEW)
        )
        start = self._options.start
        # what is settled as soon as a session has it could not be kept in order behind it
        qos = min(asked.qos, settings.qos_max, 1 if asked.filter.startswith(ORDERED_PREFIX) else 2)
        subscription = Subscription(
            asked.filter,
            qos,
            no_local=asked.no_local,
            as_published=asked.retain_as_published,
            retain_handling=asked.retain_handling,
            identifier=identifier,
            shows_place=self._options.shows_place and not self._device.tally.mount,  # it names the topic
            name=start.name if start is not None else "",
        )
        opened = partial(self._opened, at, qos)
        topic = self._services.upstream.topic_of(asked.filter) if start is not None else None
        history = (start, topic) if start is not None and topic is not None else None
        self._services.downstream.subscribe(self._session, subscription, wants_retained, opened, history)

    def _opened(self, at: int, qos: int, error: PenstockError | None) -> None:
        if isinstance(error, Busy):  # a limit of the broker's
            self._services.downstream.count_refused()
            self._why = error.message
            self._codes[at] = ReasonCode.QUOTA_EXCEEDED
        else:
            self._codes[at] = qos if error is None else ReasonCode.UNSPECIFIED_ERROR
        try:
            self._settled()
        except Exception:
            self._services.connections.failed(self._device)

    def _settled(self) -> None:
        """One filter has its code, or all are judged; the last of these answers, whichever it is."""
        self._unsettled -= 1
        if not self._unsettled and self._session.device is self._device:
            self._answer(self._connection.suback(self._packet, self._codes, self._why))


def send_saved(device: Guest, services: Services, when_saved: Callable[[], None], data: bytes) -> None:
    """Sends what promises that the subscriptions are as they are now; a client that cannot take it cannot be told."""
    assert device.session is not None
    if data:
        services.saver.before(device.session, data, when_saved)
    else:
        device.fail(ReasonCode.PACKET_TOO_LARGE)


class Unsubscribing(Task):
    """The state of one UNSUBSCRIBE."""

    __slots__ = ("_answer", "_connection", "_found", "_mount", "_packet", "_services", "_session")

    def __init__(
        self,
        device: Guest,
        services: Services,
        connection: Connection,
        packet: Unsubscribe,
        answer: Callable[[bytes], None],
    ) -> None:
        """``answer`` takes the UNSUBACK."""
        super().__init__(len(packet.filters))
        assert device.session is not None
        self._session = device.session
        self._services = services
        self._connection = connection
        self._packet = packet
        self._answer = answer
        self._found: list[bool] = []
        self._mount = device.tally.mount

    def go_on(self, most: int) -> None:
        """Ends subscriptions."""
        first = len(self._found)
        for filter in self._packet.filters[first : first + most]:
            full = mounted_filter(self._mount, filter) if self._mount else filter
            self._found.append(self._services.downstream.unsubscribe(self._session, full))
        self.left -= most
        if not self.left:
            self._answer(self._connection.unsuback(self._packet, self._found))
