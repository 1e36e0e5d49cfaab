"""Decoded values made to fit a schema, and columns of them. Pure.

An error names the path of the field that does not fit: ``temp: 'hot' is no DOUBLE``. A field that is missing or null is
null; one that the schema does not name is left out. Numbers are never cut: 1.5 is no BIGINT, and true no DOUBLE.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import orjson
import pyarrow as pa

from penstock.spark.decoders.ddl import TIME, text_of
from penstock.telemetry.decode import SECONDS_MAX

Fit = Callable[[Any], Any]
_MICROSECONDS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The years 1 to 9999."""
_SHOWN: Final = 40
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Undecodable(ValueError):
    """The reason why a payload gives no row of the schema."""


NOT_PLAIN: Final = (Undecodable, pa.ArrowException, OverflowError, UnicodeError, TypeError)
"""Exceptions that ``plain_column`` raises."""


def fitter(kind: pa.DataType) -> Fit:
    """The function that makes a decoded value fit a type; a struct becomes a list of its fields. It raises
    ``Undecodable``."""
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    for one, fit in _PLAIN:
        if one == kind:
            return fit
    raise AssertionError(f"no schema has {kind}")


def column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """An Arrow column of values that fit."""
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    fields = list(kind)
    empty = [None] * len(fields)
    columns = list(zip(*[empty if one is None else one for one in values], strict=True)) or [()] * len(fields)
    children = [column(field.type, child) for field, child in zip(fields, columns, strict=True)]
    mask = pa.array([one is None for one in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def plain_column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """The same of values as they were decoded, column by column: no Python runs for a value of a plain type.

    Raises ``NOT_PLAIN`` where one does not fit, or takes more than a look at its type.
    """
    types = set(map(type, values))
    if pa.types.is_struct(kind):
        if not types <= _OBJECTS:
            raise Undecodable("not all are objects")
        fields = list(kind)
        if _NONE in types:
            taken = [[None if one is None else one.get(field.name) for one in values] for field in fields]
        else:
            taken = [[one.get(field.name) for one in values] for field in fields]
        children = [plain_column(field.type, column) for field, column in zip(fields, taken, strict=True)]
        mask = pa.array([one is None for one in values], pa.bool_()) if _NONE in types else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    for one, plain in _PLAIN_TYPES:
        if one == kind and types <= plain:
            return pa.array(values, kind)
    fit = fitter(kind)
    return column(kind, [None if one is None else fit(one) for one in values])


_NONE: Final[type] = type(None)
_OBJECTS: Final[set[type]] = {dict, _NONE}
_WHOLE: Final[set[type]] = {int, _NONE}
_PLAIN_TYPES: Final[Sequence[tuple[pa.DataType, set[type]]]] = (
    (pa.float64(), {float, int, _NONE}),
    (pa.int64(), _WHOLE),
    (pa.string(), {str, _NONE}),
    (pa.bool_(), {bool, _NONE}),
    (pa.binary(), {bytes, _NONE}),
    (pa.int32(), _WHOLE),
)


def _wrong(value: Any, kind: pa.DataType) -> Undecodable:
    shown = repr(value) if not isinstance(value, dict | list | tuple) else _NAMES[type(value)]
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    name = "object" if pa.types.is_struct(kind) else text_of(kind)
    return Undecodable(f"{shown} is no {name}")


_NAMES: Final[dict[type, str]] = {dict: "an object", list: "a list", tuple: "a list"}


def _struct(kind: pa.DataType) -> Fit:
    fields = [(field.name, fitter(field.type)) for field in kind]

    def fit(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _wrong(value, kind)
        get = value.get
        try:
            return [None if (one := get(name)) is None else fit_one(one) for name, fit_one in fields]
        except Undecodable:
            raise _with_path(value, fields) from None

    return fit


def _with_path(value: dict[Any, Any], fields: list[tuple[str, Fit]]) -> Undecodable:
    """The error of the first field that does not fit, with its name."""
    for name, fit in fields:
        try:
            if value.get(name) is not None:
                fit(value[name])
        except Undecodable as error:
            said = str(error)
            return Undecodable(f"{name}{'.' if _has_path(said) else ': '}{said}")
    raise AssertionError("a field did not fit before")


def _has_path(said: str) -> bool:
    head, colon, _ = said.partition(": ")
    return bool(colon) and " is no " not in head


def _list(kind: pa.DataType) -> Fit:
    one = fitter(kind.value_type)
    is_struct = pa.types.is_struct(kind.value_type)

    def fit(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong(value, kind)
        fitted = [None if item is None else one(item) for item in value]
        return _named(kind.value_type, fitted) if is_struct else fitted

    return fit


def _map(kind: pa.DataType) -> Fit:
    one = fitter(kind.item_type)
    is_struct = pa.types.is_struct(kind.item_type)

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, kind)
        items = [None if item is None else one(item) for item in value.values()]
        items = _named(kind.item_type, items) if is_struct else items
        return list(zip(map(_text, value), items, strict=True))

    return fit


def _named(kind: pa.DataType, values: list[Any]) -> list[Any]:
    """Fields within lists and maps have their names again, as ``pa.array`` wants them."""
    fields = list(kind)

    def named(value: Any) -> Any:
        if value is None:
            return None
        return {
            field.name: _named(field.type, [one])[0] if pa.types.is_struct(field.type) else one
            for field, one in zip(fields, value, strict=True)
        }

    return [named(value) for value in values]


def _integer(kind: pa.DataType) -> Fit:
    least, most = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1

    def fit(value: Any) -> int | None:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is int and least <= value <= most:
            return value
        if value is None:
            return None
        raise _wrong(value, kind)

    return fit


def _double(value: Any) -> float | None:
    if type(value) is float or value is None:
        return value
    if type(value) is int or isinstance(value, Decimal):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _wrong(value, pa.float64())


def _boolean(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(value, pa.bool_())


def _text(value: Any) -> str | None:
    """Text as it is; anything else as JSON, as Spark's ``from_json`` has it."""
    if value is None or type(value) is str:
        return value
    try:
        text = orjson.dumps(value, default=_in_json, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        raise _wrong(value, pa.string()) from None
    return str(orjson.loads(text)) if text.startswith('"') else text  # a time, bytes or the like


def _in_json(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _binary(value: Any) -> bytes | None:
    """Bytes as they are, and text as base64."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            pass
    raise _wrong(value, pa.binary())


def _moment(value: Any) -> int | None:
    """Microseconds since 1970 of seconds, milliseconds, ISO 8601 or a time."""
    found: int | None = None
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _wrong(value, TIME) from None
    if isinstance(value, datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        found = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    elif type(value) in (int, float) and math.isfinite(value):
        found = round(value * (1_000_000 if abs(value) < SECONDS_MAX else 1000))
    if found is None or not _MICROSECONDS[0] <= found <= _MICROSECONDS[1]:
        raise _wrong(value, TIME)
    return found


def _date(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if value is None or isinstance(value, date):
        return value
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise _wrong(value, pa.date32())


def _decimal(kind: pa.DataType) -> Fit:
    exact = Context(prec=kind.precision)
    unit = Decimal(1).scaleb(-kind.scale)

    def fit(value: Any) -> Decimal | None:
        if value is None:
            return None
        if type(value) in (int, float, str) or isinstance(value, Decimal):
            try:
                return Decimal(str(value)).quantize(unit, context=exact)
            except InvalidOperation:
                pass
        raise _wrong(value, kind)

    return fit


_PLAIN: Final[Sequence[tuple[pa.DataType, Fit]]] = (
    (pa.bool_(), _boolean),
    (pa.float32(), _double),
    (pa.float64(), _double),
    (pa.string(), _text),
    (pa.binary(), _binary),
    (TIME, _moment),
    (pa.date32(), _date),
)
