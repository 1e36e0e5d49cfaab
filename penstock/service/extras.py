"""Parts of a service that need an extra of the package, and the error where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import InvalidConfig


@contextmanager
def needed_extra(part: str, extra: str) -> Iterator[None]:
    """Within it a part's code is imported. Raises ``InvalidConfig``, with the command that installs the extra, where a
    module is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        hint = f"python -m pip install 'penstock[{extra}]'"
        raise InvalidConfig(f"{part} needs {error.name}, which is not installed", hint=hint) from None
