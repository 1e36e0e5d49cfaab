"""A job from its start to its first row: ``python -m loadtest.spark.first_row SERVERS TOPIC``. It prints ``row`` when a
stream has its first batch of rows, as a job of a user's would."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from penstock.spark import session


def main(servers: str, topic: str) -> None:
    """Runs the job over all stored messages and ends."""
    told: list[int] = []

    def take(frame: Any, number: int) -> None:
        if frame.limit(1).count() and not told:
            told.append(number)
            print("row", flush=True)

    spark = session("first-row", master="local[2]")
    given = {"servers": servers, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = spark.readStream.format("penstock").options(**given).load().writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
        while query.isActive and not told:
            query.awaitTermination(1)
        while query.isActive and query.status["isTriggerActive"] and query.status["isDataAvailable"]:
            query.awaitTermination(1)  # within a batch Spark would complain of being stopped
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
