"""An analyst's program: ``dying.py SERVERS TOPIC CHECKPOINT OUT QUERIES``. First some queries end before all rows
have come, and a stream fails, whose errors end with a line of ``MARK`` on stderr. Then things die in a stream.

The stream's sink writes each batch to a file of its number, whole or not at all. Once, all Python workers are killed
while they read; and the program ends between the sink's write of batch 1 and Spark's commit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

from penstock.spark import session

servers, topic, checkpoint, out, count = sys.argv[1:]
killed = str(Path(out) / "killed")
MARK = "----"


def rows(**options: str) -> Any:
    return spark.read.format("penstock").options(servers=servers, subscribe=topic, **options).load()


def stream(**options: str) -> Any:
    given = {"servers": servers, "subscribe": topic, "columns": "value"} | options
    return spark.readStream.format("penstock").options(**given).load()


def write(batch: Any, number: int) -> None:
    values = [int(one) for one in batch.toArrow().column(0).to_pylist()]
    whole = Path(out) / f"{number}.json"
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(values))
    part.rename(whole)
    if number == 1:
        os._exit(9)


def kill_once(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if not os.path.exists(killed):
            open(killed, "w").close()
            parent = os.getppid()
            with open(f"/proc/{parent}/task/{parent}/children") as children:
                others = [int(one) for one in children.read().split() if int(one) != os.getpid()]
            for one in [*others, os.getpid()]:
                os.kill(one, signal.SIGKILL)
        yield batch


KINDS = (
    lambda: rows(batchRows="50").limit(5).collect(),
    lambda: rows(batchRows="10").take(2),
    lambda: rows(minPartitions="3", batchRows="50").first(),
    lambda: rows(payload="readings", batchRows="10").isEmpty(),
)

spark = session(light=True, master="local[2,4]")  # each task is tried four times
for at in range(int(count)):
    KINDS[at % len(KINDS)]()
    print(at, flush=True)
query = stream(endingOffsets="latest").writeStream.format("noop").start()
while query.isActive:
    sleep(0.01)
print(MARK, file=sys.stderr, flush=True)

query = (
    stream(startingOffsets="earliest", maxOffsetsPerTrigger="300")
    .mapInArrow(kill_once, "value BINARY")
    .writeStream.foreachBatch(write)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
