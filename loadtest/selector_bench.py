"""What a selector costs a message: three terms of several kinds, over a message with six properties."""

from __future__ import annotations

import time
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from penstock.protocol.message import encode_properties
from penstock.protocol.selectors.compiling import Selector

ROUNDS: Final = 7
MESSAGES: Final = 20_000
PROPERTIES: Final = {
    "KEYS": "device-17",
    "UNIQ_KEY": "0123456789abcdef0123456789abcdef-12",
    "region": "eu-west",
    "level": "17",
    "kind": "reading",
    "temperature": "21.5",
}
BODY: Final = b'{"device": {"id": 17, "site": "north"}, "values": [21.5, 22.0, 19.75], "unit": "C"}'
WORKLOADS: Final = (
    "region = 'eu-west' AND level > 5 AND kind <> 'alarm'",
    "region IN ('eu-west', 'us-east') AND level BETWEEN 1 AND 20 AND kind LIKE 'read%'",
    "temperature > 20.0 AND kind STARTSWITH 'rea' AND missing IS NULL",
    "region CONTAINS 'west' AND level >= 17 AND kind LIKE '_eadin_'",
    "$.device.id = 17 AND $.device.site = 'north' AND $.unit <> 'F'",
)


def run(console: Console) -> None:
    """Measures and prints."""
    table = Table(title="selectors, processor time per message", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("selector")
    table.add_column("us", justify="right")
    for text in WORKLOADS:
        table.add_row(text, f"{measure(text):.2f}")
    console.print(table)


def measure(text: str) -> float:
    """Processor microseconds that one judgement takes, in the best of some rounds. The message matches."""
    selector = Selector(text)
    properties = encode_properties(PROPERTIES)
    body = BODY if selector.reads_body else b""
    assert selector.matches(properties, body)
    best = 1 << 62
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        for _ in range(MESSAGES):
            selector.matches(properties, body)
        best = min(best, time.process_time_ns() - start)
    return best / MESSAGES / 1000
