from __future__ import annotations

import re
from pathlib import Path

from broker.filters import fold as filters
from broker.groups import fold as offsets
from broker.groups.fold import Offsets
from broker.kernel.fold import fact_record
from broker.lineage import epochs, identity, removals
from broker.replica import members
from broker.shares import fold as shares
from broker.store.records import KEYFRAME_TOPIC, SEAL_TOPIC
from broker.timers import fold as timers
from broker.topics import fold as topics
from broker.transactions import fold as halves
from penstock.protocol.requests.groups import QueueOffset

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "facts.md").read_text()


def test_the_worked_example_is_what_the_broker_writes() -> None:
    drawn = re.search(r"^## Worked example\n.*?```\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert drawn
    shown = bytes.fromhex("".join(re.match(r" *((?:[0-9a-f]{2,} ?)+)", line)[1] for line in drawn[1].splitlines()))  # type: ignore[index]
    fact = Offsets.fact("billing", [QueueOffset("orders:0", 5)])
    assert fact_record(offsets.TOPIC, fact).run.bodies[0] == shown


def test_the_page_names_every_topic_of_the_brokers_own() -> None:
    own = (topics, filters, offsets, shares, identity, epochs, timers, halves, removals, members)
    for topic in (*[one.TOPIC for one in own], KEYFRAME_TOPIC, SEAL_TOPIC):
        assert f"`{topic}`" in PAGE
