"""The declaration of a setting: a field of a frozen dataclass with its type, default, meaning and bounds.

From it come the check (``check_bounds``), what a file and the environment may say (``config.py``), the option of
`penstock up`, and the row of docs/guide/settings.md. A unit is the end of the name: ``_s``, ``_bytes_max``. Pure.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

from penstock.errors import InvalidConfig

T = TypeVar("T")

_KEY: Final = "setting"
PORT_MAX: Final = 65_535


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is declared of a setting beside its name, type and default.

    Attributes:
        meaning: for operators, without a full stop.
        least, above, most: bounds of a number: at least, more than, at most.
        choices: all values, or all that a list may have; empty: any.
        option: its help as an option of `penstock up`; empty: there is none.
        is_constant: whether only code gives it, as tests do.
    """

    meaning: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: Collection[str] = ()
    option: str = ""
    is_constant: bool = False

    def check(self, name: str, value: object) -> None:
        """Raises ``InvalidConfig`` for a value out of bounds."""
        if isinstance(value, int | float) and not self._holds(value):
            raise InvalidConfig(f"{name} is {value}", hint=f"it is {self._bounds()}")
        if self.choices:
            said = value if isinstance(value, tuple) else (value,)
            if not set(said) <= set(self.choices):
                shown = list(said) if isinstance(value, tuple) else value
                raise InvalidConfig(f"{name} is {shown!r}", hint=f"it is one of {', '.join(self.choices)}")

    def _holds(self, value: float) -> bool:
        return not (
            (self.least is not None and value < self.least)
            or (self.above is not None and value <= self.above)
            or (self.most is not None and value > self.most)
        )

    def _bounds(self) -> str:
        least = f"more than {self.above:g}" if self.above is not None else f"at least {_written(self.least)}"
        if self.most is None:
            return least
        if self.least is not None:
            return f"from {_written(self.least)} to {_written(self.most)}"
        return f"{least} and at most {_written(self.most)}"


def _written(value: float | None) -> str:
    return str(value)


def setting(
    default: T,
    meaning: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    choices: Collection[str] = (),
    option: str = "",
) -> T:
    """A field that operators set."""
    return _field(default, Setting(meaning, least, above, most, choices, option))


def port_setting(default: int, meaning: str, *, least: int = 0, option: str = "") -> int:
    """A field with a port. ``least``: -1 where there may be none."""
    return setting(default, meaning, least=least, most=PORT_MAX, option=option)


def constant(default: T, *, least: float | None = None, above: float | None = None, most: float | None = None) -> T:
    """A field that Penstock chooses and that no file names; tests give other values."""
    return _field(default, Setting("", least, above, most, is_constant=True))


def _field(default: T, declared: Setting) -> T:
    return dataclasses.field(default=default, metadata={_KEY: declared})


@functools.cache
def declared(cls: Any) -> Mapping[str, Setting]:
    """What is declared of each field of a class of settings."""
    return {one.name: one.metadata.get(_KEY, _UNDECLARED) for one in dataclasses.fields(cls) if one.init}


def settable(cls: Any) -> list[str]:
    """The fields that operators may set."""
    return [name for name, one in declared(cls).items() if not one.is_constant]


def check_bounds(settings: Any) -> None:
    """Raises ``InvalidConfig`` for the first value out of its bounds."""
    cls: Any = type(settings)
    for name, one in declared(cls).items():
        one.check(name, getattr(settings, name))


_UNDECLARED: Final = Setting()
