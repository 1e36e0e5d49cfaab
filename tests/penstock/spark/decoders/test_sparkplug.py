"""Sparkplug B payloads, compared with messages that were written after the specification."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.spark.decoders.fitting import Undecodable
from penstock.spark.decoders.formats import decoded, format_of
from penstock.spark.decoders.sparkplug import DATATYPES, name_of, signed

pytest.importorskip("google.protobuf")
sys.path.insert(0, str(Path(__file__).parent))
from sparkplug_messages import metric, payload

NAME = "spBv1.0/plant/NDATA/edge1"
AT = datetime.fromtimestamp(1_700_000_000, UTC)


def read(body: bytes, name: str = NAME) -> tuple[Any, str | None]:
    found = decoded([body], format_of("sparkplug", ""), [name])
    return found.data.to_pylist()[0], found.error.to_pylist()[0]


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("Int8", {"int": -5}, (-5.0, "-5")),
        ("Int16", {"int": -300}, (-300.0, "-300")),
        ("Int32", {"int": -(2**31)}, (-(2.0**31), "-2147483648")),
        ("Int64", {"long": -(2**62) - 1}, (-(2.0**62), "-4611686018427387905")),
        ("UInt32", {"int": 2**32 - 1}, (2.0**32 - 1, "4294967295")),
        ("UInt64", {"long": 2**64 - 1}, (2.0**64, "18446744073709551615")),
        ("Float", {"float": 1.5}, (1.5, None)),
        ("Double", {"double": 0.1}, (0.1, None)),
        ("Boolean", {"boolean": True}, (1.0, "true")),
        ("String", {"string": "warm"}, (None, "warm")),
        ("DateTime", {"long": 1_700_000_000_000}, (1.7e12, "1700000000000")),
    ],
)
def test_a_metric_has_the_value_of_its_type(datatype: str, value: dict[str, Any], expected: tuple[Any, ...]) -> None:
    one = metric("temp", 7, DATATYPES.index(datatype), 1_700_000_000_000, **value)
    data, error = read(payload(one, seq=3))
    assert error is None
    assert {name: data[name] for name in ("type", "group", "node", "device", "seq", "timestamp")} == {
        "type": "NDATA",
        "group": "plant",
        "node": "edge1",
        "device": None,
        "seq": 3,
        "timestamp": AT,
    }
    (found,) = data["metrics"]
    assert (found["value"], found["text"]) == expected
    assert (found["name"], found["alias"], found["datatype"], found["timestamp"]) == ("temp", 7, datatype, AT)


def test_bytes_are_bytes_and_a_null_has_no_value() -> None:
    data, _ = read(payload(metric("a", bytes=b"\xff"), metric("b", is_null=True, int=3), metric("c")))
    assert [(one["bytes"], one["value"], one["is_null"]) for one in data["metrics"]] == [
        (b"\xff", None, False),
        (None, None, True),
        (None, None, False),
    ]


def test_a_hosts_state_is_a_metric() -> None:
    for body in (b'{"online": true, "timestamp": 1700000000000}', b"ONLINE"):
        data, error = read(body, "spBv1.0/STATE/scada")
        assert error is None
        assert (data["type"], data["node"], data["metrics"][0]["value"]) == ("STATE", "scada", 1.0)
    assert read(b"perhaps", "spBv1.0/STATE/scada")[1] == "a state says whether its host is online"


@pytest.mark.parametrize(
    "name", ["", "a/b", "spBv1.0/g/NDATA/n/d", "spBv1.0/g/DDATA/n", "spAv1.0/g/NDATA/n", "spBv1.0/g/X/n"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(Undecodable, match="no name of Sparkplug B"):
        name_of(name)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), min_size=1, max_size=4), st.binary(max_size=20))
def test_bytes_that_were_changed_give_one_row_each(changes: list[tuple[int, int]], noise: bytes) -> None:
    whole = payload(metric("temp", 7, 10, 1, double=2.5), metric(alias=8, int=3), seq=1)
    changed = bytearray(whole)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    found = decoded([bytes(changed), noise, None, whole], format_of("sparkplug", ""), [NAME] * 4)
    data, errors = found.data.to_pylist(), found.error.to_pylist()
    assert [one is None for one in data] == [one is not None for one in errors]
    assert len(data[3]["metrics"]) == 2


def test_whole_numbers_keep_what_their_type_says() -> None:
    assert (signed(0xFF, "Int8"), signed(0xFFFFFFFF, "Int8"), signed(0x7F, "Int8")) == (-1, -1, 127)
    assert (signed(5, None), signed(0xFFFFFFFF, "UInt32")) == (5, 0xFFFFFFFF)


def test_it_has_a_schema_of_its_own() -> None:
    with pytest.raises(InvalidConfig, match="Sparkplug has a schema of its own"):
        format_of("sparkplug", "a INT")
