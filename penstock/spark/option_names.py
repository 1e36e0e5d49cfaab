"""The options of ``format("penstock")`` as types, so that an editor completes their names and checks their values.

``options: ReadOptions = {"subscribe": "telemetry"}``, then ``spark.read.format("penstock").options(**options)``. What
the options mean is in docs/guide/analyst.md; ``options`` and ``sink.options`` read them.
"""

from __future__ import annotations

from typing import Literal, TypedDict

Flag = bool | Literal["true", "false"]
Number = int | str
Offsets = Literal["earliest", "latest"] | str

_DottedOptions = TypedDict(
    "_DottedOptions",
    {
        "bootstrap.servers": str,
        "kafka.bootstrap.servers": str,
        "fetchOffset.numRetries": Number,
        "fetchOffset.retryIntervalMs": Number,
    },
    total=False,
)
"""Options of reading and writing whose names are no names of Python."""

_Group = TypedDict("_Group", {"kafka.group.id": str}, total=False)


class LoginOptions(TypedDict, total=False):
    """Options of the login of a query or a write."""

    user: str
    password: str
    passwordFile: str
    token: str
    tokenFile: str
    tls: str
    tlsCertificate: str
    tlsKey: str


class FurtherOptions(LoginOptions, total=False):
    """Options of reading that ``penstock.spark.reading`` takes by their names, beside its own arguments."""

    subscribePattern: str
    assign: str
    startingOffsets: Offsets
    startingOffsetsByTimestamp: str
    startingTimestamp: Number
    startingOffsetsByTimestampStrategy: Literal["error", "latest"]
    endingOffsets: Offsets
    endingOffsetsByTimestamp: str
    endingTimestamp: Number
    maxOffsetsPerTrigger: Number
    minOffsetsPerTrigger: Number
    maxTriggerDelay: str
    group: str
    minPartitions: Number
    maxPartitions: Number
    partitionTargetRows: Number
    readFrom: Literal["leader", "copies"]
    failOnDataLoss: Flag
    allowIncomplete: Flag
    brokerPatienceMs: Number
    includeHeaders: Flag
    payload: Literal["raw", "readings", "json", "msgpack", "cbor", "avro", "protobuf", "sparkplug"]
    payloadSchema: str
    payloadMessage: str
    filter: str
    tags: str
    pollTimeoutMs: Number
    maxBytesPerFetch: Number
    batchRows: Number


class ReadOptions(FurtherOptions, _DottedOptions, _Group, total=False):
    """Options of ``spark.read`` and ``spark.readStream``."""

    servers: str
    nameServer: str
    subscribe: str
    mqttFilter: str
    columns: str
    where: str


class WriteOptions(LoginOptions, _DottedOptions, total=False):
    """Options of ``frame.write`` and ``frame.writeStream``."""

    servers: str
    nameServer: str
    topic: str
    writeId: str
    writeBatch: Number
    rowOrder: Literal["given", "sorted"]
    brokerPatienceMs: Number
    pollTimeoutMs: Number
