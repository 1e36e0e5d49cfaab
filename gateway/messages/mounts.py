"""Mount points: a listener's prefix before every name and filter of its clients, which they never see.

A client at a listener with the mount ``plants/a/`` that publishes ``x`` publishes ``plants/a/x``, and is sent what is
published there as ``x``: names, wills, retained messages, response topics, filters and those of shared subscriptions
alike. Names that begin with ``$`` stay as they are, so that they are refused as at every listener; so do response
topics under ``$reply``; filters never do. Access rules, logs and all that is stored have the full name. A mount ends in
a slash; empty is none. Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.messages.envelope import Arrival, Heading
from gateway.mqtt.primitives import FieldReader, encode_text
from gateway.mqtt.properties import BY_IDENTIFIER
from gateway.settings import STRING_BYTES_MAX
from topicmap.names import InvalidName, is_reply, is_share, parse_share

_RESPONSE_TOPIC: Final = 0x08


def mounted_name(mount: str, name: str) -> str:
    """The full name of what a client calls ``name``."""
    return name if name.startswith("$") else mount + name


def mounted_filter(mount: str, filter: str) -> str:
    """The full filter of what a client calls ``filter``; one that is none stays as it is, and is refused."""
    try:
        share = parse_share(filter)
    except InvalidName:
        return filter
    if share is None:
        return mount + filter if filter else filter
    return f"{filter[: len(filter) - len(share.filter)]}{mount}{share.filter}"


def is_mounted(mount: str, filter: str) -> bool:
    """Whether a full filter is one of this mount."""
    plain = filter.split("/", 2)[-1] if is_share(filter) else filter
    return plain.startswith(mount)


def mounted_properties(mount: str, application: bytes) -> bytes:
    """Properties to be forwarded, with the full response topic."""
    return _with_response(application, "", mount)


def seen_at(mount: str, arrival: Arrival) -> Arrival | None:
    """A message as clients of this mount are sent it; ``None`` if it is not for them."""
    heading = arrival.heading
    if not heading.name.startswith(mount) or len(heading.name) == len(mount):
        return None
    application = _with_response(heading.application, mount, "") if heading.application else b""
    common = heading.name, heading.sender, heading.expiry_s, application, heading.topic, heading.user
    return arrival.with_heading(Heading(*common, hidden=len(mount)))


def _with_response(application: bytes, cut: str, put: str) -> bytes:
    """Encoded properties whose response topic has ``put`` in the place of ``cut`` at its beginning; one that does not
    begin so, or has too many bytes then, is left out."""
    cursor, parts = FieldReader(application), []
    while cursor.at < cursor.end:
        start = cursor.at
        identifier = cursor.variable_integer()
        value = BY_IDENTIFIER[identifier].kind.read(cursor)
        if identifier != _RESPONSE_TOPIC or is_reply(value):
            parts.append(application[start : cursor.at])
        elif value.startswith(cut) and len(value) > len(cut):
            response = put + value[len(cut) :]
            if len(response.encode()) <= STRING_BYTES_MAX:
                parts.append(bytes((_RESPONSE_TOPIC,)) + encode_text(response))
    return b"".join(parts)
