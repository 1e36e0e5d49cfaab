"""The request of a CONNECT and the grants of a CONNACK, independent of the protocol version.

Before MQTT 5 a session either ends with its connection (clean session) or never (MQTT-3.1.2-6 of 3.1.1); with MQTT 5
the client gives a time. Pure translations, no state.
"""

from __future__ import annotations

from typing import Final

from gateway.connections.guests import Arriving, Grant
from gateway.login.auth import Identity
from gateway.messages.aliases import SentAliases
from gateway.messages.mounts import mounted_name, mounted_properties
from gateway.messages.outgoing import PACKET_ID_MAX
from gateway.mqtt.connection import ANY_SIZE, V5, Terms
from gateway.mqtt.packets import LEVEL_3_1, Connect, Publish
from gateway.mqtt.properties import NO_PROPERTIES, Properties, application_properties, encode_properties
from gateway.publishing.broker_batch import NameRoute
from gateway.publishing.upstream import Upstream
from gateway.sessions.options import InvalidOption, asks_for_level
from gateway.sessions.session import Session
from gateway.sessions.session_state import Will
from gateway.settings import GatewaySettings
from penstock.protocol.message import FLAG_ONCE, FLAG_RETAIN, NEVER
from penstock.protocol.requests.sessions import NEVER_ENDS

_UNFIT_FOR_A_NAME: Final = frozenset("+#/")


def arriving(packet: Connect, mount: str = "") -> Arriving:
    """The request of a CONNECT. ``mount``: of its listener."""
    properties, is_v5 = packet.properties, packet.level >= V5
    expiry_s = properties.session_expiry_interval or 0
    if not is_v5 and not packet.clean_start:
        expiry_s = NEVER_ENDS
    wants_level, misuse = False, ""
    try:
        wants_level = asks_for_level(properties.user_properties)
    except InvalidOption as error:
        misuse = str(error)
    return Arriving(
        packet.client_id,
        packet.user_name,
        packet.password,
        packet.clean_start,
        expiry_s,
        packet.keep_alive_s,
        properties.receive_maximum or PACKET_ID_MAX,
        _will(packet, mount),
        is_v5,
        properties.request_response_information == 1,
        properties.authentication_method,
        properties.authentication_data,
        is_v5 or (packet.clean_start and packet.level > LEVEL_3_1),
        wants_level,
        misuse,
        level=packet.level,
    )


def _will(packet: Connect, mount: str) -> Will | None:
    will = packet.will
    if will is None:
        return None
    expiry_s, application = will_properties(will.properties)
    delay_s = will.properties.will_delay_interval or 0
    if mount:
        application = mounted_properties(mount, application)
    return Will(mounted_name(mount, will.topic), will.payload, will.qos, will.retain, delay_s, expiry_s, application)


def will_properties(properties: Properties) -> tuple[int, bytes]:
    """Expiry interval (or ``NEVER``) and the encoded properties that go with a will to its subscribers."""
    if properties is NO_PROPERTIES:
        return NEVER, b""
    forwarded = Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )
    expiry_s = properties.message_expiry_interval
    return NEVER if expiry_s is None else expiry_s, encode_properties(forwarded)


def accepts_bytes_max(packet: Connect) -> int:
    """The largest packet that the client takes (MQTT-3.1.2-24)."""
    return packet.properties.maximum_packet_size or ANY_SIZE


def sent_aliases(packet: Connect, settings: GatewaySettings) -> SentAliases | None:
    """The topic aliases that the gateway may make for a client: none unless it says how many it takes
    (MQTT-3.1.2-27)."""
    limit = min(packet.properties.topic_alias_maximum or 0, settings.topic_alias_sent_max)
    return SentAliases(limit, accepts_bytes_max(packet)) if limit else None


def terms(asked: Arriving, grant: Grant, settings: GatewaySettings, *, present: bool = False) -> Terms:
    """The grants, and whether the session existed; grants that equal the request are left out."""
    client_id = grant.identity.client_id
    return Terms(
        present,
        client_id if grant.was_assigned else None,
        grant.keep_alive_s if grant.keep_alive_s != asked.keep_alive_s else None,
        grant.expiry_s if grant.expiry_s != asked.expiry_s else None,
        settings.receive_max,
        settings.packet_bytes_max,
        settings.topic_alias_max,
        _response_information(asked, client_id, settings.response_prefix),
        settings.shared_subscriptions,
        asked.wants_level,
        settings.qos_max,
        settings.retained_messages,
    )


def _response_information(asked: Arriving, client_id: str, prefix: str) -> str | None:
    """The response information for a client that asks for it: its own id below the prefix (MQTT-3.1.2-28)."""
    if not asked.wants_response_information or not prefix or _UNFIT_FOR_A_NAME.intersection(client_id):
        return None
    return f"{prefix}/{client_id}"


def publish_properties(packet: Publish) -> tuple[int, bytes]:
    """Expiry interval (or ``NEVER``) of a received PUBLISH and the properties to forward, byte for byte as they
    came."""
    expiry_s, encoded = application_properties(packet.properties_raw)
    return NEVER if expiry_s is None else expiry_s, encoded


def stored_form(
    packet: Publish,
    retains: bool,
    route: NameRoute,
    session: Session,
    identity: Identity,
    upstream: Upstream,
    mount: str,
) -> tuple[int, bytes]:
    """Flag and properties with which a received PUBLISH is stored. ``retains``: whether it may become the retained
    message of its name. ``mount``: of its listener. Raises ``InvalidMessage`` for too many properties."""
    expiry_s, application = publish_properties(packet)
    if mount and application:
        application = mounted_properties(mount, application)
    exchange = session.exchange(packet.packet_id, packet.qos)
    user = identity.user_name if retains else ""
    flag = packet.qos | (FLAG_RETAIN if retains else 0) | (FLAG_ONCE if exchange else 0)
    return flag, upstream.properties(route, session.client_id, expiry_s, application, exchange, user)
