"""Top talkers: the devices that sent most in each window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.telemetry.windows import WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW: Final = "1 minute"
TOP: Final = 10
COLUMNS_NEEDED: Final = ("timestamp", "mqtt_topic", "client_id", "value")
COLUMNS: Final = ("window_start", "window_end", "rank", "device", "messages", "bytes", "share")


def talkers(messages: DataFrame, window: str = WINDOW, top: int = TOP, watermark: str = WATERMARK) -> DataFrame:
    """The ``top`` senders of each window by messages, then bytes, then name: ``COLUMNS``.

    A sender is the MQTT client's id, else the second level of the topic name. ``share`` is the part of the window's
    messages. A stream gives a window when the watermark has passed its end.

    Args:
        messages: rows of the source with ``COLUMNS_NEEDED``.
        window: length of a window of store time.
        top: most rows of a window.
        watermark: how long a window stays open for messages of queues that are read later.
    """
    from pyspark.sql import functions as f

    sender = f.coalesce(f.nullif("client_id", f.lit("")), f.split_part("mqtt_topic", f.lit("/"), f.lit(2)))
    timed = messages.withWatermark("timestamp", watermark)
    each = timed.groupBy(f.window("timestamp", window).alias("window"), sender.alias("device")).agg(
        f.count("*").alias("messages"), f.coalesce(f.sum(f.octet_length("value")), f.lit(0)).alias("bytes")
    )
    by_rank = f.struct((-f.col("messages")).alias("less"), (-f.col("bytes")).alias("lighter"), "device")
    ranked = each.groupBy("window").agg(
        f.slice(f.array_sort(f.collect_list(by_rank)), 1, top).alias("ranked"), f.sum("messages").alias("all")
    )
    rows = ranked.select("window", "all", f.posexplode("ranked").alias("rank", "one"))
    return rows.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        (f.col("rank") + 1).alias("rank"),
        "one.device",
        (-f.col("one.less")).alias("messages"),
        (-f.col("one.lighter")).alias("bytes"),
        (-f.col("one.less") / f.col("all")).alias("share"),
    )
