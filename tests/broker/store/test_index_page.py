"""docs/formats/index.md shows exactly what the store writes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from broker.store.index_chunk import KEY_DTYPE, ChunkParts
from broker.store.queue_index import ENTRY20, QueueIndex
from penstock.protocol.message import tag_hash

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "index.md"


def example() -> bytes:
    index = QueueIndex()
    queue = index.ensure("a:0")
    index.add(queue, ENTRY20.pack(113, 137, tag_hash("hot")), True)
    parts = ChunkParts()
    parts.add([(queue, 1)])
    return b"".join(parts.pieces(0, 250, 0xE76DD742, np.array([(7, 113, 0, 1)], KEY_DTYPE)))


def test_the_pages_chunk_is_what_the_store_writes() -> None:
    rows = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} )*[0-9a-f]{2})", PAGE.read_text(), re.MULTILINE)
    assert bytes.fromhex(" ".join(rows)) == example()
