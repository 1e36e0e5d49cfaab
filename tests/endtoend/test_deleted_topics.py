"""Topics that are deleted, by hand and because they were empty, as devices, services and Spark see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import Properties
from penstock.blocking import Consumer, Producer
from penstock.cli.root import root
from penstock.errors import OffsetOutOfRange
from tests.endtoend.conftest import System
from tests.endtoend.lines import Device
from tests.patience import PATIENCE_S, poll

pytestmark = pytest.mark.endtoend

Systems = Callable[..., System]


def penstock(system: System, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(root, ["--server", system.namesrv, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def wait_for_topic(system: System, topic: str) -> None:
    """Waits until the name servers have heard of a topic."""
    poll(f"a name server that has heard of {topic}", lambda: topic in topics(system))


def topics(system: System) -> set[str]:
    return {row["topic"] for row in penstock(system, "topic", "list")}


def connected(system: System, client_id: str, *, lasting: bool = False) -> Device:
    device = Device((system.mqtt_host, system.mqtt_port), 5)
    lasts = Properties(session_expiry_interval=3600) if lasting else Properties()
    device.send(Connect(client_id, clean_start=not lasting, level=5, properties=lasts))
    assert isinstance(device.next(), Connack)
    return device


def subscribe(device: Device, filter: str) -> None:
    device.send(Subscribe(1, (Subscription(filter, 1),)))
    while not isinstance(device.next(), Suback):
        pass


def publish(device: Device, name: str, payload: bytes, *, retain: bool = False) -> int:
    device.send(Publish(name, payload, 1, retain, packet_id=7))
    answer = device.next()
    assert isinstance(answer, Puback)
    return answer.reason_code


def payload(device: Device) -> bytes:
    """Of the next message, which is acknowledged."""
    message = device.next()
    assert isinstance(message, Publish)
    device.send(Puback(message.packet_id))
    return message.payload


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for the tests that have topics of their own."""
    system = System(tmp_path_factory.mktemp("deleted") / "data")
    try:
        yield system.start()
        assert system.stop() == 0
    finally:
        system.end()


def test_devices_get_what_waited_for_them_and_what_comes_when_the_topic_is_made_again(started: System) -> None:
    check_devices(started)


@pytest.mark.long
def test_devices_get_it_also_from_services_in_processes_of_their_own(system: Systems) -> None:
    started = system("--processes").start()
    check_devices(started)
    assert started.stop() == 0


def check_devices(started: System) -> None:
    away, sender = connected(started, "away", lasting=True), connected(started, "sender")
    subscribe(away, "plant/#")
    away.socket.close()
    assert publish(sender, "plant/a", b"1", retain=True) == 0
    wait_for_topic(started, "plant")
    assert [row["messages"] for row in penstock(started, "topic", "delete", "plant", "--yes")] == [1]
    assert "plant" not in topics(started)
    late = connected(started, "late")
    subscribe(late, "plant/#")
    back = connected(started, "away", lasting=True)
    assert payload(back) == b"1"
    assert publish(sender, "plant/a", b"2") == 0, "which makes it again"
    assert (payload(back), payload(late)) == (b"2", b"2"), "and nothing is retained"
    shown = penstock(started, "topic", "show", "plant")
    assert sum(row["messages"] for row in shown) == 1
    assert sum(row["end"] for row in shown) == 2, "behind the offset that there was"


def test_a_group_loses_a_deleted_topic_and_gets_it_back_and_a_kill_changes_nothing(started: System) -> None:
    penstock(started, "topic", "create", "orders")
    with (
        Producer(servers=started.namesrv) as producer,
        Consumer("g", ["orders"], servers=started.namesrv, start="earliest") as consumer,
    ):
        for life in range(3):
            receipt = producer.send("orders", b"%d" % life, key="k")
            assert receipt.offset == life
            found: list[bytes] = []
            while not found:
                found += [message.body for message in consumer.poll(PATIENCE_S)]
            assert found == [b"%d" % life]
            consumer.commit()
            if life < 2:
                penstock(started, "topic", "delete", "orders", "--yes")
            if life == 1:
                started.kill()
                started.start()
                assert "orders" not in topics(started)
    assert [row["committed"] for row in penstock(started, "group", "show", "g") if row["committed"]] == [3]


@pytest.mark.skipif(not (find_spec("pyspark") and find_spec("pyarrow")), reason="no Spark here")
def test_spark_is_told_of_what_it_had_not_read_of_a_deleted_topic_and_goes_on_where_it_had(started: System) -> None:
    from pyspark.sql.datasource import CaseInsensitiveDict
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from penstock.spark.source import PenstockSource

    everything = ReadAllAvailable()

    def stream(**more: str) -> Any:
        given = {"servers": started.namesrv, "subscribe": "analysed", "startingOffsets": "earliest"} | more
        return PenstockSource(CaseInsensitiveDict(given)).streamReader(schema=None)

    def bodies(reader: Any, start: Any, end: Any) -> list[bytes]:
        parts = reader.partitions(start, end)
        return [row["value"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]

    with Producer(servers=started.namesrv) as producer:
        reader = stream()
        producer.send("analysed", b"0", key="k")
        begin = reader.initialOffset()
        first = reader.latestOffset(begin, everything)
        assert bodies(reader, begin, first) == [b"0"]
        wait_for_topic(started, "analysed")
        penstock(started, "topic", "delete", "analysed", "--yes")
        assert reader.latestOffset(first, everything) == first, "all of it was read"
        producer.send("analysed", b"1", key="k")
        second = reader.latestOffset(first, everything)
        assert bodies(reader, first, second) == [b"1"]
        producer.send("analysed", b"2", key="k")
        wait_for_topic(started, "analysed")
        penstock(started, "topic", "delete", "analysed", "--yes")
        for made_again in (False, True):
            if made_again:
                producer.send("analysed", b"3", key="k")
            with pytest.raises(OffsetOutOfRange, match="was deleted or purged at offset 3; offset 2 is wanted"):
                bodies(reader, second, reader.latestOffset(second, everything))
        lossy = stream(failOnDataLoss="false")
        assert bodies(lossy, second, lossy.latestOffset(second, everything)) == [b"3"]
        for one in (reader, lossy):
            one.stop()


def test_topics_that_a_device_used_up_come_back_when_their_messages_have_gone(system: Systems, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(
        "[broker]\ntopics_max = 20\nempty_topic_s = 0.5\nsegment_bytes = 1000000\nretention_bytes = 2000000\n"
        "reserve_step_bytes = 100000\n[gateway]\nclient_topics_per_min_max = 1000\n"
        "user_topics_per_min_max = 1000\n"
    )
    started = system("--config", str(config)).start()
    greedy, other = connected(started, "greedy"), connected(started, "other")
    made = 0
    while publish(greedy, f"t{made}/x", b"mine") == 0:
        made += 1
    assert made > 10
    assert publish(other, "other/x", b"too late") == 0x97

    def makes_room() -> bool:
        assert publish(greedy, "t0/x", bytes(200_000)) == 0, "which retention takes"
        return publish(other, "other/x", b"again") != 0x97

    poll("room for a topic", makes_room)
    assert {row["topic"] for row in penstock(started, "topic", "list")} >= {"other", "t0"}
    assert started.stop() == 0
