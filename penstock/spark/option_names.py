"""The options of ``format("penstock")`` as types, so that an editor completes their names and checks their values.

``options: ReadOptions = {"subscribe": "telemetry"}``, then ``spark.read.format("penstock").options(**options)``. What
the options mean is in docs/guide/analyst.md; ``options`` and ``sink.options`` read them.
"""

from __future__ import annotations

from typing import Literal, TypedDict

Flag = bool | Literal["true", "false"]
Number = int | str
Offsets = Literal["earliest", "latest"] | str

ReadOptions = TypedDict(
    "ReadOptions",
    {
        "servers": str,
        "bootstrap.servers": str,
        "kafka.bootstrap.servers": str,
        "nameServer": str,
        "subscribe": str,
        "subscribePattern": str,
        "assign": str,
        "mqttFilter": str,
        "startingOffsets": Offsets,
        "startingOffsetsByTimestamp": str,
        "startingTimestamp": Number,
        "startingOffsetsByTimestampStrategy": Literal["error", "latest"],
        "endingOffsets": Offsets,
        "endingOffsetsByTimestamp": str,
        "endingTimestamp": Number,
        "maxOffsetsPerTrigger": Number,
        "minOffsetsPerTrigger": Number,
        "maxTriggerDelay": str,
        "group": str,
        "kafka.group.id": str,
        "minPartitions": Number,
        "maxPartitions": Number,
        "partitionTargetRows": Number,
        "failOnDataLoss": Flag,
        "allowIncomplete": Flag,
        "brokerPatienceMs": Number,
        "columns": str,
        "includeHeaders": Flag,
        "payload": Literal["raw", "readings", "json", "msgpack", "cbor", "avro", "protobuf", "sparkplug"],
        "payloadSchema": str,
        "payloadMessage": str,
        "filter": str,
        "where": str,
        "tags": str,
        "fetchOffset.numRetries": Number,
        "fetchOffset.retryIntervalMs": Number,
        "pollTimeoutMs": Number,
        "maxBytesPerFetch": Number,
        "batchRows": Number,
    },
    total=False,
)
"""Options of ``spark.read`` and ``spark.readStream``."""

WriteOptions = TypedDict(
    "WriteOptions",
    {
        "servers": str,
        "bootstrap.servers": str,
        "kafka.bootstrap.servers": str,
        "nameServer": str,
        "topic": str,
        "writeId": str,
        "writeBatch": Number,
        "rowOrder": Literal["given", "sorted"],
        "brokerPatienceMs": Number,
        "fetchOffset.numRetries": Number,
        "fetchOffset.retryIntervalMs": Number,
        "pollTimeoutMs": Number,
    },
    total=False,
)
"""Options of ``frame.write`` and ``frame.writeStream``."""
