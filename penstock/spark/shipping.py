"""Lets the source travel to executors that have no Penstock: its code is pickled by value, with the data.

Spark pickles sources with its own cloudpickle, which pickles an installed class by its name; the executors would then
need the package. ``--py-files`` does not help: Spark's planning process for streams does not see them. Executors need
numpy, pyarrow, msgpack and orjson. A few values in our modules cannot be pickled by value as they are: each gets a
function that makes it anew, here and in each process that it reaches, for Spark pickles there once more.

Compiled modules cannot be pickled by value at all: a process of its own loads the sources that lie beside them and
pickles these.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import os
import pickle
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import msgpack

from penstock.errors import InvalidConfig
from penstock.protocol.message import IS_COMPILED
from penstock.protocol.wire import learn_shapes

if TYPE_CHECKING:
    from penstock.spark.source import PenstockSource

_PACKAGES: Final = ("penstock", "topicmap")
_CACHED: Final = type(functools.lru_cache(maxsize=1)(len))
_FROM_SOURCES: Final = f"""
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {_PACKAGES!r}:
            for folder in path or sys.path:
                spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
                if spec is not None and spec.loader is not None:
                    return spec

sys.meta_path.insert(0, Sources)
from penstock.protocol.message import IS_COMPILED
if IS_COMPILED:
    sys.exit("only compiled modules are installed")
from pyspark import cloudpickle
from penstock.spark.shipping import shipped
sys.stdout.buffer.write(cloudpickle.dumps(shipped()))
"""


def shipped(cores: int = 0) -> type[PenstockSource]:
    """The source as it is to be registered where executors have no Penstock. Takes a second where Penstock is compiled.

    Args:
        cores: how many the cluster has, 0 if that is not known: the process that cuts partitions cannot ask.

    Raises:
        InvalidConfig: it is compiled and its sources cannot be loaded.
    """
    _by_value()
    learn_shapes()
    source = _of_sources() if IS_COMPILED else _loaded()
    source.cores = cores
    return source


def _loaded() -> type[PenstockSource]:
    from penstock.spark.source import PenstockSource

    return PenstockSource


def _of_sources() -> type[PenstockSource]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _FROM_SOURCES]
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip()
        raise InvalidConfig(
            f"Penstock cannot be shipped: {told}", hint="install it with its sources, as wheels have them"
        )
    source: type[PenstockSource] = pickle.loads(done.stdout)
    return source


def _by_value() -> None:
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
