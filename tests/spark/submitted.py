"""A job for ``spark-submit``: ``submitted.py SERVERS TOPIC FOLDER``. It reads a batch, then a stream in which it kills
one executor that has begun to read. It prints what it found as lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from penstock.spark import session

servers, topic, folder = sys.argv[1:]
READ = "value BINARY, executor LONG"


def executor() -> int:
    """The process of Java that this worker works for: the parent of the daemon that forked it."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def asking(mark: str) -> Any:
    """For ``mapInArrow``: says which executor has each row, and kills the first one that has read some, if a file
    ``mark`` can be made, which says that it did."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            executors = pa.array([executor()] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays([batch.column(0), executors], names=["value", "executor"])
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(executor(), signal.SIGKILL)

    return work


def tell(name: str, rows: list[Any]) -> None:
    print(
        json.dumps([name, sorted(int(row.value) for row in rows), sorted({row.executor for row in rows})]), flush=True
    )


spark = session("submitted")
print(json.dumps(["from", penstock.__file__, spark.conf.get("spark.master")]), flush=True)
given = {"servers": servers, "subscribe": topic, "columns": "value", "batchRows": "50"}
batch = spark.read.format("penstock").options(**given, partitionTargetRows="400").load()
tell("batch", batch.mapInArrow(asking(folder), READ).collect())

stream = spark.readStream.format("penstock").options(**given, startingOffsets="earliest", maxOffsetsPerTrigger="1000")
writer = stream.load().mapInArrow(asking(f"{folder}/killed"), READ).writeStream.format("parquet")
writer = writer.option("checkpointLocation", f"{folder}/progress").trigger(availableNow=True)
query = writer.start(f"{folder}/rows")
query.awaitTermination()
tell("stream", spark.read.parquet(f"{folder}/rows").collect())
print(json.dumps(["batches", len({one["batchId"] for one in query.recentProgress})]), flush=True)
spark.stop()
