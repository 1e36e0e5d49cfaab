"""Rows as messages to a topic or to devices, sent by the driver in each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.blocking import Producer
from penstock.errors import InvalidConfig
from penstock.protocol.message import Message
from penstock.telemetry.jobs.messages import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT_AT_ONCE: Final = 5_000


class Messages:
    """Sends each row as JSON: to a topic, keyed by its device, or under an MQTT topic name.

    Args:
        to: topic, or pattern of MQTT topic names (``jobs.messages``).
        servers: name servers.
        to_devices: which of both ``to`` is.
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
        """Any session can."""

    def write(self, rows: DataFrame, batch: int) -> None:
        """Sends a batch. Raises what the producer raises."""
        found = messages(rows, self._to).toLocalIterator()
        with Producer(servers=self._servers) as producer:
            waiting: list[Message] = []
            for row in found:
                about = {"mqtt_topic": row["mqtt_topic"]} if self._to_devices else {"topic": self._to}
                waiting.append(Message(body=bytes(row["value"]), key=row["key"] or "", **about))
                if len(waiting) == SENT_AT_ONCE:
                    producer.send_many(waiting)
                    waiting.clear()
            if waiting:
                producer.send_many(waiting)
