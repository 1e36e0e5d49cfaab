"""The schema of a sample of decoded values. Pure.

Whole numbers are BIGINT, together with others DOUBLE; objects STRUCT, of all fields that were seen. Values of different
kinds are STRING, which takes anything as JSON; so are fields that are always null. Where most values are objects, the
schema is that of the objects: the others become bad rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.errors import InvalidConfig
from penstock.spark.decoders.ddl import TIME, columns_of, text_of

_NULL: Final = pa.null()
_EMPTY: Final = pa.map_(pa.string(), _NULL)
"""An object without a field."""
_FIELDS_MAX: Final = 1000
"""An object with more fields is a map: its keys are data."""
_DEPTH_MAX: Final = 16


def infer_text(values: Iterable[Any]) -> str:
    """The schema of the values as text. Raises ``InvalidConfig`` if all are null."""
    found = _NULL
    sample = [value for value in values if value is not None]
    objects = [value for value in sample if isinstance(value, dict)]
    for value in objects if 2 * len(objects) > len(sample) else sample:
        found = _joined(found, _kind(value, 0))
    if found == _NULL:
        raise InvalidConfig("nothing of the sample can be decoded; there is no schema to infer")
    found = _known(found)
    return columns_of(found) if pa.types.is_struct(found) else text_of(found)


def _kind(value: Any, depth: int) -> pa.DataType:
    if depth > _DEPTH_MAX:
        return pa.string()
    if isinstance(value, dict):
        return _of_object(value, depth)
    if isinstance(value, list | tuple):
        inner = _NULL
        for one in value:
            inner = _joined(inner, _kind(one, depth + 1))
        return pa.list_(inner)
    for types, kind in _SIMPLE:
        if isinstance(value, types):
            return kind
    return pa.string()


_SIMPLE: Final[tuple[tuple[type | tuple[type, ...], pa.DataType], ...]] = (
    (type(None), _NULL),
    (bool, pa.bool_()),
    (int, pa.int64()),
    ((float, Decimal), pa.float64()),
    (bytes, pa.binary()),
    (datetime, TIME),
    (date, pa.date32()),
)


def _of_object(value: dict[Any, Any], depth: int) -> pa.DataType:
    kinds = {str(name): _kind(one, depth + 1) for name, one in value.items() if str(name)}
    if not kinds or len(kinds) > _FIELDS_MAX:
        inner = _NULL
        for kind in kinds.values():
            inner = _joined(inner, kind)
        return pa.map_(pa.string(), inner)
    return pa.struct(list(kinds.items()))


def _joined(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or other == _NULL:
        return one
    if one == _NULL:
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        kinds = {field.name: field.type for field in one}
        for field in other:
            kinds[field.name] = _joined(kinds.get(field.name, _NULL), field.type)
        return pa.struct(list(kinds.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_joined(one.value_type, other.value_type))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_map(one) and pa.types.is_map(other):
        return pa.map_(pa.string(), _joined(one.item_type, other.item_type))
    if _EMPTY in (one, other) and (pa.types.is_struct(one) or pa.types.is_struct(other)):
        return other if one == _EMPTY else one
    return pa.string()


def _known(kind: pa.DataType) -> pa.DataType:
    """The type, with STRING where only nulls were seen."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _known(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _known(kind.item_type))
    return pa.string() if kind == _NULL else kind
