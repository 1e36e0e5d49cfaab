"""An analyst's program at a Spark Connect server: ``connected.py SERVERS TOPIC FOLDER``, with SPARK_REMOTE set."""

from __future__ import annotations

import json
import sys

from penstock.spark import session

servers, topic, folder = sys.argv[1:]
spark = session()
given = {"servers": servers, "subscribe": topic}
batch = spark.read.format("penstock").options(**given).load()
print(json.dumps(sorted(int(row.value) for row in batch.select("value").collect())), flush=True)
print(spark.conf.get("spark.sql.session.timeZone"), flush=True)
stream = spark.readStream.format("penstock").options(**given, startingOffsets="earliest", maxOffsetsPerTrigger="40")
writer = stream.load().select("value").writeStream.format("parquet").option("checkpointLocation", f"{folder}/progress")
query = writer.trigger(availableNow=True).start(f"{folder}/rows")
query.awaitTermination()
print(json.dumps(sorted(int(row.value) for row in spark.read.parquet(f"{folder}/rows").collect())), flush=True)
try:
    spark.read.format("penstock").options(servers=servers, subscribe="missing").load().collect()
except Exception as error:
    print(str(error), flush=True)
spark.stop()
