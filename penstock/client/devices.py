"""Messages to one device: the name that stands for it, and the message. Pure.

A device with the client id ``d7`` gets what is published under ``$p2p/d7`` if it has subscribed to that. Such messages
are stored like any others, so all that the broker does with messages it does with them: delay, transactions, retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from penstock.client.arguments import check_text
from penstock.client.preparation import as_message
from penstock.errors import InvalidRequest
from penstock.protocol.message import Message
from topicmap.names import InvalidName, device_name


class DeviceFields(TypedDict, total=False):
    """What ``send_to_device`` takes beside a client id and a body: fields of a ``Message``."""

    key: str | bytes
    tag: str
    properties: Mapping[str, str] | None
    qos: int


def device_message(
    client_id: str,
    body: bytes,
    *,
    key: str | bytes = "",
    tag: str = "",
    properties: Mapping[str, str] | None = None,
    qos: int = 1,
) -> Message:
    """A message for one device, to be sent by any way there is.

    Args:
        client_id: the device's MQTT client id.
        key: what its order and ``penstock find`` go by; without it the client id.
        qos: the most that the device gets it with; it waits for an absent device from 1 on.

    Raises:
        InvalidRequest: the client id cannot be a level of an MQTT name, so that no name stands for the device.
        InvalidMessage: another argument is of a wrong type.
    """
    check_text("client_id", client_id)
    try:
        name = device_name(client_id)
    except InvalidName as error:
        raise InvalidRequest(f"no name stands for the client id {client_id!r}: {error}") from None
    return as_message("", body, key or client_id, tag, properties, name, qos)
