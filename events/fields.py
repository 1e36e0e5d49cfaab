"""Checks of the fields that a configuration's values have: known names, choices, flags and numbers. Pure.

Each raises ``Problem`` with the JSON pointer of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from events.problems import invalid_config


def known(spec: object, kind: str, *names: str) -> dict[str, Any]:
    """The value, if it is an object that has no fields but ``names``."""
    if not isinstance(spec, dict):
        raise invalid_config(f"a {kind} is a JSON object, not {type(spec).__name__}")
    for name in spec:
        if name not in names:
            raise invalid_config(f"{name!r:.60} is not known of a {kind}: {', '.join(names)}", f"/{name}")
    return spec


def choice(spec: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first where the field is missing."""
    value = spec.get(name, choices[0])
    if value not in choices:
        raise invalid_config(f"{name} is one of {', '.join(choices)}, not {value!r:.60}", f"/{name}")
    return str(value)


def flag(spec: Mapping[str, Any], name: str, usual: bool = False) -> bool:
    """A boolean; ``usual`` where the field is missing."""
    value = spec.get(name, usual)
    if not isinstance(value, bool):
        raise invalid_config(f"{name} is true or false, not {value!r:.60}", f"/{name}")
    return value


def number_of(value: object, where: str, least: float, most: float, *, whole: bool = False) -> Any:
    """The value, if it is a number from ``least`` to ``most``. ``where``: the pointer of its field."""
    is_right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not is_right or not least <= value <= most:  # type: ignore[operator]
        kind = "a whole number" if whole else "a number"
        raise invalid_config(f"expected {kind} from {least:g} to {most:g}, not {value!r:.40}", where)
    return value
