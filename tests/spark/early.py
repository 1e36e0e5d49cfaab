"""An analyst's program whose queries end before all rows have come, and whose stream fails at last:
``early.py SERVERS TOPIC COUNT``."""

from __future__ import annotations

import sys
from time import sleep
from typing import Any

from penstock.spark import session

servers, topic, count = sys.argv[1:]
spark = session(testing=True)


def rows(**options: str) -> Any:
    return spark.read.format("penstock").options(servers=servers, subscribe=topic, **options).load()


KINDS = (
    lambda: rows().limit(5).collect(),
    lambda: rows(batchRows="100").take(2),
    lambda: rows(minPartitions="3").first(),
    lambda: rows(payload="readings", batchRows="1000").isEmpty(),
)
for at in range(int(count)):
    KINDS[at % len(KINDS)]()
    print(at, flush=True)
given = {"servers": servers, "subscribe": topic, "endingOffsets": "latest"}
query = spark.readStream.format("penstock").options(**given).load().writeStream.format("noop").start()
while query.isActive:
    sleep(0.01)
spark.stop()
