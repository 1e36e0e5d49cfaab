"""The control packets of MQTT 3.1, 3.1.1 and 5.0 as values: what they say, not how they are written.

One class per packet, all immutable to the type checker. One shape serves all levels: what a level does not have is
at its default (``properties`` is ``NO_PROPERTIES``, reason codes are 0), and CONNECT says which level it asks for.
``gateway/mqtt/codec.py`` turns them into bytes and back. Nothing is checked here: a packet from the codec is legal,
one made by hand is as legal as its maker.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from gateway.mqtt.properties import NO_PROPERTIES, Properties
from penstock.values import value

LEVEL_3_1: Final = 3
LEVEL_3_1_1: Final = 4
LEVEL_5: Final = 5
LEVELS: Final = (LEVEL_3_1, LEVEL_3_1_1, LEVEL_5)


@value
class Will:
    """Message that the server publishes if the client goes without a DISCONNECT (MQTT 5, 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@value
class Connect:
    """CONNECT. ``level`` is 3, 4 or 5; ``clean_start`` is called clean session before MQTT 5."""

    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    user_name: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    level: int = LEVEL_3_1_1


@value
class Connack:
    """CONNACK. ``reason_code`` is a return code (0 to 5) before MQTT 5."""

    session_present: bool
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@value
class Publish:
    """PUBLISH.

    Attributes:
        topic: empty only where a topic alias stands for it.
        packet_id: 0 with QoS 0.
        properties_raw: the property block as it was received, without its length; not used for encoding.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES
    properties_raw: bytes = field(default=b"", compare=False, repr=False)


@value
class Puback:
    """PUBACK: the answer to a PUBLISH with QoS 1."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@value
class Pubrec:
    """PUBREC: first answer to a PUBLISH with QoS 2."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@value
class Pubrel:
    """PUBREL: the answer to a PUBREC."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@value
class Pubcomp:
    """PUBCOMP: the answer to a PUBREL."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@value
class Subscription:
    """One filter of a SUBSCRIBE with its options; before MQTT 5 there is only ``qos``."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@value
class Subscribe:
    """SUBSCRIBE, with one filter or more."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


@value
class Suback:
    """SUBACK: one code per filter, in the order of the SUBSCRIBE (MQTT-3.8.4-6)."""

    packet_id: int
    reason_codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@value
class Unsubscribe:
    """UNSUBSCRIBE, with one filter or more."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@value
class Unsuback:
    """UNSUBACK: one code per filter in MQTT 5, none before."""

    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


@value
class Pingreq:
    """PINGREQ."""


@value
class Pingresp:
    """PINGRESP."""


@value
class Disconnect:
    """DISCONNECT. Before MQTT 5 only the client sends it, and it says nothing."""

    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@value
class Auth:
    """AUTH, of MQTT 5 only."""

    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
