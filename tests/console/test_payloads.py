from __future__ import annotations

import contextlib
import json

import cbor2
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.payloads import FORMS, SHOWN_BYTES_MAX, Unreadable, shown, summary

VALUE = {"t": 21.5, "on": True, "list": [1, None, "ü"]}


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (json.dumps(VALUE).encode(), "json"),
        (b"21.5", "json"),
        ("grüße\n".encode(), "text"),
        (msgpack.packb(VALUE), "msgpack"),
        (cbor2.dumps(VALUE), "cbor"),
        (b"\x00\x01\xff", "hex"),
        (b"", "text"),
    ],
)
def test_the_form_of_a_body_is_recognised(body: bytes, form: str) -> None:
    assert shown(body)[0] == form


@pytest.mark.parametrize(("form", "pack"), [("json", json.dumps), ("msgpack", msgpack.packb), ("cbor", cbor2.dumps)])
def test_structured_bodies_are_shown_alike(form: str, pack: object) -> None:
    body = pack(VALUE)  # type: ignore[operator]
    assert json.loads(shown(body.encode() if isinstance(body, str) else body, form)[1]) == VALUE


def test_kinds_that_json_has_not_are_shown_as_text() -> None:
    told = json.loads(shown(msgpack.packb({b"\x01": b"\x02", 3: float("nan")}), "msgpack")[1])
    assert told == {"01": "base64:Ag==", "3": "nan"}
    assert "2026" in shown(cbor2.dumps({"at": cbor2.CBORTag(0, "2026-11-28T10:00:00Z")}), "cbor")[1]


@pytest.mark.parametrize("form", ["text", "json", "msgpack", "cbor", "picture"])
def test_a_form_that_a_body_has_not_says_why(form: str) -> None:
    with pytest.raises(Unreadable):
        shown(b"\xc1\x00\xff", form)


def test_deep_and_long_bodies_are_bounded() -> None:
    for deep in (b"[" * 100_000, b"\x91" * 100_000 + b"\xc0", b"\x81" * 100_000 + b"\xf6"):
        assert shown(deep)[0] in ("text", "hex")
    assert len(shown(b"x" * (1 << 20))[1]) < 2 * SHOWN_BYTES_MAX
    assert len(shown(b"\xff" * (1 << 20))[1]) < 10 * SHOWN_BYTES_MAX


@given(st.binary(max_size=300), st.sampled_from(FORMS))
def test_no_body_is_more_than_unreadable(body: bytes, form: str) -> None:
    told = ""
    with contextlib.suppress(Unreadable):
        told = shown(body, form)[0]
    assert told in (*FORMS[1:], "" if form != "auto" else "hex")
    assert len(summary(body)) < 300


def test_a_summary_is_one_line() -> None:
    assert summary(b"a\nb") == "a·b"
    assert summary(b"\x00\xff\x01") == "00 ff 01"
    assert summary("ü".encode() * 1000) == "ü" * 120 + " …"
