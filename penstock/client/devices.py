"""Messages to one device: its MQTT name, and the message. Pure.

A device with the client id ``d7`` receives messages under ``$p2p/d7`` if it has subscribed to that name. The broker
stores them like any others, so delay, transactions and retries work with them too.
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
    """The fields of a ``Message`` that ``send_to_device`` takes beside a client id and a body."""

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
    """A message for one device, for ``send``, ``send_many``, ``transaction`` and all other ways to send.

    Args:
        client_id: the device's MQTT client id.
        key: key for the order and for ``penstock find``; the client id if left out.
        qos: maximum QoS of the delivery; with 1 or 2 the message waits for an absent device.

    Raises:
        InvalidRequest: the client id cannot be a level of an MQTT name.
        InvalidMessage: another argument is of a wrong type.
    """
    check_text("client_id", client_id)
    try:
        name = device_name(client_id)
    except InvalidName as error:
        raise InvalidRequest(f"the client id {client_id!r} cannot be part of a name: {error}") from None
    return as_message("", body, key or client_id, tag, properties, name, qos)
