"""Settings from a file, the environment and flags, in order of increasing weight, checked against a frozen dataclass.

A setting is a field; its type says what it takes: ``str``, ``int``, ``float``, ``bool``, ``Path`` or
``tuple[str, ...]``. A field with ``bytes`` in its name also takes sizes such as ``"512MiB"``, one with ``s`` durations
such as ``"30s"``. Nothing is guessed: an unknown name, a wrong type or a value out of its limits is an
``InvalidConfig`` that says where it stands, what was expected and, for a name, which known one is nearest. It reads the
one file it is told to, and nothing else of the outside world.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from penstock.errors import InvalidConfig

T = TypeVar("T")

_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_SIZES: Final = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)
}
_DURATIONS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})
_NAMES: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    tuple[str, ...]: "a list of strings",
}


def load(
    cls: type[T],
    path: Path | None,
    environ: Mapping[str, str],
    prefix: str,
    overrides: Mapping[str, object] | None = None,
) -> T:
    """The settings of a TOML file (none if ``path`` is None), then of ``PREFIX_FIELD`` variables, then ``overrides``.

    Raises:
        InvalidConfig: the file cannot be read or is no TOML, or as ``load_table``.
    """
    return load_table(cls, read_file(path), environ, prefix, overrides, source=str(path or "the environment"))


def read_file(path: Path | None) -> dict[str, Any]:
    """The table of a TOML file, empty without one. Raises ``InvalidConfig``."""
    if path is None:
        return {}
    try:
        table = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: {error}") from None
    _refuse_nul(table, str(path))
    return table


def _refuse_nul(value: object, where: str) -> None:
    """What holds a NUL is no path and no name, and no process can be told it."""
    if isinstance(value, dict):
        for name, one in value.items():
            _refuse_nul(one, f"{where}: {name}")
    elif isinstance(value, list):
        for one in value:
            _refuse_nul(one, where)
    elif isinstance(value, str) and "\0" in value:
        raise InvalidConfig(f"{where} holds a NUL")


def load_table(
    cls: type[T],
    table: Mapping[str, object],
    environ: Mapping[str, str],
    prefix: str,
    overrides: Mapping[str, object] | None = None,
    *,
    source: str = "settings",
    others: Collection[str] = (),
) -> T:
    """The same from a table that was read already; ``source`` names it in errors. Variables among ``others`` have other
    readers and are passed over; a name there that ends in ``_`` stands for all that begin so.

    Raises:
        InvalidConfig: an unknown setting, a value of a wrong type or outside its limits, a missing one.
    """
    kinds = typing.get_type_hints(cls)
    fields = {one.name: kinds[one.name] for one in dataclasses.fields(cast(Any, cls)) if one.init}
    values: dict[str, Any] = {}
    for name, value in table.items():
        values[name] = _typed(fields, name, value, f"{source}: {name}")
    for variable, field in _variables(environ, prefix, fields, others).items():
        values[field] = _parsed(fields[field], field, environ[variable], variable)
    for name, value in (overrides or {}).items():
        values[name] = _typed(fields, name, value, name)
    return _made(cls, values, source)


def _made(cls: type[T], values: Mapping[str, Any], source: str) -> T:
    missing = [
        one.name
        for one in dataclasses.fields(cast(Any, cls))
        if one.name not in values and one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InvalidConfig(f"{source}: the setting {missing[0]!r} is missing")
    try:
        return cls(**values)
    except InvalidConfig as error:  # of a __post_init__, as the next
        raise InvalidConfig(f"{source}: {error.message}", hint=error.hint) from None
    except ValueError as error:
        raise InvalidConfig(f"{source}: {error}") from None


def _variables(
    environ: Mapping[str, str], prefix: str, fields: Mapping[str, Any], others: Collection[str]
) -> dict[str, str]:
    """Variable -> field, for all that begin with the prefix."""
    families = tuple([name for name in others if name.endswith("_")])
    found: dict[str, str] = {}
    for variable in sorted(environ):
        if not variable.startswith(prefix + "_"):
            continue
        field = variable[len(prefix) + 1 :].lower()
        if field in fields:
            found[variable] = field
        elif variable not in others and not variable.startswith(families):
            near = _nearest(field, fields)
            raise InvalidConfig(
                f"the environment variable {variable} names no setting",
                hint=f"did you mean {prefix}_{near.upper()}?" if near else "",
            )
    return found


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), "")


def _typed(fields: Mapping[str, Any], name: str, value: object, where: str) -> Any:
    """A value that has a type already: of TOML, or of the code that overrides."""
    if name not in fields:
        near = _nearest(name, fields)
        raise InvalidConfig(f"{where} is no setting", hint=f"did you mean {near!r}?" if near else "")
    kind = fields[name]
    if isinstance(value, str) and (kind in (int, float)):
        return _quantity(kind, name, value, where)
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind == tuple[str, ...] and isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if kind in (str, int, float, bool) and type(value) is kind:
        return _finite(value, where)
    raise _mistyped(kind, where, value)


def _parsed(kind: Any, name: str, text: str, where: str) -> Any:
    """A value as the environment has it: text."""
    if kind is bool:
        if text.lower() not in _YES | _NO:
            raise _mistyped(kind, where, text)
        return text.lower() in _YES
    if kind in (int, float):
        return _quantity(kind, name, text, where)
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return kind(text)


def _quantity(kind: Callable[[float], Any], name: str, text: str, where: str) -> Any:
    """A number, with a unit where the field's name allows one."""
    words = name.split("_")
    units: Mapping[str, float] = _SIZES if "bytes" in words else _DURATIONS if "s" in words else {"": 1}
    negative = text.strip().startswith("-")
    match = _NUMBER.fullmatch(text.strip().removeprefix("-"))
    if match is None or match[2] not in units:
        expected = ", ".join(unit for unit in units if unit)
        hint = f"write a number with one of {expected}" if expected else ""
        raise InvalidConfig(f"{where}: expected {_NAMES[kind]}, got {text!r}", hint=hint)
    whole = int(match[1]) if "." not in match[1] else float(match[1])
    value = whole * units[match[2]] * (-1 if negative else 1)
    if kind is int and value != int(value):
        raise _mistyped(kind, where, text)
    return _finite(kind(value), where)


def _finite(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidConfig(f"{where}: {value} is no number to work with")
    return value


def _mistyped(kind: Any, where: str, value: object) -> InvalidConfig:
    return InvalidConfig(f"{where}: expected {_NAMES.get(kind, kind)}, got {value!r}")
