"""Where a job's rows go: Parquet, a database, Delta Lake, Iceberg, a topic, devices.

Spark repeats a batch that it has not committed. So a repeated batch replaces its earlier rows: in folders by the
batch's number, in a database by the rows' keys. Delta Lake and brokers recognise a batch. Iceberg does not: there a
repeated batch adds its rows again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.errors import InvalidConfig
from penstock.spark.versions import is_tried
from penstock.telemetry.jobs.messages import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: Final = "a folder (Parquet), jdbc:ADDRESS#table, delta:FOLDER, iceberg:TABLE, topic:NAME or mqtt:TOPIC/{device}"
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings of a session that writes tables of Delta Lake."""
_KIND_NAMES: Final = ("jdbc", "delta", "iceberg", "topic", "mqtt")
_TABLE: Final = re.compile(r"[A-Za-z_][\w.]*")
_FOR_SPARK: Final = re.compile(r":[\w.-]+[_-](\d+\.\d+)_\d+\.\d+:")
"""In a package's name, the versions of Spark and Scala: ``io.delta:delta-spark_4.2_2.13:4.4.0``."""
_OWNER: Final = "_query"
_STAGING: Final = "_penstock_batch"
_DRIVERS: Final = {"postgresql": ("org.postgresql.Driver", "org.postgresql:postgresql:42.7.4")}


class Output(Protocol):
    """A place for rows."""

    def check(self, spark: SparkSession) -> None:
        """Raises ``InvalidConfig`` where this session cannot write there."""

    def write(self, rows: DataFrame, batch: int) -> None:
        """Keeps the rows of a batch."""


def kind_of(text: str) -> str:
    """The kind that an output's text begins with; empty for a folder of Parquet, also at an address (``s3a://...``)."""
    kind, colon, _ = text.partition(":")
    return kind if colon and kind in _KIND_NAMES else ""


def output_of(text: str, name: str, keys: Sequence[str], servers: str, partition: str = "") -> Output:
    """The output that a text names (``KINDS``). Raises ``InvalidConfig``.

    Args:
        text: the option's value.
        name: the job's, which names its folder and, unless the text has one, its table.
        keys: columns that tell its rows apart.
        servers: name servers, for messages.
        partition: column by which folders of Parquet are cut.
    """
    kind, rest = kind_of(text), text.partition(":")[2]
    if kind == "jdbc":
        address, _, table = text.partition("#")
        return JdbcTable(address, table or name, keys)
    if kind and not rest:
        raise InvalidConfig(f"{text!r} names no place", hint=f"write {KINDS}")
    if kind == "delta":
        return DeltaTable(rest, name)
    if kind == "iceberg":
        return IcebergTable(rest)
    if kind in ("topic", "mqtt"):
        return Messages(rest, servers, to_devices=kind == "mqtt")
    return ParquetFolder(f"{text.rstrip('/')}/{name}", partition)


class ParquetFolder:
    """A folder of Parquet with one folder per batch, within those of ``partition`` if there is one; these are compacted
    (``compaction``)."""

    def __init__(self, folder: str, partition: str = "") -> None:
        self._folder = folder
        self._partition = partition
        self._cuts = [partition, "batch"] if partition else ["batch"]

    def check(self, spark: SparkSession) -> None:
        """Raises ``InvalidConfig`` where Spark's Java is elsewhere."""
        java(spark)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Replaces the rows that this batch wrote before. Raises ``InvalidConfig`` for a folder of another query: its
        batches have the same numbers."""
        from pyspark.sql import functions as f

        from penstock.telemetry.compaction import Files, compact

        query = query_of(rows)
        if query and Files(rows.sparkSession, self._folder).claim(_OWNER, query) != query:
            hint = "keep its checkpoint, or choose another --out"
            raise InvalidConfig(f"{self._folder} has the rows of a job with another checkpoint", hint=hint)

        marked = rows.withColumn("batch", f.lit(batch).cast("bigint")).coalesce(1)
        writer = marked.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*self._cuts).parquet(self._folder)
        if self._partition:
            newest = rows.agg(f.max(self._partition)).collect()[0][0]
            compact(rows.sparkSession, self._folder, self._partition, newest, batch)


class JdbcTable:
    """A table of a database, which has one row per key: the newest.

    A batch is written to a table beside it and taken over in one transaction, so that readers never see half of it.
    """

    def __init__(self, address: str, table: str, keys: Sequence[str]) -> None:
        if not _TABLE.fullmatch(table):
            raise InvalidConfig(f"{table!r} is no name of a table", hint="letters, digits, _ and . are allowed")
        self._address = address
        self._table = table
        self._keys = keys

    def check(self, spark: SparkSession) -> None:
        """Raises ``InvalidConfig`` without a driver."""
        driver_of(self._address, spark)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Replaces the rows of the same keys. Raises the database's error."""
        spark = rows.sparkSession
        driver = driver_of(self._address, spark)
        staging = f"{self._table}{_STAGING}"
        given = {"url": self._address, "driver": driver}
        rows.limit(0).write.format("jdbc").options(**given, dbtable=self._table).mode("append").save()
        rows.coalesce(1).write.format("jdbc").options(**given, dbtable=staging).mode("overwrite").save()
        same = " AND ".join(f'o."{key}" IS NOT DISTINCT FROM n."{key}"' for key in self._keys)
        names = ", ".join(f'"{name}"' for name in rows.columns)
        run_sql(
            spark,
            self._address,
            f"DELETE FROM {self._table} o WHERE EXISTS (SELECT 1 FROM {staging} n WHERE {same})",
            f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {staging}",
            f"DROP TABLE {staging}",
        )


class DeltaTable:
    """A table of Delta Lake, of which the session has the jars."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._name = name

    def check(self, spark: SparkSession) -> None:
        """Raises ``InvalidConfig`` where Spark does not know Delta Lake."""
        needs_format(spark, "delta", "io.delta:delta-spark_")

    def write(self, rows: DataFrame, batch: int) -> None:
        """Adds the rows, once for each batch of a query."""
        query = query_of(rows)
        given = {"txnAppId": f"{query} {self._name}", "txnVersion": str(batch)} if query else {}
        with fitting(rows.sparkSession, "delta"):
            rows.write.format("delta").options(**given).mode("append").save(self._folder)


class IcebergTable:
    """A table of an Iceberg catalog, of which the session has the jars."""

    def __init__(self, table: str) -> None:
        self._table = table

    def check(self, spark: SparkSession) -> None:
        """Raises ``InvalidConfig`` where Spark does not know Iceberg."""
        needs_format(spark, "iceberg", "org.apache.iceberg:iceberg-spark-runtime-")

    def write(self, rows: DataFrame, batch: int) -> None:
        """Adds the rows."""
        with fitting(rows.sparkSession, "iceberg"):
            if rows.sparkSession.catalog.tableExists(self._table):
                rows.writeTo(self._table).append()
            else:
                rows.writeTo(self._table).using("iceberg").create()


class Messages:
    """Each row as a JSON message: of a topic, with its device as key, or under an MQTT topic name.

    Args:
        to: topic, or pattern of MQTT topic names (``jobs.messages``).
        servers: name servers.
        to_devices: whether ``to`` is a pattern.
    """

    def __init__(self, to: str, servers: str, *, to_devices: bool) -> None:
        topic = to.split("/", 1)[0]
        if to_devices and ("{" in topic or not topic):
            raise InvalidConfig(f"mqtt:{to}: the first level is the broker's topic, and the same for all rows")
        self._to = to
        self._servers = servers
        self._to_devices = to_devices
        self.topic = topic
        """The broker's topic of the messages."""

    def check(self, spark: SparkSession) -> None:
        """Accepts any session."""

    def write(self, rows: DataFrame, batch: int) -> None:
        """Sends a batch; the broker stores no row of it twice. Raises a producer's error as Spark wraps it."""
        given = {"servers": self._servers, "rowOrder": "sorted"}
        query = query_of(rows)
        if query:
            given |= {"writeId": f"{query} {self._to}", "writeBatch": str(batch)}
        found = messages(rows, self._to)
        if not self._to_devices:
            found = found.drop("mqtt_topic")
            given["topic"] = self._to
        found.coalesce(1).write.format("penstock").options(**given).mode("append").save()


def query_of(rows: Any) -> str:
    """The id of the streaming query of a batch, from its checkpoint; empty outside of one."""
    return rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""


def needs_format(spark: Any, name: str, package: str) -> None:
    """Raises ``InvalidConfig`` where Spark has no data source of this name. ``package``: the begin of the name of its
    package, whose end are the versions of Spark and Scala."""
    sources = java(spark).org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(name, spark._jsparkSession.sessionState().conf())
    except Exception as error:  # Java's, of no class of its own
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        hint = f"give its jars: --package {package}{release_of(spark)}_2.13:VERSION"
        raise InvalidConfig(f"Spark has no format {name!r} here", hint=hint) from None


def check_package(package: str, release: str) -> None:
    """Raises ``InvalidConfig`` for a Maven package whose name says that it is for another version of Spark than
    ``release`` (empty: none is installed, as Spark's start will say): it may write once, and fail later."""
    match = _FOR_SPARK.search(package)
    wanted = ".".join(release.split(".")[:2])
    if release and match and match[1] != wanted:
        other = f", or `pip install 'pyspark=={match[1]}.*'`" if is_tried(match[1]) else ""
        told = f"--package {package} is for Spark {match[1]}, and pyspark {release} is installed"
        raise InvalidConfig(told, hint=f"give the package for Spark {wanted}{other}")


def release_of(spark: Any) -> str:
    """Spark's version as packages name it: ``4.2``."""
    return ".".join(str(spark.version).split(".")[:2])


def is_linkage(thrown: Any) -> bool:
    """Whether Java threw what it throws at jars that do not fit together."""
    kind = thrown.getClass()
    while kind is not None:
        if kind.getName() == "java.lang.LinkageError":
            return True
        kind = kind.getSuperclass()
    return False


@contextlib.contextmanager
def fitting(spark: Any, name: str) -> Iterator[None]:
    """Raises ``InvalidConfig`` where the jars of a format turn out to be for another version of Spark."""
    try:
        yield
    except Exception as error:  # Java's, of no class of its own
        thrown = getattr(error, "java_exception", None)
        if thrown is None or not is_linkage(thrown):
            raise
        told = f"the jars of {name} are for another version of Spark than {spark.version}"
        raise InvalidConfig(told, hint="give those of this version, or install the pyspark that they are for") from None


def java(spark: Any) -> Any:
    """The Java of a session. Raises ``InvalidConfig`` where that is elsewhere (Spark Connect)."""
    found = getattr(spark, "_jvm", None)
    if found is None:
        raise InvalidConfig("this output needs Spark's Java here; Spark Connect has it elsewhere")
    return found


def driver_of(address: str, spark: Any) -> str:
    """The class of the driver for an address, which Spark can load. Raises ``InvalidConfig``."""
    product = address.removeprefix("jdbc:").partition(":")[0]
    name, package = _DRIVERS.get(product, ("", ""))
    drivers = java(spark).org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    try:
        if name:
            drivers.register(name)
            return name
        return str(java(spark).java.sql.DriverManager.getDriver(address).getClass().getName())
    except Exception as error:  # Java's, of no class of its own
        if "ClassNotFound" not in str(error) and "No suitable driver" not in str(error):
            raise
        hint = f"--package {package or 'GROUP:NAME:VERSION'} fetches it from Maven Central"
        raise InvalidConfig(f"there is no driver for jdbc:{product}", hint=hint) from None


def run_sql(spark: Any, address: str, *statements: str) -> None:
    """Runs statements in one transaction of a database."""
    connection = java(spark).java.sql.DriverManager.getConnection(address)
    try:
        connection.setAutoCommit(False)
        for one in statements:
            statement = connection.createStatement()
            statement.executeUpdate(one)
            statement.close()
        connection.commit()
    finally:
        connection.close()
