"""The messages that the benchmark stores: JSON of 200 bytes, of a thousand devices, one in each millisecond."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock import Message
from penstock.blocking import Producer

BODY_BYTES: Final = 200
DEVICES: Final = 1000
QUEUES: Final = 4
BATCH: Final = 500
"""Number of consecutive messages in one queue."""
BEGIN_MS: Final = 1_699_999_990_000
"""A window of ten seconds begins here."""
WINDOW_MS: Final = 10_000
_STEP: Final = 7919
"""Devices take turns in steps of this, which has no factor in common with their number."""


def body(number: int) -> bytes:
    """The message of this number."""
    text = f'{{"device":"d{number * _STEP % DEVICES:04}","time":{BEGIN_MS + number},"metric":"t"'
    text += f',"value":{number % 977 / 8},"note":"'
    return (text + "x" * (BODY_BYTES - len(text) - 2) + '"}').encode()


def groups(count: int) -> int:
    """How many pairs of window and device the first ``count`` messages are of."""
    whole, rest = divmod(count, WINDOW_MS)
    return whole * min(DEVICES, WINDOW_MS) + min(rest, DEVICES)


def store(servers: str, topic: str, count: int) -> None:
    """Sends the first ``count`` messages, with a batch to each queue in turn."""
    with Producer(servers=servers) as producer:
        for start in range(0, count, BATCH):
            producer.send_many([Message(topic, body(one)) for one in range(start, min(start + BATCH, count))])


def write_parquet(folder: Path, count: int) -> None:
    """Writes the same messages as Parquet files, one of each queue, with the number of the queue beside each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for queue in range(QUEUES):
        starts = range(queue * BATCH, count, QUEUES * BATCH)
        bodies = [body(one) for start in starts for one in range(start, min(start + BATCH, count))]
        table = pa.table(
            {"value": pa.array(bodies, pa.binary()), "partition": pa.array([queue] * len(bodies), pa.int32())}
        )
        pq.write_table(table, folder / f"queue-{queue}.parquet")
