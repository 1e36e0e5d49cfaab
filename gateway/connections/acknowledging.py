"""The QoS exchanges of a connection, both ways: PUBACK, PUBREC, PUBREL, PUBCOMP; and PINGREQ.

An acknowledgement makes room for waiting messages. For a session that outlives its connection, a PUBREL leaves only
when the session is durable with the exchange in it, and a PUBCOMP only when the packet id is free for ever. Functions
of a device and the services of its gateway, without state of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gateway.connections.guests import Guest
from gateway.connections.services import Services
from gateway.mqtt.answers import PINGRESP, PUBCOMP, PUBREL, answer
from gateway.mqtt.packets import Pingreq, Puback, Pubcomp, Pubrec, Pubrel
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.sessions.session import Session
from penstock.errors import InvalidMessage, InvalidTopic, ReservedName, StorageFull, TooLarge, TopicNotFound

# Broker error -> reason code of PUBACK and PUBREC.
REASONS: Final[Mapping[int, Reason]] = MappingProxyType(
    {
        StorageFull.code: Told(ReasonCode.QUOTA_EXCEEDED, "the disk is full"),
        InvalidTopic.code: ReasonCode.TOPIC_NAME_INVALID,
        ReservedName.code: ReasonCode.TOPIC_NAME_INVALID,
        TopicNotFound.code: ReasonCode.TOPIC_NAME_INVALID,
        InvalidMessage.code: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        TooLarge.code: Told(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "the message is larger than a broker stores"),
    }
)


def acknowledge(device: Guest, services: Services, ids: Sequence[int]) -> None:
    """PUBACKs."""
    session = _session(device)
    if services.downstream.trace.is_on:
        services.downstream.trace.settling(session, ids)
    session.acknowledged_all(ids)
    if session.lasting is not None:
        services.saver.note(session)
    if session.is_waiting:
        services.downstream.pump_later(session)


def note_stored(session: Session, marks: Sequence[bytes]) -> tuple[list[int], int]:
    """Publications with these marks are stored, some of QoS 2. Returns the ids whose PUBREL has come already, and how
    many marks are PUBACKs."""
    released, pubacks = [], 0
    for one in marks:
        if one[:1] == b"\x50":
            packet_id = int.from_bytes(one[2:4], "big")
            if session.stored_incoming(packet_id):
                released.append(packet_id)
        else:
            pubacks += bool(one)
    return released, pubacks


def _puback(device: Guest, services: Services, packet: Puback) -> None:
    acknowledge(device, services, (packet.packet_id,))


def _pubrec(device: Guest, services: Services, packet: Pubrec) -> None:
    session = _session(device)
    is_refusal = packet.reason_code >= 0x80
    is_again = packet.packet_id in session.releasing
    if services.downstream.trace.is_on and not is_refusal:
        services.downstream.trace.settling(session, (packet.packet_id,))
    known = session.received(packet.packet_id, is_refusal)
    if is_refusal:
        if session.lasting is not None:
            services.saver.note(session)
        if session.is_waiting:
            services.downstream.pump_later(session)
        return
    reason = 0 if known or not device.is_v5 else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    pubrel = answer(PUBREL, packet.packet_id, reason)
    if known and not is_again:
        services.saver.before(session, pubrel)
    elif not is_again or not _has_unsaved(session):
        device.send(pubrel)


def _pubcomp(device: Guest, services: Services, packet: Pubcomp) -> None:
    session = _session(device)
    if session.completed(packet.packet_id):
        if session.lasting is not None:
            services.saver.note(session)
        if session.is_waiting:
            services.downstream.pump_later(session)


def _pubrel(device: Guest, services: Services, packet: Pubrel) -> None:
    session = _session(device)
    if session.comes_early(packet.packet_id):
        return
    if session.lasting is not None and packet.packet_id in session.incoming:
        services.exchanges.release(session, packet.packet_id)
        return
    known = session.forget_incoming(packet.packet_id)
    reason = 0 if known or not device.is_v5 else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    device.send(answer(PUBCOMP, packet.packet_id, reason))


def _pingreq(device: Guest, services: Services, packet: Pingreq) -> None:
    device.send(PINGRESP)


def _has_unsaved(session: Session) -> bool:
    """Whether packets of the session wait for a save. The PUBREL that a client asks for again may be among them; they
    are bounded because it is not added to them once more."""
    lasting = session.lasting
    return lasting is not None and (lasting.is_saving or len(lasting.unsaved) > 0)


def _session(device: Guest) -> Session:
    session = device.session
    assert session is not None
    return session


EXCHANGES: Final[MappingProxyType[type, Callable[[Guest, Services, Any], None]]] = MappingProxyType(
    {Puback: _puback, Pubrec: _pubrec, Pubcomp: _pubcomp, Pubrel: _pubrel, Pingreq: _pingreq}
)
