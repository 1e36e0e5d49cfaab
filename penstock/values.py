"""Values: immutable objects that compare, hash and print by their fields.

They are dataclasses, but ``dataclass`` would write and compile each method for each class, which took a quarter of a
service's start. Here only ``__init__`` is made for each class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform

_Kind = TypeVar("_Kind")
_Read = Callable[[Any], object]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_Kind]) -> type[_Kind]:
    """Makes a class an immutable dataclass. The type checker enforces it: a check at run time would make each object
    several times as dear, and every message sent or pulled makes several."""
    for name, method in _METHODS.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return dataclass(slots=True, eq=False, repr=False)(cls)


_READ: Final[dict[type, _Read]] = {}
"""How all that a value compares by is read at once; by its class, from the first comparison on."""


def _read(cls: Any) -> _Read:
    names = [one.name for one in fields(cls) if one.compare]
    return _READ.setdefault(cls, attrgetter(*names) if names else _nothing)


def _nothing(_: object) -> object:
    return ()


def _equals(self: object, other: object) -> Any:
    cls = type(self)
    if type(other) is not cls:
        return NotImplemented
    read = _READ.get(cls) or _read(cls)
    return read(self) == read(other)


def _hash(self: object) -> int:
    cls = type(self)
    return hash((_READ.get(cls) or _read(cls))(self))


def _shown(self: Any) -> str:
    told = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return f"{type(self).__qualname__}({', '.join(told)})"


_METHODS: Final = {"__eq__": _equals, "__hash__": _hash, "__repr__": _shown}
