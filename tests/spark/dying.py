"""An analyst's stream in which things die: ``dying.py SERVERS TOPIC CHECKPOINT OUT``.

The sink writes each batch to a file of its number, whole or not at all. Once, all Python workers are killed while they
read; and the program ends between the sink's write of batch 1 and Spark's commit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.spark import session

servers, topic, checkpoint, out = sys.argv[1:]
killed = str(Path(out) / "killed")


def write(batch: Any, number: int) -> None:
    rows = [int(one) for one in batch.toArrow().column(0).to_pylist()]
    whole = Path(out) / f"{number}.json"
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(rows))
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


spark = session(testing=True, master="local[2,4]")  # each task is tried four times
frame = spark.readStream.format("penstock").options(
    servers=servers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300", columns="value"
)
query = (
    frame.load()
    .mapInArrow(kill_once, "value BINARY")
    .writeStream.foreachBatch(write)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
