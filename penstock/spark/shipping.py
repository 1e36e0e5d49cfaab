"""Lets the source travel to executors that have no Penstock: its code is pickled by value, with the data.

Spark pickles sources with its own cloudpickle, which pickles an installed class by its name; the executors would then
need the package. ``--py-files`` does not help: Spark's planning process for streams does not see them. Executors need
numpy, pyarrow, msgpack and orjson. A few values that our modules hold cannot be pickled by value as they are; how to
make them anew is told here, and told again to each process that they reach, for Spark pickles there once more.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import struct
from typing import Any, Final

import msgpack

_PACKAGES: Final = ("penstock", "topicmap")
_CACHED: Final = type(functools.lru_cache(maxsize=1)(len))


def by_value() -> None:
    """From here on Spark ships Penstock's code by value. Doing it again is fine."""
    from pyspark import cloudpickle

    _tell()
    for name in _PACKAGES:
        package = importlib.import_module(name)
        cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call, unused-ignore]


def _tell() -> None:
    copyreg.pickle(struct.Struct, _struct)
    copyreg.pickle(msgpack.Packer, _packer)
    copyreg.pickle(_CACHED, _cached)


def _struct(value: struct.Struct) -> tuple[Any, ...]:
    return _struct_again, (value.format,)


def _struct_again(form: str) -> struct.Struct:
    _tell()
    return struct.Struct(form)


def _packer(value: msgpack.Packer) -> tuple[Any, ...]:
    return functools.partial(msgpack.Packer, use_bin_type=True, autoreset=True), ()


def _cached(value: Any) -> tuple[Any, ...] | str:
    """A function behind ``functools.lru_cache``: ours is shipped with an empty cache, others by name as ever."""
    if value.__module__.split(".")[0] in _PACKAGES:
        return _cached_again, (value.__wrapped__, value.cache_parameters()["maxsize"])
    return str(value.__reduce__())


def _cached_again(function: Any, maxsize: int | None) -> Any:
    return functools.lru_cache(maxsize=maxsize)(function)
