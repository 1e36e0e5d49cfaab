from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from node.addresses import Addresses


async def no_figures() -> dict[str, float]:
    return {}


AT = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4")
ADDRESSES = Addresses(*AT, Path("/data"), no_figures)
WITH_TLS = replace(ADDRESSES, listeners={"tls": "127.0.0.1:5", "ws": "127.0.0.1:6"})


def test_the_ready_line_names_every_address_and_the_folder() -> None:
    expected = "ready mqtt=127.0.0.1:1 broker=127.0.0.1:2 namesrv=127.0.0.1:3 http=127.0.0.1:4 data=/data"
    assert ADDRESSES.ready_line() == expected


def test_further_listeners_stand_before_the_folder() -> None:
    assert WITH_TLS.ready_line().endswith(" http=127.0.0.1:4 mqtt-tls=127.0.0.1:5 mqtt-ws=127.0.0.1:6 data=/data")


def test_the_console_is_named_by_its_url() -> None:
    seen = replace(ADDRESSES, console="http://127.0.0.1:8090/")
    assert seen.ready_line().endswith(" http=127.0.0.1:4 console=http://127.0.0.1:8090/ data=/data")
    assert json.loads(seen.ready_json())["console"] == "http://127.0.0.1:8090/"


def test_the_ready_object_says_the_same() -> None:
    assert json.loads(WITH_TLS.ready_json()) == {
        "ready": True,
        "mqtt": "127.0.0.1:1",
        "broker": "127.0.0.1:2",
        "namesrv": "127.0.0.1:3",
        "http": "127.0.0.1:4",
        "console": None,
        "listeners": {"tls": "127.0.0.1:5", "ws": "127.0.0.1:6"},
        "data": "/data",
    }
