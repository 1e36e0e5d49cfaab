"""CloudEvents 1.0 as bytes: HTTP's binary, structured and batch mode, JSON, and the properties of a stored message.

An ``Event`` has its attributes as text, as every binary binding has them, and its data as bytes. Decoding is total: any
bytes and headers give events or a ``Problem``. What an event must have is checked here and nowhere else. Pure.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import orjson

from events.json_text import NotJson, read_json
from events.problems import Problem, invalid_event

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
JSON: Final = "application/json"
CE: Final = "CE_"
"""Before the name of an attribute in a property of a stored message, as RocketMQ's CloudEvents binding has it."""
CONTENT_TYPE_PROPERTY: Final = "CE_contenttype"
ATTRIBUTES_MAX: Final = 64
ATTRIBUTES_BYTES_MAX: Final = 64 * 1024
VALUE_CHARACTERS_MAX: Final = 4_096
BATCH_MAX: Final = 10_000
REQUIRED: Final = ("specversion", "id", "source", "type")
_USUAL: Final = frozenset({*REQUIRED, "datacontenttype", "dataschema", "subject", "time", "partitionkey"})

_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_SOURCE: Final = re.compile(r"[^\s<>\"\\^`{|}]+")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_MEDIA_TYPE: Final = re.compile(r"[!#-'*+.0-9A-Z^-z|~-]+/[!#-'*+.0-9A-Z^-z|~-]+([ \t]*;[\t -~]*)?")
_JSON_TYPE: Final = re.compile(r"[^/;\s]+/(?:[^/;\s]*[+/])?json", re.IGNORECASE)
_UNREAD: Final = object()
_INT_MAX: Final = 2**31


class Event:
    """An event: attributes and data.

    Attributes:
        attributes: by name, as text; ``datacontenttype`` among them.
        data: bytes; None where the event has none.
    """

    __slots__ = ("_value", "attributes", "data")

    def __init__(self, attributes: dict[str, str], data: bytes | None = None) -> None:
        self.attributes = attributes
        self.data = data
        self._value: Any = _UNREAD

    @property
    def value(self) -> Any:
        """The data as JSON has it: parsed where ``read_json`` reads it, else text; base64 of bytes that are no text;
        None for none."""
        if self._value is _UNREAD:
            self._value = _value_of(self.data, self.attributes.get("datacontenttype", ""))
        return self._value

    def document(self) -> dict[str, Any]:
        """The event in the JSON format, which patterns and paths see: attributes, and ``data``."""
        return self.attributes | {"data": self.value} if self.data is not None else dict(self.attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and (self.attributes, self.data) == (other.attributes, other.data)

    __hash__ = None  # type: ignore[assignment]  # it holds a dict

    def __repr__(self) -> str:
        return f"Event({self.attributes!r}, {self.data!r:.100})"


def _value_of(data: bytes | None, content_type: str) -> Any:
    if data is None:
        return None
    if not content_type or is_json(content_type):
        try:
            return read_json(data)
        except NotJson:
            pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()


def is_json(content_type: str) -> bool:
    """Whether this media type is JSON's or one of those that end with ``+json``."""
    return content_type == JSON or _JSON_TYPE.fullmatch(media_type(content_type)) is not None


def media_type(content_type: str) -> str:
    """The type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def check(event: Event) -> Event:
    """The event. Raises ``Problem`` where an attribute is missing or wrong."""
    attributes = event.attributes
    if attributes.get("specversion") != "1.0":
        raise invalid_event(f"specversion is {attributes.get('specversion')!r:.40}, expected '1.0'")
    for name in REQUIRED:
        if not attributes.get(name):
            raise invalid_event(f"the attribute {name} is missing or empty")
    if len(attributes) > ATTRIBUTES_MAX:
        raise invalid_event(f"an event has at most {ATTRIBUTES_MAX} attributes, not {len(attributes)}")
    together = "".join(attributes.values())
    is_usual = len(together) <= VALUE_CHARACTERS_MAX and not _CONTROL.search(together) and _USUAL.issuperset(attributes)
    for name, value in () if is_usual else attributes.items():
        if not _NAME.fullmatch(name) or name == "data":
            raise invalid_event(f"an attribute has a name of a-z and 0-9, not {name!r:.80}")
        if len(value) > VALUE_CHARACTERS_MAX or _CONTROL.search(value):
            raise invalid_event(f"{name} holds control characters, or more than {VALUE_CHARACTERS_MAX} characters")
    if not is_usual and len(together.encode()) > ATTRIBUTES_BYTES_MAX:
        raise invalid_event(f"attributes have at most {ATTRIBUTES_BYTES_MAX} bytes together")
    if not _SOURCE.fullmatch(attributes["source"]):
        raise invalid_event(f"source is no URI reference: {attributes['source']!r:.80}")
    content_type = attributes.get("datacontenttype")
    if content_type is not None and content_type != JSON and not is_media_type(content_type):
        raise invalid_event(f"the content type is no media type as in RFC 2045: {content_type!r:.80}")
    if "time" in attributes:
        _check_time(attributes["time"])
    return event


def is_media_type(text: str) -> bool:
    """Whether a text is a media type, as ``type/subtype; parameters``."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def _check_time(text: str) -> None:
    if _TIME.fullmatch(text):
        try:
            datetime.fromisoformat(re.sub(r"\.\d+", "", text.upper().replace("Z", "+00:00")))
            return
        except ValueError:
            pass
    raise invalid_event(f"time is no timestamp as in RFC 3339: {text!r:.80}")


# ---------------------------------------------------------------- JSON


def from_document(document: object) -> Event:
    """An event of the JSON format. Raises ``Problem``."""
    if not isinstance(document, dict):
        raise invalid_event(f"an event is a JSON object, not {type(document).__name__}")
    attributes: dict[str, str] = {}
    for name, value in document.items():
        if name == "data" or name == "data_base64" or value is None:
            continue
        attributes[name] = value if type(value) is str else _text_of(name, value)
    data = _data_of(document, attributes)
    return check(Event(attributes, data))


def _text_of(name: str, value: object) -> str:
    """The canonical text of an attribute. Raises ``Problem``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_INT_MAX <= value < _INT_MAX:
        return str(value)
    raise invalid_event(f"{name!r:.80} is text, a boolean or an integer of 32 bits")


def _data_of(document: Mapping[str, Any], attributes: dict[str, str]) -> bytes | None:
    packed = document.get("data_base64")
    if packed is not None:
        if "data" in document:
            raise invalid_event("an event has data or data_base64, not both")
        try:
            return b64decode(packed, validate=True)
        except (TypeError, ValueError):
            raise invalid_event("data_base64 is no base64") from None
    if "data" not in document:
        return None
    content_type = attributes.get("datacontenttype")
    if content_type is None:
        attributes["datacontenttype"] = JSON
    elif not is_json(content_type):
        if not isinstance(document["data"], str):
            raise invalid_event(f"data of the type {content_type!r:.80} is text; for bytes there is data_base64")
        return document["data"].encode()
    return orjson.dumps(document["data"])


def loads(body: bytes) -> Any:
    """JSON. Raises ``Problem``."""
    try:
        return read_json(body)
    except NotJson as error:
        raise invalid_event(f"the body is no JSON: {error}") from None


def to_document(event: Event) -> dict[str, Any]:
    """The JSON format of an event; data that is no JSON and no text is in ``data_base64``."""
    if event.data is None:
        return dict(event.attributes)
    content_type = event.attributes.get("datacontenttype", "")
    try:
        if content_type and is_json(content_type):
            return event.attributes | {"data": read_json(event.data)}
        if content_type:
            return event.attributes | {"data": event.data.decode()}
    except ValueError:
        pass
    return event.attributes | {"data_base64": b64encode(event.data).decode()}


def to_json(event: Event) -> bytes:
    """The structured mode's body."""
    return orjson.dumps(to_document(event))


# ---------------------------------------------------------------- HTTP


def from_http(headers: Iterable[tuple[str, str]], body: bytes) -> list[Event]:
    """The events of a request, in any mode. ``headers``: names in lower case. Raises ``Problem``."""
    ce: dict[str, str] = {}
    content_type = ""
    for name, value in headers:
        if name == "content-type":
            content_type = value
        elif name.startswith("ce-"):
            if name in ce:
                raise invalid_event(f"{name} stands in the request twice")
            ce[name] = value
    kind = media_type(content_type)
    if kind == BATCH:
        documents = loads(body)
        if not isinstance(documents, list):
            raise invalid_event("a batch is a JSON array")
        if len(documents) > BATCH_MAX:
            raise Problem(413, "too-large", f"a batch has at most {BATCH_MAX} events, not {len(documents)}")
        return [_of_batch(at, one) for at, one in enumerate(documents)]
    if kind == STRUCTURED:
        return [from_document(loads(body))]
    if kind.startswith("application/cloudevents"):
        raise Problem(415, "unknown-content-type", f"expected {STRUCTURED} or {BATCH}, not {kind!r:.80}")
    if "ce-specversion" not in ce:
        detail = f"expected {STRUCTURED}, {BATCH}, or the headers ce-specversion, ce-id, ce-source and ce-type"
        raise Problem(415, "unknown-content-type", detail)
    attributes = {name[3:]: _header_text(name, value) for name, value in ce.items()}
    if "datacontenttype" in attributes:
        raise invalid_event("ce-datacontenttype is none: the type of the data is Content-Type")
    if content_type:
        attributes["datacontenttype"] = content_type
    return [check(Event(attributes, body if body or content_type else None))]


def _of_batch(at: int, document: object) -> Event:
    try:
        return from_document(document)
    except Problem as error:
        raise Problem(error.status, error.code, f"event {at}: {error.detail}", index=at) from None


def _header_text(name: str, value: str) -> str:
    """The text of a ``ce-`` header, which stands percent-encoded there."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value.encode("latin-1", "strict")).decode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        raise invalid_event(f"{name} is not UTF-8") from None


def to_headers(event: Event) -> dict[str, str]:
    """The headers of the binary mode, ``content-type`` among them."""
    headers = {
        f"ce-{name}": quote(value, safe="!#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
        for name, value in event.attributes.items()
        if name != "datacontenttype"
    }
    if "datacontenttype" in event.attributes:
        headers["content-type"] = event.attributes["datacontenttype"]
    return headers


# ---------------------------------------------------------------- stored messages


def to_properties(event: Event) -> dict[str, str]:
    """The properties of the message that stores an event; its body is the data."""
    properties = {CE + name: value for name, value in event.attributes.items() if name != "datacontenttype"}
    if "datacontenttype" in event.attributes:
        properties[CONTENT_TYPE_PROPERTY] = event.attributes["datacontenttype"]
    if event.data is None:
        properties["CE_NODATA"] = "1"
    return properties


def from_properties(properties: Mapping[str, str], body: bytes) -> Event | None:
    """The event that a message stores; None where it stores none. Not checked: it is in the log, whatever it is."""
    if CE + "specversion" not in properties:
        return None
    attributes = {name[3:]: value for name, value in properties.items() if name.startswith(CE)}
    content_type = attributes.pop("contenttype", "")
    if content_type:
        attributes["datacontenttype"] = content_type
    data = None if attributes.pop("NODATA", "") else body
    return Event(attributes, data)
