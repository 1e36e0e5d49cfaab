"""How Kafka's jars are fetched, with stand-ins for Java and Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.servers import Missing
from loadtest.spark.kafka import BROKERS, CONNECTORS, Jars, prepare

MAVEN = """
for one in "$@"; do case $one in -DoutputDirectory=*) lib=${{one#*=}} ;; *.xml) pom=$one ;; esac; done
grep -q '{version}' "$pom" || {{ echo 'not to be found'; exit 1; }}
mkdir -p "$lib"; for part in {parts}; do touch "$lib/$part.jar"; done
"""


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def parts(connector: str) -> list[str]:
    of_spark = [f"spark-{name}-kafka-0-10_2.13-{connector}" for name in ("sql", "token-provider")]
    return [*of_spark, f"kafka_2.13-{BROKERS[0]}", f"kafka-clients-{BROKERS[0]}", "commons-pool2-2.12.1"]


@pytest.mark.parametrize(("missing", "package"), [("java", "jdk"), ("mvn", "maven")])
def test_what_is_not_installed_is_named_with_its_package(
    missing: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {"java", "mvn"} - {missing}:
        tool(tmp_path / "tools", name, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    with pytest.raises(Missing, match=rf"no `{missing}`.*apt-get install .*{package}"):
        prepare(tmp_path / "kafka")


def test_the_newest_connector_that_can_be_had_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = MAVEN.format(version=f"<version>{CONNECTORS[1]}<", parts=" ".join(parts(CONNECTORS[1])))
    tool(tmp_path / "tools", "java", "exit 0")
    tool(tmp_path / "tools", "mvn", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    jars = prepare(tmp_path / "kafka")
    assert (jars.broker, jars.connector) == (BROKERS[0], CONNECTORS[1])
    assert [Path(one).name for one in jars.for_spark().split(",")] == [
        f"{name}.jar" for name in (*parts(CONNECTORS[1])[:2], *parts(CONNECTORS[1])[3:])
    ]
    (tmp_path / "tools" / "mvn").unlink()
    assert prepare(tmp_path / "kafka").lib == jars.lib


def test_where_maven_has_none_its_words_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "tools", "java", "exit 0")
    tool(tmp_path / "tools", "mvn", "echo 'no way out'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    with pytest.raises(Missing, match=f"none of {', '.join(BROKERS)} with a connector: no way out"):
        prepare(tmp_path / "kafka")


def test_the_broker_and_the_connector_are_fetched_with_what_they_need_alone() -> None:
    pom = Jars(Path("x"), "4.1.0", "4.2.0").pom()
    assert "<artifactId>kafka_2.13</artifactId><version>4.1.0</version></dependency>" in pom
    assert "<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>4.2.0</version><exclusions>" in pom
