"""Lets the source travel to executors that have no Penstock: its code is pickled by value, with the data.

Spark pickles sources with its own cloudpickle, which pickles an installed class by its name; the executors would then
need the package. ``--py-files`` does not help: Spark's planning process for streams does not see them. Executors need
numpy, pyarrow and msgpack. Two compiled values that our modules hold cannot be pickled as they are; how to make them
anew is told here.
"""

from __future__ import annotations

import copyreg
import functools
import struct
from typing import Any

import msgpack
from pyspark import cloudpickle

import penstock
import topicmap


def by_value() -> None:
    """From here on Spark ships Penstock's code by value. Doing it again is fine."""
    copyreg.pickle(struct.Struct, _struct)
    copyreg.pickle(msgpack.Packer, _packer)
    for package in (penstock, topicmap):
        cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]


def _struct(value: struct.Struct) -> tuple[Any, ...]:
    return struct.Struct, (value.format,)


def _packer(value: msgpack.Packer) -> tuple[Any, ...]:
    return functools.partial(msgpack.Packer, use_bin_type=True, autoreset=True), ()
