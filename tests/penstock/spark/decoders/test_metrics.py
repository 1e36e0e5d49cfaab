"""Metrics by name: what births tell of the messages behind them."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

from penstock.spark.decoders.metrics import SCHEMA, Edge


def message(kind: str, *metrics: dict[str, Any], seq: int | None = None, device: str | None = None) -> dict[str, Any]:
    given = {"type": kind, "group": "plant", "node": "edge1", "device": device, "seq": seq, "metrics": list(metrics)}
    return given | {"timestamp": "2026-11-28T12:00:00.000Z"}


def named(name: str, alias: int, datatype: str = "Double", **value: Any) -> dict[str, Any]:
    return {"name": name, "alias": alias, "datatype": datatype, **value}


def told(rows: Iterator[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["device"], row["metric"], row["value"], row["online"], row["gap"]) for row in rows]


BIRTH = message("NBIRTH", named("bdSeq", 0, value=1.0), named("temp", 7, value=20.0), seq=0)


def test_a_birth_names_what_comes_behind_it_also_from_batch_to_batch() -> None:
    edge = Edge()
    assert told(edge.take(BIRTH)) == [(None, "bdSeq", 1.0, True, False), (None, "temp", 20.0, True, False)]
    edge = Edge(edge.state())
    assert told(edge.take(message("NDATA", {"alias": 7, "value": 21.0}, seq=1))) == [(None, "temp", 21.0, True, False)]
    assert set(next(edge.take(message("NCMD", {"name": "x"})))) | {"topic", "queue", "offset"} == {
        column.split(" ")[0] for column in SCHEMA.split(", ")
    }


def test_devices_have_births_of_their_own_which_end_with_their_nodes() -> None:
    edge = Edge()
    list(edge.take(BIRTH))
    list(edge.take(message("DBIRTH", named("speed", 9), seq=1, device="d1")))
    assert told(edge.take(message("DDATA", {"alias": 9, "value": 3.0}, seq=2, device="d1")))[0][1:4] == (
        "speed",
        3.0,
        True,
    )
    (row,) = edge.take(message("DDATA", {"alias": 7}, seq=3, device="d1"))
    assert row["error"] == "alias 7 is not known: its birth does not tell"
    assert told(edge.take(message("DDEATH", seq=4, device="d1"))) == [("d1", None, None, False, False)]
    list(edge.take(message("NBIRTH", named("bdSeq", 0, value=2.0), seq=0)))
    (row,) = edge.take(message("DDATA", {"alias": 9}, seq=1, device="d1"))
    assert row["error"].startswith("alias 9 is not known: no birth since")


def test_a_death_counts_for_its_own_birth_only() -> None:
    edge = Edge()
    list(edge.take(BIRTH))
    assert list(edge.take(message("NDEATH", {"name": "bdSeq", "value": 0.0}))) == []
    assert told(edge.take(message("NDEATH", {"name": "bdSeq", "value": 1.0}))) == [(None, None, None, False, False)]
    (row,) = edge.take(message("NDATA", {"alias": 7, "value": 1.0}, seq=1))
    assert (row["metric"], row["online"]) == (None, False)


def test_a_sequence_with_a_hole_is_a_gap() -> None:
    edge = Edge()
    list(edge.take(BIRTH))
    data = {"alias": 7, "value": 1.0}
    assert [told(edge.take(message("NDATA", data, seq=seq)))[0][4] for seq in (1, 2, 4, 5)] == [
        False,
        False,
        True,
        False,
    ]
    edge.seq = 255
    assert not told(edge.take(message("NDATA", data, seq=0)))[0][4]


def test_a_birth_tells_the_type_of_numbers_that_have_none() -> None:
    edge = Edge()
    list(edge.take(message("NBIRTH", named("level", 1, "Int16"), named("raw", 2, "Bytes"), seq=0)))
    unsigned = {"alias": 1, "value": 65_535.0, "text": "65535"}
    packed = {"alias": 2, "bytes": base64.b64encode(b"\xff").decode()}
    level, raw = edge.take(message("NDATA", unsigned, packed, seq=1))
    assert (level["metric"], level["datatype"], level["value"], level["text"]) == ("level", "Int16", -1.0, "-1")
    assert (raw["metric"], raw["bytes"]) == ("raw", b"\xff")


def test_however_a_stream_is_cut_into_batches_the_rows_are_the_same() -> None:
    chance = random.Random(1)
    messages = [BIRTH]
    for seq in range(1, 60):
        kind = chance.choice(("NDATA", "DBIRTH", "DDATA", "DDEATH", "NBIRTH"))
        device = None if kind[0] == "N" else chance.choice("ab")
        one = named("temp", 7, value=1.0) if "BIRTH" in kind else {"alias": chance.choice((7, 8)), "value": 2.0}
        messages.append(message(kind, one, seq=seq, device=device))
    edge = Edge()
    whole = [row for one in messages for row in edge.take(one)]
    cut: list[dict[str, Any]] = []
    state: str | None = None
    for one in messages:
        edge = Edge(state)
        cut += edge.take(one)
        state = edge.state()
    assert cut == whole
    assert {row["metric"] for row in whole} == {"temp", "bdSeq", None}
