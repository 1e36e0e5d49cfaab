"""Payloads as columns: ``decode(frame, "json", "temp DOUBLE")``, with undecodable ones kept apart.

JSON, MessagePack and CBOR by a schema that is given or inferred; Avro and protobuf by theirs; Sparkplug B with the
names of its metrics. A payload never ends a query: each message gives one row, with ``data`` or with an ``error``.
"""

from __future__ import annotations

from penstock.spark.decoders.frames import dead_letters as dead_letters
from penstock.spark.decoders.frames import decode as decode
from penstock.spark.decoders.frames import infer as infer
from penstock.spark.decoders.frames import split as split
from penstock.spark.decoders.metrics import metrics as metrics

__all__ = ["dead_letters", "decode", "infer", "metrics", "split"]
