"""Property strings, as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidMessage
from penstock.protocol.message import encode_properties, stored_key
from penstock.protocol.properties import KEYS_BASE64, decode_properties, read_key

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_what_was_written_is_read_also_with_a_separator_behind_it(properties: dict[str, str]) -> None:
    raw = encode_properties(properties)
    assert decode_properties(raw) == decode_properties(raw + b"\x02" * bool(raw)) == properties


@pytest.mark.parametrize("raw", [b"a", b"a\x01b\x01c", b"\xff\x01b", b"a\x01b\x02c"])
def test_what_is_no_property_string_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_properties(raw)


@pytest.mark.parametrize("key", [b"\xff\x00", b"\x01", "a\x02b"])
def test_a_key_that_is_no_text_for_a_property_is_read_from_base64(key: str | bytes) -> None:
    name, value = stored_key(key)
    assert name == KEYS_BASE64
    found = read_key(value)
    assert (found.encode() if isinstance(found, str) else found) == (key.encode() if isinstance(key, str) else key)
    assert read_key("no base64!") == ""
