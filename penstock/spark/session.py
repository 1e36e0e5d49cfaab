"""Starts Spark as Penstock wants it: quiet, on the right Java and Python, with the settings that make small batches
fast; and teaches it the ``penstock`` source.

Under ``spark-submit`` and Spark Connect the cluster's settings stand: no master, Java, memory or home is set there, and
a setting that was given on the command line wins over ours. The settings are tables of plain values; only ``session``
acts.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidConfig
from penstock.spark.archive import MAKES, archive_options
from penstock.spark.connect import is_remote, open_session, remote_of
from penstock.spark.java import Java, find_java
from penstock.spark.launchers import write_python
from penstock.spark.versions import check_pyspark, check_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS_MAX: Final = 4

SECRETS: Final = "(?i)secret|password|passphrase|token|credential|access[.]?key"
"""Names whose values Spark hides: of Hadoop's stores, of JDBC, and of our options."""

# What makes small batches fast and results the same everywhere; also on a cluster.
COMMON: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",  # TCP between Java and Python costs 40 ms per task
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Redaction of settings and options in logs, plans and Spark's web page.
    "spark.redaction.regex": SECRETS,
    "spark.sql.redaction.options.regex": f"{SECRETS}|(?i)url",
}

# Settings that a session at a Spark Connect server changes for itself.
REMOTE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.redaction.options.regex": COMMON["spark.sql.redaction.options.regex"],
}

# Only where we start Java ourselves, on this machine. The driver listens on loopback alone.
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.showConsoleProgress": "false",
}

# Without Spark's web page nothing reads the plans and tasks of a thousand past queries that Spark keeps for it.
NO_PAGE: Final[Mapping[str, str]] = {
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
}

# A few hundred rows: plans as they are, not compiled, and no checksum twins beside checkpoint files (never with RocksDB
# state). Starts with less processor time, and runs slower.
LIGHT: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
LIGHT_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_LINKED: Final = ("bin", "jars", "sbin", "data")
_LOGGING: Final = """status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{{1}}: %m{thrown}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""
_STACK: Final = "%n%ex{5}"
# An error is one line: what was thrown, not where in Java. Of a task that fails, its query says the same.
_BRIEF: Final = "%notEmpty{: %ex{short.message}}%n"
_TASKS: Final = """logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
"""


def session(
    app: str = "penstock",
    *,
    master: str | None = None,
    light: bool = False,
    ui: bool = False,
    log_level: str = "error",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session that knows ``format("penstock")``; the running one if there is one.

    Args:
        app: the application's name.
        master: where Spark runs; by default ``local[*]``, or whatever ``spark-submit`` or SPARK_REMOTE says.
        light: for a few hundred rows: starts with less processor time, and runs slower.
        ui: whether Spark's web page is served.
        log_level: from which level on Spark's own log goes to stderr.
        conf: further Spark settings; they win over ours.

    Raises:
        InvalidConfig: pyspark or Java is missing or of another version, or both a master and SPARK_REMOTE are given.
        Unavailable: SPARK_REMOTE names a Spark Connect server, and it does not answer.
    """
    check_pyspark()
    remote = remote_of(os.environ, conf or {})
    if remote and not submitted(os.environ):
        if master:
            raise InvalidConfig(
                f"Spark is to run at master {master} and at {remote}", hint="unset SPARK_REMOTE, or name no master"
            )
        spark = open_session(remote, app, REMOTE | dict(conf or {}))
        register(spark)
        return spark
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    makes_archive = False
    wanted = dict(COMMON) | {"spark.ui.enabled": str(ui).lower()}
    wanted["spark.sql.shuffle.partitions"] = str(min(os.cpu_count() or 1, SHUFFLE_PARTITIONS_MAX))
    if submitted(os.environ):
        given = SparkConf()
        wanted = {name: value for name, value in wanted.items() if not given.contains(name)}
    else:
        cache = cache_folder(os.environ)
        java = prepare(os.environ, cache, here=(master or "local").startswith("local"))
        options = [*_java_options(cache, light, log_level), *_archive(java, os.environ, cache, light)]
        wanted |= dict(LOCAL) | ({} if ui else dict(NO_PAGE)) | {"spark.driver.extraJavaOptions": " ".join(options)}
        wanted["spark.sql.warehouse.dir"] = str(cache / "warehouse")  # else Spark makes a folder where the program is
        builder = builder.master(master or "local[*]")
        makes_archive = any(one.startswith(MAKES) for one in options)
    wanted |= (dict(LIGHT) if light else {}) | dict(conf or {})
    for name, value in wanted.items():
        builder = builder.config(name, value)
    spark = _started(builder)
    if makes_archive:
        atexit.register(_let_go_of_outputs, spark._jvm)
    _tell_errors_once()
    register(spark)
    return spark


def _started(builder: SparkSession.Builder) -> SparkSession:
    """Raises ``InvalidConfig`` where Java ends before Spark runs in it: it has said why on the standard error."""
    from pyspark.errors import PySparkRuntimeError

    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        where = os.environ.get("JAVA_HOME", "on PATH")
        raise InvalidConfig(
            f"Java at {where} does not start Spark", hint="it says why above; JAVA_HOME names another one"
        ) from None


def register(spark: SparkSession) -> None:
    """Teaches ``format("penstock")`` to a session. On a cluster, and at a Spark Connect server, the source travels by
    value, so that their Python needs numpy, pyarrow, msgpack and orjson, but not Penstock.

    Raises:
        InvalidConfig: pyspark, or the Spark Connect server, is of a version on which the source does not run.
    """
    check_pyspark()
    if is_remote(spark):
        check_server(spark.version)
    from penstock.spark.shipping import shipped
    from penstock.spark.source import PenstockSource

    spark.dataSource.register(PenstockSource if _is_here(spark) else shipped(_cores_of(spark)))


def _cores_of(spark: SparkSession) -> int:
    """How many cores a cluster has for the session; 0 where that is not known. Executors may come later than it."""
    if is_remote(spark):
        return 0
    asked = [int(spark.conf.get(name, "0") or 0) for name in ("spark.executor.instances", "spark.executor.cores")]
    return max(spark.sparkContext.defaultParallelism, asked[0] * max(1, asked[1]))


def _is_here(spark: SparkSession) -> bool:
    """Whether all of Spark runs with this program's own Python, which has Penstock."""
    if is_remote(spark):
        return False
    master = spark.conf.get("spark.master", "local") or "local"
    return master.startswith("local") and not master.startswith("local-cluster")


def _let_go_of_outputs(jvm: Any) -> None:
    """Has Java close the program's outputs at its end: Java goes on to write its archive, and a pipe behind the program
    would wait for that."""
    with contextlib.suppress(Exception):  # Java may be gone
        jvm.java.lang.System.out.close()
        jvm.java.lang.System.err.close()


def _tell_errors_once() -> None:
    """pyspark prints an SQL error as kilobytes of JSON, and raises it as well."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def submitted(environ: Mapping[str, str]) -> bool:
    """Whether ``spark-submit`` started this program: Java runs already then."""
    return "PYSPARK_GATEWAY_PORT" in environ


def prepare(environ: MutableMapping[str, str], cache: Path, *, here: bool = True) -> Java:
    """Sets the environment of ``spark-submit`` and the Python workers: Java, Python, home. ``here``: whether the
    workers run on this machine, and find files of the cache. Returns the Java."""
    java = find_java(environ, cache)
    environ["JAVA_HOME"] = str(java.home)
    python = str(write_python(sys.executable, cache)) if here else sys.executable
    environ.setdefault("PYSPARK_PYTHON", python)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if here and "SPARK_HOME" not in environ:
        environ["SPARK_HOME"] = str(shadow_home(cache))
    return java


def _archive(java: Java, environ: Mapping[str, str], cache: Path, light: bool) -> list[str]:
    """Java's options for its archive of classes, where the folder of jars is ours: others may have settings on the
    path of classes, with which Java takes no archive."""
    home = shadow_home(cache)
    if environ.get("SPARK_HOME") != str(home):
        return []
    return archive_options(java.program, home, cache, make=not light)


def shadow_home(cache: Path) -> Path:
    """A SPARK_HOME of links into the installed pyspark, without ``python/lib``.

    The archive in that folder holds sources only, and stands first on every worker's path: each worker would compile
    all of pyspark anew. Without it they import the installed one, which is compiled.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    key = hashlib.sha256(str(package).encode()).hexdigest()[:8]
    home = cache / f"spark-{pyspark.__version__}-{key}"
    home.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        if (package / name).exists():
            try:
                (home / name).symlink_to(package / name)
            except FileExistsError:
                continue  # of an earlier start, or of another process that starts now
    return home


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where what is made once is kept: ``$XDG_CACHE_HOME/penstock``, or a fresh folder where that cannot be written."""
    root = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "penstock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="penstock-"))


def _java_options(cache: Path, light: bool, log_level: str) -> list[str]:
    logging = cache / f"log4j2-{log_level}.properties"
    is_brief = log_level == "error"
    text = _LOGGING.format(level=log_level, thrown=_BRIEF if is_brief else _STACK) + (_TASKS if is_brief else "")
    if not logging.exists() or logging.read_text() != text:
        logging.write_text(text)
    return [f"-Dlog4j2.configurationFile={logging.as_uri()}", *(LIGHT_JAVA if light else ())]
