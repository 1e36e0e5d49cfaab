"""``penstock top`` against real servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import Producer

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_rates_of_topics_and_groups_come_the_busiest_first(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    empty = penstock("top", "--every", "1ms", "-n", "1")
    assert (empty.stderr, empty.stdout) == ("(no topics yet)\n", "")
    rows("produce", "quiet", "1", "2")
    rows("produce", "busy", "1")
    rows("consume", "busy", "-g", "billing", "-n", "1")
    ended = threading.Event()

    def send() -> None:
        with Producer(servers=real_cluster.servers) as producer:
            while not ended.is_set():
                producer.send("busy", b"x")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        shown = penstock("top", "--every", "200ms", "-n", "1", "--json")
    finally:
        ended.set()
        sender.join()
    told = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["kind"], row["name"]) for row in told] == [("topic", "busy"), ("group", "billing"), ("topic", "quiet")]
    busy, billing, quiet = told
    assert busy["per_s"] > 0
    assert (quiet["per_s"], quiet["messages"], billing["per_s"]) == (0, 2, 0)
    assert billing["lag"] > 0
    cut = penstock("top", "--every", "1ms", "-n", "1", "--rows", "1")
    assert (cut.stderr, len(cut.stdout.splitlines())) == ("(2 less busy topics and groups are not shown: --rows)\n", 2)
    assert "quiet" in penstock("top", "--every", "1ms", "-n", "1").stdout
