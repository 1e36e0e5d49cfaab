"""Resumes a saved session: fetches its open exchanges before its client is answered.

The brokers that stored inbound QoS 2 messages give their ids. Messages in flight to the client are found again in the
log (``rereading.py``), and sent under the same ids in the same order (MQTT-4.4.0-1, 4.6.0-1). Large ones are read again
when they are sent (``gateway/delivery/resending.py``). A message that the log no longer has is given up. One at an
unknown broker, which is away, waits for a later connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.brokers import Brokers
from gateway.messages.envelope import Arrival
from gateway.messages.mounts import is_mounted, seen_at
from gateway.messages.outgoing import Blob, Variant, blob
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.sessions.exchange_ids import ExchangeIds
from gateway.sessions.rereading import Rereading
from gateway.sessions.session import Session
from gateway.sessions.session_state import Flow, Sent, decode_flow, decode_terms
from penstock.errors import PenstockError
from penstock.protocol.requests.sessions import OpenedSession

ABSENT_MAX: Final = 16_384
"""Largest number of packet ids of a session that are kept for messages of unknown brokers."""

OTHER_MOUNT: Final = Told(
    ReasonCode.NOT_AUTHORIZED, "its session has subscriptions outside of this listener's mount point: start a clean one"
)
OnResumed = Callable[["PenstockError | None"], None]


class Resuming:
    """One session on its way back. ``on_resumed`` is called when its exchanges stand, or with the error."""

    def __init__(
        self, session: Session, flow: Flow, brokers: Brokers, is_v5: bool, now_ms: int, mount: str = ""
    ) -> None:
        self._session = session
        self._flow = flow
        self._brokers = {broker.name: broker for broker in brokers.known}
        self._is_v5 = is_v5
        self._mount = mount
        self._now_ms = now_ms
        self._found: dict[int, Blob] = {}
        self._left = 2
        self._error: PenstockError | None = None
        self._on_resumed: OnResumed = lambda error: None

    def begin(self, exchanges: ExchangeIds, on_resumed: OnResumed) -> None:
        """Asks the brokers for all of it."""
        session, self._on_resumed = self._session, on_resumed
        lasting = session.lasting
        assert lasting is not None
        exchanges.fetch(session.client_id, lasting.generation, session.epoch, self._has_ids)
        absent = [sent for sent in self._flow.sent if sent.broker not in self._brokers]
        lasting.absent.update({sent.packet_id: sent for sent in absent[:ABSENT_MAX]})
        there = [sent for sent in self._flow.sent if sent.broker in self._brokers]
        Rereading(self._brokers, self._has_found, self._answered).begin(there)

    def _has_ids(self, ids: list[int] | PenstockError) -> None:
        if isinstance(ids, PenstockError):
            self._answered(ids)
        else:
            self._session.inherit_incoming(ids)
            self._answered(None)

    def _has_found(self, sent: Sent, arrival: Arrival) -> None:
        seen = seen_at(self._mount, arrival) if self._mount else arrival
        if seen is None:
            return
        variant = Variant(self._is_v5, sent.qos, sent.retain, sent.identifiers, sent.shows_place)
        self._found[sent.packet_id] = blob(seen, variant, self._now_ms).sent()

    def _answered(self, error: PenstockError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if self._left:
            return
        session = self._session
        for sent in self._flow.sent:
            made = self._found.get(sent.packet_id)
            if made is not None:
                session.in_flight[sent.packet_id] = made
                session.in_flight_bytes += made.weight
        if self._flow.releasing:
            session.releasing = dict.fromkeys(self._flow.releasing)
        session.next_id = self._flow.next_id
        self._on_resumed(self._error)


def is_foreign(found: OpenedSession, mount: str) -> bool:
    """Whether a session that was saved has filters, or messages of filters, outside of a mount point: nothing of it may
    be sent there."""
    if not mount or not found.present:
        return False
    flow = decode_flow(found.flow)
    filters = {one.filter for one in decode_terms(found.terms)} | {one.filter for one in flow.sent}
    return not all([is_mounted(mount, filter) for filter in filters | {filter for filter, _ in flow.places}])
