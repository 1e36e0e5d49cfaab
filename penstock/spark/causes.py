"""The error of ours within what Spark raises: a running query is in Java, which wraps errors of its Python workers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from penstock import errors
from penstock.errors import InternalError, PenstockError

_OUR_ERROR: Final = re.compile(r"\bpenstock\.errors\.(\w+): (.+)$", re.MULTILINE)
_STATE: Final = re.compile(r"(\.?\s*SQLSTATE: \w+)+\s*$")


def cause(said: str) -> PenstockError:
    """The error within the text of Spark's; ``InternalError`` with Spark's first line where it is none of ours."""
    ours = _OUR_ERROR.findall(said)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, InternalError)
        message = _STATE.sub("", message)
        is_ours = isinstance(kind, type) and issubclass(kind, PenstockError)
        return kind(message) if is_ours else InternalError(message)
    lines = [line for line in said.splitlines() if line.strip()]
    return InternalError(f"Spark ended the job: {lines[0] if lines else 'it does not say why'}")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Raises the error within an error of Spark's: ``with plain_errors(): query.awaitTermination()`` ends with one
    sentence and a class of ``penstock.errors`` instead of pages of Java.

    Raises:
        PenstockError: Spark raised an error; ``InternalError`` where the cause is none of Penstock's.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise cause(str(error)) from None
