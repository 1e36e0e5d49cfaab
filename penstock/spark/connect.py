"""Spark Connect: a session at a remote server, of which this program has only the address.

Nothing is started here: no Java, no master. The server's own settings stand, but for those of SQL that a session may
change. The server's Python need not have Penstock: the source travels by value (``shipping``).
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidConfig, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME: Final = "sc://"
PORT: Final = 15002
"""Where a Spark Connect server listens unless told otherwise."""
_PACKAGES: Final = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "zstandard": "zstandard",
}
_REACH_S: Final = 20.0


def remote_of(environ: Mapping[str, str], conf: Mapping[str, str]) -> str:
    """The address of the Spark Connect server that a program is to use, empty if it is to use none."""
    return conf.get("spark.remote", "") or environ.get("SPARK_REMOTE", "")


def is_remote(spark: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def open_session(url: str, app: str, settings: Mapping[str, str]) -> SparkSession:
    """A session at a server.

    Raises:
        InvalidConfig: the address is illegal, or a package is missing.
        Unavailable: no server answers there.
    """
    host, port = address_of(url)
    check_packages()
    _reach(host, port)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(url).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def address_of(url: str) -> tuple[str, int]:
    """Host and port of ``sc://host:port/;parameters``. Raises ``InvalidConfig``."""
    where = url.removeprefix(SCHEME).partition("/")[0]
    host, _, port = where.rpartition(":") if not where.endswith("]") and ":" in where else (where, "", "")
    if not url.startswith(SCHEME) or not host or (port and not port.isdecimal()):
        raise InvalidConfig(
            f"{url!r} is no address of a Spark Connect server", hint=f"SPARK_REMOTE is {SCHEME}host:{PORT}"
        )
    return host.strip("[]"), int(port or PORT)


def check_packages() -> None:
    """Raises ``InvalidConfig`` that names the missing packages of a Spark Connect client."""
    missing = sorted(package for module, package in _PACKAGES.items() if not _is_there(module))
    if missing:
        raise InvalidConfig(
            f"Spark Connect needs {', '.join(missing)}", hint="`pip install 'pyspark[connect]'` installs them"
        )


def _is_there(module: str) -> bool:
    importlib.invalidate_caches()
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or it was set aside
        return False


def _reach(host: str, port: int) -> None:
    """Raises ``Unavailable`` if the port does not answer: pyspark would retry for minutes in silence."""
    try:
        socket.create_connection((host, port), _REACH_S).close()
    except OSError as error:
        raise Unavailable(
            f"no Spark Connect server answers at {host}:{port}: {error.strerror or error}",
            hint="SPARK_REMOTE names it; without SPARK_REMOTE Spark runs on this machine",
        ) from None
