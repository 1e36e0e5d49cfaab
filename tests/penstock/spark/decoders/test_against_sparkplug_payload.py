"""Our decoder beside npm's sparkplug-payload: what that encodes, ours reads. ``make install-test`` installs it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.decoders.formats import decoded, format_of
from tests.patience import PATIENCE_S

pytest.importorskip("google.protobuf")

MODULES = Path(__file__).parents[4] / ".node" / "node_modules"
NAME = "spBv1.0/plant/DBIRTH/edge1/pump"
BEGIN_MS = 1_700_000_000_000
ENCODE = """
const {encodePayload} = require("sparkplug-payload").get("spBv1.0");
const payloads = JSON.parse(require("fs").readFileSync(0));
for (const payload of payloads)
    for (const one of payload.metrics) if (one.type === "Bytes") one.value = Buffer.from(one.value, "hex");
console.log(JSON.stringify(payloads.map(one => Buffer.from(encodePayload(one)).toString("hex"))));
"""
Metric = dict[str, Any]
RANGES = {f"{sign}Int{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 53)}


def encoded(payloads: list[dict[str, Any]]) -> list[bytes]:
    if shutil.which("node") is None or not (MODULES / "sparkplug-payload").exists():
        pytest.skip("sparkplug-payload is not installed: it needs node and npm, then run make install-test")
    environment = os.environ | {"NODE_PATH": str(MODULES)}
    command = ["node", "-e", ENCODE]
    given = json.dumps(payloads)
    ran = subprocess.run(
        command, input=given, capture_output=True, text=True, env=environment, check=True, timeout=PATIENCE_S
    )
    return [bytes.fromhex(one) for one in json.loads(ran.stdout)]


def made(rng: random.Random) -> Metric:
    """A metric of any type."""
    kind = rng.choice([*RANGES, "Float", "Double", "Boolean", "String", "Text", "UUID", "DateTime", "Bytes"])
    value: Any
    if kind in RANGES:
        bits = RANGES[kind] - (not kind.startswith("U"))
        value = rng.choice([rng.getrandbits(bits), (1 << bits) - 1, 0])
        value = -value if not kind.startswith("U") and rng.random() < 0.5 else value
    elif kind in ("Float", "Double"):
        value = rng.randrange(-4000, 4000) / 8
    elif kind == "Boolean":
        value = rng.random() < 0.5
    elif kind == "DateTime":
        value = BEGIN_MS + rng.randrange(10**9)
    elif kind == "Bytes":
        value = rng.randbytes(5).hex()
    else:
        value = rng.choice(["", "warm", "grün", "😀"])
    name, number = f"metric {rng.randrange(99)}", rng.randrange(1, 1 << 30)
    kind = kind.replace("53", "64")
    return {"name": name, "alias": number, "type": kind, "value": value, "timestamp": BEGIN_MS + number}


def expected(one: Metric) -> tuple[Any, ...]:
    """Type, value, text and bytes."""
    kind, value = one["type"], one["value"]
    if kind == "Bytes":
        return kind, None, None, bytes.fromhex(value)
    if kind in ("String", "Text", "UUID"):
        return kind, None, value, None
    if kind in ("Float", "Double"):
        return kind, value, None, None
    return kind, float(value), str(value).lower(), None


def test_payloads_of_the_library_are_read_as_they_were_given() -> None:
    rng = random.Random(43)
    payloads = [
        {"timestamp": BEGIN_MS + at, "seq": at % 256, "metrics": [made(rng) for _ in range(rng.randrange(1, 9))]}
        for at in range(300)
    ]
    bodies = encoded(payloads)
    found = decoded(bodies, format_of("sparkplug", ""), [NAME] * len(bodies))
    assert found.error.null_count == len(bodies)
    for given, read in zip(payloads, found.data.to_pylist(), strict=True):
        assert (read["type"], read["device"], read["seq"]) == ("DBIRTH", "pump", given["seq"])
        assert read["timestamp"].timestamp() * 1000 == pytest.approx(given["timestamp"])
        shown = [(one["name"], one["alias"], round(one["timestamp"].timestamp() * 1000)) for one in read["metrics"]]
        assert shown == [(one["name"], one["alias"], one["timestamp"]) for one in given["metrics"]]
        values = [(one["datatype"], one["value"], one["text"], one["bytes"]) for one in read["metrics"]]
        assert values == [expected(one) for one in given["metrics"]]


def test_a_metric_that_is_null_has_no_value() -> None:
    (body,) = encoded([{"metrics": [{"name": "a", "type": "Int32", "value": None}]}])
    found = decoded([body], format_of("sparkplug", ""), [NAME]).data.to_pylist()[0]
    assert [(one["name"], one["value"], one["is_null"]) for one in found["metrics"]] == [("a", None, True)]
