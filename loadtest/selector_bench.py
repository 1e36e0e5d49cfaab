"""What a selector costs a message: three terms of several kinds, over a message with six properties; by itself, and as
a broker chooses from what it has read for a pull."""

from __future__ import annotations

import time
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from broker.messages.filtering import CHUNK, Choice, Selection
from penstock.protocol.message import ENTRY, FRAME_HEAD_BYTES, Message, encode_message, encode_properties
from penstock.protocol.requests.messages import Pulled
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
    for title in ("alone us", "in a pull us"):
        table.add_column(title, justify="right")
    for text in WORKLOADS:
        table.add_row(text, f"{measure(text):.2f}", f"{measure_pull(text):.2f}")
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


def measure_pull(text: str) -> float:
    """The same of all that a broker does for a message that it has read: it finds its properties, judges and takes it
    into the reply."""
    properties = {name: value for name, value in PROPERTIES.items() if name not in ("KEYS", "UNIQ_KEY")}
    message = Message("t", BODY, PROPERTIES["KEYS"], properties=properties, id=PROPERTIES["UNIQ_KEY"])
    frame = bytes(FRAME_HEAD_BYTES) + encode_message(message)
    rows = [ENTRY.pack(number, 0, len(frame), 0) for number in range(CHUNK)]
    read = Pulled(CHUNK, CHUNK, 0, CHUNK, b"".join(rows) + frame * CHUNK)
    wanted = Selection(Selector(text))
    best = 1 << 62
    for _ in range(ROUNDS):
        choice = Choice(wanted, CHUNK, 1 << 30)
        start = time.process_time_ns()
        choice.take(read)
        reply = choice.pulled(choice.next, read.min, read.end)
        best = min(best, time.process_time_ns() - start)
        assert reply.count == CHUNK
    return best / CHUNK / 1000
