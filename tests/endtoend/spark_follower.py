"""A Spark stream that follows a topic, for tests: ``python -m tests.endtoend.spark_follower SERVERS TOPIC FOLDER``.

Each row that it has read is a line of ``FOLDER/rows``: queue, offset and body.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.spark import session


def main() -> None:
    """Follows until it is killed."""
    servers, topic, folder = sys.argv[1:]
    rows = Path(folder) / "rows"

    def keep(batch: Any, number: int) -> None:
        found = batch.select("queue", "offset", "value").collect()
        with rows.open("a") as file:
            file.writelines(f"{row.queue} {row.offset} {row.value.decode()}\n" for row in found)

    stream = session("follower").readStream.format("penstock")
    options = {"subscribe": topic, "startingOffsets": "earliest", "readFrom": "copies"}
    given = stream.options(servers=servers, **options).load()
    writer = given.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/progress")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
