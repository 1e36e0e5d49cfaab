"""Settings from a file, the environment and flags, in order of increasing weight, checked against a frozen dataclass.

A setting is a field (``setting.py``); its type says what it takes: ``str``, ``int``, ``float``, ``bool``, ``Path``,
``tuple[str, ...]`` or ``tuple[float, ...]``. A field with ``bytes`` in its name also takes sizes such as ``"512MiB"``,
one whose name ends in ``_s`` durations such as ``"30s"``. All errors are told at once, in one ``InvalidConfig``: an
unknown name, a wrong type or a value out of its limits, each with file and line, what was expected and, for a name,
which known one is nearest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from penstock.errors import InvalidConfig
from penstock.service.setting import declared, settable
from penstock.service.toml_lines import Keys, key_lines

T = TypeVar("T")

_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_SIZES: Final = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)
}
_DURATIONS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_NO_LINES: Final[Mapping[Keys, int]] = MappingProxyType({})
_NONE_FORMER: Final[Mapping[str, str]] = MappingProxyType({})
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})
_NAMES: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    tuple[str, ...]: "a list of strings",
    tuple[float, ...]: "a list of numbers",
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
    table, source = read_file(path)
    return load_table(cls, table, environ, prefix, overrides, source=source)


class Source:
    """Place where settings stand, for errors: a file with the lines of its keys, or something that has no lines.
    ``tables``: in which table of it."""

    def __init__(self, name: str, lines: Mapping[Keys, int] = _NO_LINES, tables: Keys = ()) -> None:
        self._name = name
        self._lines = lines
        self._tables = tables

    def table(self, name: str) -> Source:
        """The same for the settings in a table of it."""
        return Source(self._name, self._lines, (*self._tables, name))

    def at(self, name: str = "") -> str:
        """The place in an error about a setting, or about all of them: ``penstock.toml:3: [broker]``."""
        line = self._lines.get((*self._tables, name) if name else self._tables)
        place = f"{self._name}:{line}:" if line else f"{self._name}:"
        return f"{place} {self.within}".rstrip()

    @property
    def within(self) -> str:
        """The table alone, ``[broker]``; empty at the top."""
        return f"[{'.'.join(self._tables)}]" if self._tables else ""


SOME_SETTINGS: Final = Source("settings")
"""What errors call settings of which nothing more is known."""


def read_file(path: Path | None) -> tuple[dict[str, Any], Source]:
    """The table of a TOML file, empty without one, and what errors call it. Raises ``InvalidConfig``."""
    if path is None:
        return {}, Source("the environment")
    try:
        text = path.read_bytes().decode()
        table = tomllib.loads(text)
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: {error}") from None
    _refuse_nul(table, str(path))
    return table, Source(str(path), key_lines(text))


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


class Faults:
    """All that is wrong with some settings, to be told at once."""

    def __init__(self) -> None:
        self._errors: dict[str, InvalidConfig] = {}  # by what they say: none is told twice

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, error: InvalidConfig) -> None:
        """One more; an error that tells of several is as many."""
        for one in error.parts or (error,):
            self._errors.setdefault(str(one), one)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """What is raised inside is added."""
        try:
            yield
        except InvalidConfig as error:
            self.add(error)

    def raise_all(self) -> None:
        """Raises ``InvalidConfig`` if there are any: the only one, or one that tells of all."""
        errors = tuple(self._errors.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            lines = "\n  ".join(self._errors)
            raise InvalidConfig(f"{len(errors)} settings are wrong:\n  {lines}", parts=errors)


def load_table(
    cls: type[T],
    table: Mapping[str, object],
    environ: Mapping[str, str],
    prefix: str,
    overrides: Mapping[str, object] | None = None,
    *,
    source: Source = SOME_SETTINGS,
    others: Collection[str] = (),
) -> T:
    """The same from a table that was read already; ``source`` names it in errors. Variables among ``others`` have other
    readers and are passed over; a name there that ends in ``_`` stands for all that begin so.

    Raises:
        InvalidConfig: unknown settings, values of a wrong type or outside their limits, missing ones: all of them.
    """
    kinds = typing.get_type_hints(cls)
    all_fields = {one.name: kinds[one.name] for one in dataclasses.fields(cast(Any, cls)) if one.init}
    fields = {name: all_fields[name] for name in settable(cls)}
    former = former_names(cls)
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    faults = Faults()
    for name, value in table.items():
        places[name] = source.at(name)
        with faults.collected():
            values[name] = _typed(fields, name, value, f"{source.at(name)} {name}", former)
    for variable, field in _variables(environ, prefix, fields, others, former, faults).items():
        places[field] = f"{variable}:"
        with faults.collected():
            values[field] = _parsed(fields[field], field, environ[variable], variable)
    for name, value in (overrides or {}).items():
        places[name] = source.within
        with faults.collected():
            values[name] = _typed(all_fields, name, value, name, former)
    if faults:
        _find_beyond_limits(cls, values, places, faults)
        faults.raise_all()
    return _made(cls, values, source.at(), places)


def former_names(cls: Any) -> Mapping[str, str]:
    """Names that were settings once, each with what to do instead."""
    constants = {name for name, one in declared(cls).items() if one.is_constant}
    return dict.fromkeys(constants, "leave it out: Penstock chooses it now") | dict(getattr(cls, "FORMER", {}))


def _find_beyond_limits(cls: type[T], values: Mapping[str, Any], places: Mapping[str, str], faults: Faults) -> None:
    """Adds the values that a class of settings refuses even by themselves, each with its place."""
    needed = {name: values[name] for name in _needed(cls) if name in values}
    if len(needed) < len(_needed(cls)):
        return
    for name, value in values.items():
        try:
            cls(**(needed | {name: value}))
        except InvalidConfig as error:
            faults.add(InvalidConfig(f"{places[name]} {error.message}".lstrip(), hint=error.hint))
        except ValueError as error:
            faults.add(InvalidConfig(f"{places[name]} {error}".lstrip()))


def _needed(cls: type[Any]) -> list[str]:
    """The settings that have no default."""
    return [
        one.name
        for one in dataclasses.fields(cast(Any, cls))
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]


def _made(cls: type[T], values: Mapping[str, Any], where: str, places: Mapping[str, str]) -> T:
    faults = Faults()
    for name in _needed(cls):
        if name not in values:
            faults.add(InvalidConfig(f"{where} the setting {name!r} is missing"))
    faults.raise_all()
    try:
        return cls(**values)
    except ValueError as error:  # of a __post_init__, as the next
        refused = InvalidConfig(f"{where} {error}")
    except InvalidConfig as error:
        refused = InvalidConfig(f"{where} {error.message}", hint=error.hint)
    _find_beyond_limits(cls, values, places, faults)
    faults.raise_all()
    raise refused  # values that do not go together


def _variables(
    environ: Mapping[str, str],
    prefix: str,
    fields: Mapping[str, Any],
    others: Collection[str],
    former: Mapping[str, str],
    faults: Faults,
) -> dict[str, str]:
    """Variable -> field, for all that begin with the prefix; those of no field are added to the faults."""
    families = tuple([name for name in others if name.endswith("_")])
    found: dict[str, str] = {}
    for variable in sorted(environ):
        if not variable.startswith(prefix + "_"):
            continue
        field = variable[len(prefix) + 1 :].lower()
        if field in fields:
            found[variable] = field
        elif variable not in others and not variable.startswith(families):
            near = nearest(field, fields)
            hint = former.get(field) or (f"did you mean {prefix}_{near.upper()}?" if near else "")
            faults.add(InvalidConfig(f"the environment variable {variable} names no setting", hint=hint))
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a wrong one is most like, empty if none is."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), "")


def _typed(
    fields: Mapping[str, Any], name: str, value: object, where: str, former: Mapping[str, str] = _NONE_FORMER
) -> Any:
    """A value that has a type already: of TOML, or of the code that overrides."""
    if name not in fields:
        near = nearest(name, fields)
        hint = former.get(name) or (f"did you mean {near!r}?" if near else "")
        raise InvalidConfig(f"{where} is no setting", hint=hint)
    kind = fields[name]
    if isinstance(value, str) and (kind in (int, float)):
        return _quantity(kind, name, value, where)
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind == tuple[str, ...] and isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if kind == tuple[float, ...] and isinstance(value, list | tuple):
        return tuple([_typed({name: float}, name, one, where) for one in value])
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
    if kind == tuple[float, ...]:
        return tuple([_quantity(float, name, part, where) for part in text.split(",") if part.strip()])
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
