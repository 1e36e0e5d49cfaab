"""Lets the source travel to executors that have no Penstock: its code is pickled by value, with the data.

Spark pickles sources with its own cloudpickle, which pickles an installed class by its name; the executors would then
need the package. ``--py-files`` does not help: Spark's planning process for streams does not see them. Executors need
numpy, pyarrow, msgpack and orjson. A few values that our modules hold cannot be pickled by value as they are; how to
make them anew is told here.
"""

from __future__ import annotations

import copyreg
import functools
import struct
from typing import Any, Final

import msgpack
from pyspark import cloudpickle

import penstock
import topicmap

_PACKAGES: Final = (penstock, topicmap)
_CACHED_SAMPLE: Final = functools.lru_cache(maxsize=1)(len)


def by_value() -> None:
    """From here on Spark ships Penstock's code by value. Doing it again is fine."""
    copyreg.pickle(struct.Struct, _struct)
    copyreg.pickle(msgpack.Packer, _packer)
    copyreg.pickle(type(_CACHED_SAMPLE), _cached)
    for package in _PACKAGES:
        cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call, unused-ignore]


def _struct(value: struct.Struct) -> tuple[Any, ...]:
    return struct.Struct, (value.format,)


def _packer(value: msgpack.Packer) -> tuple[Any, ...]:
    return functools.partial(msgpack.Packer, use_bin_type=True, autoreset=True), ()


def _cached(value: Any) -> tuple[Any, ...] | str:
    """A function behind ``functools.lru_cache``: ours is shipped with an empty cache, others by name as ever."""
    if value.__module__.split(".")[0] in [package.__name__ for package in _PACKAGES]:
        return _cache_again, (value.__wrapped__, value.cache_parameters()["maxsize"])
    return str(value.__reduce__())


def _cache_again(function: Any, maxsize: int | None) -> Any:
    return functools.lru_cache(maxsize=maxsize)(function)
