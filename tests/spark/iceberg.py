"""Writes a table of Iceberg as a job does, by a pyspark that Penstock's source does not run on: the newest that has
jars of Iceberg. ``releases.py`` runs it. Arguments: a folder, and the package."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from penstock.telemetry.outputs import output_of

LAKE = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def main(folder: str, package: str) -> None:
    given = LAKE | {"spark.sql.catalog.lake.warehouse": folder, "spark.jars.packages": package}
    given["spark.sql.warehouse.dir"] = f"{folder}/own"  # else Spark makes a folder where the program is
    builder = SparkSession.builder.master("local[1]")
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    output = output_of("iceberg:lake.alerts", "alerts", ["device"], "")
    output.check(spark)
    for batch, device in enumerate(("d1", "d2")):
        output.write(spark.createDataFrame([(device, 1.0)], "device STRING, value DOUBLE"), batch)
    print(sorted(row.device for row in spark.table("lake.alerts").collect()))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
