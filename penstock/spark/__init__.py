"""Spark reads Penstock's queues: ``spark.readStream.format("penstock")`` and the batch twin, in pure Python and Arrow.

``session()`` starts a tuned, quiet Spark with the right Java and Python; ``register(spark)`` teaches the source to a
session that already exists. Neither pyspark nor Java is loaded before one of them is called. ``ReadOptions`` and
``WriteOptions`` are the options as types; ``plain_errors()`` gives errors of queries in one sentence.
"""

from __future__ import annotations

from penstock.spark.causes import plain_errors as plain_errors
from penstock.spark.option_names import ReadOptions as ReadOptions
from penstock.spark.option_names import WriteOptions as WriteOptions
from penstock.spark.session import register as register
from penstock.spark.session import session as session

__all__ = ["ReadOptions", "WriteOptions", "plain_errors", "register", "session"]
