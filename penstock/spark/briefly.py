"""Errors as Spark's users see them: one sentence, without a traceback of our code in front of it.

Spark wraps what a Python source raises in a text of its own, and pyspark puts the traceback before the sentence unless
an environment variable of the worker says otherwise. The worker ends after such an error, so that nothing else is
shortened: neither errors of users' functions nor of our own mistakes, which are no ``PenstockError``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, MutableMapping
from typing import Final, ParamSpec, TypeVar

from penstock.errors import PenstockError

_P = ParamSpec("_P")
_T = TypeVar("_T")

HIDE: Final = "SPARK_HIDE_TRACEBACK"


def briefly(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """A method of the source whose ``PenstockError`` Spark shows without a traceback."""

    @functools.wraps(work)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return work(*args, **kwargs)
        except PenstockError:
            hide_traceback(os.environ)
            raise

    return run


def hide_traceback(environ: MutableMapping[str, str]) -> None:
    """Has pyspark tell the error that is being raised without its traceback, where this process is its worker."""
    if environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        environ[HIDE] = "1"
