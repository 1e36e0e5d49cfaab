"""The formats of payloads by name, and the options of each: a schema, for protobuf also a message's name.

A format is a type and a function from bytes to a value that is then made to fit it. Packages are imported where a
format is made, so that Spark's workers need those of the formats that a query uses.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.errors import InvalidConfig
from penstock.spark.decoders import avro, cbor, ddl, json, msgpack, protobuf, sparkplug
from penstock.spark.decoders.fitting import NOT_PLAIN, Undecodable, column, fitter, plain_column
from penstock.telemetry.decode import PAYLOAD_KEPT_MAX

DATA: Final = "data"
ERROR: Final = "error"
PAYLOAD: Final = "payload"
_REASON_MAX: Final = 300


class Format(NamedTuple):
    """A format of payloads.

    Attributes:
        kind: the type of the values.
        value_of: the value of a payload; an exception is the reason why there is no value.
        needs_name: whether it wants the message's MQTT name beside the payload.
    """

    kind: pa.DataType
    value_of: Callable[..., Any]
    needs_name: bool = False


@lru_cache(maxsize=32)
def format_of(name: str, schema: str, message: str = "") -> Format:
    """A format. Raises ``InvalidConfig`` for an unknown one, and if its schema or message is missing."""
    make = FORMATS.get(name)
    if make is None:
        raise InvalidConfig(f"there is no payload format {name!r}", hint=f"there are {', '.join(FORMATS)}")
    if message and name != "protobuf":
        raise InvalidConfig(f"{name} has no message names", hint="payloadMessage is for protobuf")
    return make(schema, message)


def need(package: str) -> None:
    """Raises ``InvalidConfig`` where a package is missing; here, not once for each payload."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        hint = "`pip install 'penstock[spark]'` brings it; executors need it too"
        raise InvalidConfig(f"a package for these payloads is missing: {error}", hint=hint) from None


def _by_ddl(package: str, value_of: Callable[[bytes], Any]) -> Callable[[str, str], Format]:
    def make(schema: str, message: str) -> Format:
        need(package)
        if not schema:
            raise InvalidConfig("these payloads need a schema", hint="`temp DOUBLE, unit STRING`; infer() finds one")
        return Format(ddl.parse(schema), value_of)

    return make


def _avro(schema: str, message: str) -> Format:
    need("fastavro")
    if not schema:
        raise InvalidConfig("Avro payloads need their schema, in JSON")
    return Format(*avro.make(schema))


def _protobuf(schema: str, message: str) -> Format:
    need("google.protobuf")
    return Format(*protobuf.make(schema, message))


def _sparkplug(schema: str, message: str) -> Format:
    need("google.protobuf")
    if schema:
        raise InvalidConfig("Sparkplug has a schema of its own", hint="leave it out")
    return Format(sparkplug.KIND, sparkplug.value_of, needs_name=True)


FORMATS: Final[Mapping[str, Callable[[str, str], Format]]] = {
    "json": _by_ddl("orjson", json.value_of),
    "msgpack": _by_ddl("msgpack", msgpack.value_of),
    "cbor": _by_ddl("cbor2", cbor.value_of),
    "avro": _avro,
    "protobuf": _protobuf,
    "sparkplug": _sparkplug,
}


def schema_text(name: str, given: str | bytes) -> str:
    """A schema as text, which options and workers take: of protobuf the descriptor set itself, in base64."""
    if name != "protobuf":
        return given if isinstance(given, str) else given.decode()
    if isinstance(given, str):
        if given.startswith(_SET):
            return given
        if not given:
            raise InvalidConfig("protobuf needs a descriptor set", hint="its path, or its bytes")
        try:
            given = Path(given).read_bytes()
        except OSError as error:
            raise InvalidConfig(f"no descriptor set can be read at {given!r}: {error.strerror}") from None
    return _SET + base64.b64encode(given).decode()


_SET: Final = "base64:"


class Decoded(NamedTuple):
    """Columns beside those of the messages: the decoded data, or the error and the payload."""

    data: pa.Array
    error: pa.Array
    payload: pa.Array


def decoded(payloads: Sequence[bytes | None], how: Format, names: Sequence[str | None] | None = None) -> Decoded:
    """Of each payload the data, or its error and the payload itself. Raises nothing, whatever the payloads are.
    ``names``: the messages' MQTT names, where the format needs them."""
    value_of = how.value_of
    values: list[Any] = []
    errors: list[str | None] = [None] * len(payloads)
    for at, payload in enumerate(payloads):
        value = None
        try:
            if payload is None:
                raise Undecodable("there is no payload")
            value = value_of(payload) if names is None else value_of(payload, names[at] or "")
            if value is None:
                raise Undecodable("the payload is null")
        except Exception as error:  # devices send anything, and packages raise anything
            errors[at] = _reason(error)
        values.append(value)
    try:
        data = plain_column(how.kind, values)
    except NOT_PLAIN:
        data = _fitted(how.kind, values, errors)
    kept = [
        None if error is None or payload is None else payload[:PAYLOAD_KEPT_MAX]
        for error, payload in zip(errors, payloads, strict=True)
    ]
    return Decoded(data, pa.array(errors, pa.string()), pa.array(kept, pa.binary()))


def _fitted(kind: pa.DataType, values: list[Any], errors: list[str | None]) -> pa.Array:
    """The column of values fitted one by one; a value that does not fit gets its error."""
    fit = fitter(kind)
    found: list[Any] = []
    for at, value in enumerate(values):
        fitted = None
        if errors[at] is None:
            try:
                fitted = fit(value)
            except Exception as error:
                errors[at] = _reason(error)
        found.append(fitted)
    return column(kind, found)


def _reason(error: Exception) -> str:
    words = str(error) if isinstance(error, Undecodable) else f"{type(error).__name__}: {error}"
    return words.encode("utf-8", "replace").decode()[:_REASON_MAX]
