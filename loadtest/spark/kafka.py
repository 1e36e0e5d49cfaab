"""Apache Kafka beside our broker, and Spark's own connector for it: one broker in KRaft mode, as it comes.

Its jars come from Maven Central by their names when the benchmark runs, into ``build/kafka``, which git ignores.
Nothing of Kafka is in the repository. Where there is no Java, no Maven, or none of the versions, ``Missing`` says so.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadtest.maven import copy_jars, need_maven
from loadtest.servers import HOST, ROOT, START_S, Missing, Server, free_port

BROKERS: Final = ("4.1.0", "4.0.0")
CONNECTORS: Final = ("4.3.0", "4.2.0")
"""Versions of Spark's connector in order of preference: the first that Maven has is taken. That of 4.2 runs in Spark
4.3."""
BUILD: Final = ROOT / "build" / "kafka"
_HEAP: Final = "1g"
_CLUSTER: Final = "4L6g3nShT-eMCtK--X86sw"

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>loadtest</groupId><artifactId>peer</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_ALONE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_DEPENDENCY: Final = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_CONNECTOR: Final = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions={partitions}
group.initial.rebalance.delay.ms=0
"""


class Jars:
    """The jars of one version: of the broker, and those that Spark is given."""

    def __init__(self, folder: Path, broker: str, connector: str) -> None:
        self.lib = folder / f"lib-{broker}-{connector}"
        self.broker = broker
        self.connector = connector

    @property
    def are_there(self) -> bool:
        parts = [f"{name}-{self.connector}.jar" for name in _CONNECTOR]
        return all((self.lib / name).exists() for name in [*parts, f"kafka_2.13-{self.broker}.jar"])

    def for_spark(self) -> str:
        """The connector and its dependencies, for ``spark.jars``."""
        names = (*_CONNECTOR, "kafka-clients", "commons-pool2")
        return ",".join(str(next(self.lib.glob(f"{name}-[0-9]*.jar"))) for name in names)

    def pom(self) -> str:
        """The project file that has Maven fetch the jars."""
        wanted = [("org.apache.spark", name, self.connector, _ALONE) for name in _CONNECTOR]
        wanted.append(("org.apache.kafka", "kafka_2.13", self.broker, ""))
        wanted.append(("org.apache.commons", "commons-pool2", "2.12.1", ""))
        return _POM.format("".join(_DEPENDENCY.format(*one) for one in wanted))


def prepare(folder: Path = BUILD) -> Jars:
    """Fetches the jars unless they are there. Raises ``Missing``."""
    if shutil.which("java") is None:
        raise Missing("there is no `java` (Debian: apt-get install default-jdk-headless)")
    here = next((one for one in _versions(folder) if one.are_there), None)
    return here or _fetch(folder)


def _versions(folder: Path) -> Iterator[Jars]:
    for broker in BROKERS:
        for connector in CONNECTORS:
            yield Jars(folder, broker, connector)


def _fetch(folder: Path) -> Jars:
    need_maven()
    said = ""
    for jars in _versions(folder):
        shutil.rmtree(jars.lib, ignore_errors=True)
        done = copy_jars(folder, jars.pom(), jars.lib)
        if done.returncode == 0 and jars.are_there:
            return jars
        said = said or done.stdout.strip()[:300]
    raise Missing(f"Maven fetches none of {', '.join(BROKERS)} with a connector: {said}")


class Kafka(Server):
    """Kafka's broker, which may use all cores. Its acknowledgement says that the message is in memory."""

    name = "kafka"
    level = "in memory, the disk follows"
    partitions = 4
    jars: Jars

    def command(self) -> list[str]:
        self.jars = prepare()
        self.level = f"{self.jars.broker}, connector {self.jars.connector}"
        self.port = free_port()
        settings = self.folder / "server.properties"
        given = {"host": HOST, "port": self.port, "controller": free_port(), "folder": self.folder}
        settings.write_text(_SETTINGS.format(**given, partitions=self.partitions))
        format_it = self._java("256m", "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings))
        done = subprocess.run(format_it, capture_output=True, text=True, check=False, timeout=START_S)
        if done.returncode:
            raise Missing(f"its storage is not made: {done.stderr.strip()[:300]}")
        return self._java(_HEAP, "kafka.Kafka", str(settings))

    def _java(self, heap: str, *arguments: str) -> list[str]:
        return ["java", f"-Xms{heap}", f"-Xmx{heap}", "-cp", f"{self.jars.lib}/*", *arguments]
