from __future__ import annotations

import contextlib
import gzip
import sys
import zlib

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidMessage, InvalidRequest
from penstock.protocol.compression import (
    BODY_BYTES_MAX,
    COMPRESSED,
    LZ4,
    ZLIB,
    ZSTD,
    compress,
    decompress,
    system_flag_of,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NAMES = ("zstd", "lz4", "zlib")
BOMBS = {
    "zstd": lambda size: zstd.compress(bytes(size)),
    "lz4": lambda size: lz4.frame.compress(bytes(size)),
    "zlib": lambda size: zlib.compress(bytes(size)),
}


@pytest.mark.parametrize("name", NAMES)
@given(st.binary(max_size=5000))
def test_a_body_comes_back(name: str, body: bytes) -> None:
    flag = system_flag_of(name)
    assert decompress(compress(body, flag), flag) == body


def test_the_flags_and_frames_are_those_of_rocketmq() -> None:
    assert [system_flag_of(name) for name in NAMES] == [0x201, 0x101, 0x301]
    assert compress(b"x" * 99, COMPRESSED | ZSTD).startswith(bytes.fromhex("28b52ffd"))
    assert compress(b"x" * 99, COMPRESSED | LZ4).startswith(bytes.fromhex("04224d18"))
    assert compress(b"x" * 99, COMPRESSED | ZLIB).startswith(b"\x78")
    assert decompress(zlib.compress(b"old"), COMPRESSED) == b"old", "no kind at all is zlib"


@pytest.mark.parametrize("name", NAMES)
def test_a_body_of_the_limit_passes_and_one_that_grows_beyond_it_does_not(name: str) -> None:
    flag = system_flag_of(name)
    assert len(decompress(BOMBS[name](BODY_BYTES_MAX), flag)) == BODY_BYTES_MAX
    with pytest.raises(InvalidMessage, match="more than 4194304 bytes"):
        decompress(BOMBS[name](BODY_BYTES_MAX + 1), flag)


def test_a_bomb_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zlib.compress(zlib.compress(bytes(1 << 27), 1))
    assert len(decompress(bomb, COMPRESSED | ZLIB)) < 1 << 20
    with pytest.raises(InvalidMessage, match="more than"):
        decompress(zlib.decompress(bomb), COMPRESSED | ZLIB)


def test_a_window_of_zstd_is_bounded() -> None:
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.enable_long_distance_matching: 1}
    compressor = zstd.ZstdCompressor(options=options)
    wide = compressor.compress(b"x" * 100) + compressor.flush()
    with pytest.raises(InvalidMessage, match="no zstd"):
        decompress(wide, COMPRESSED | ZSTD)


@pytest.mark.parametrize("name", NAMES)
def test_what_ends_too_early_or_goes_on_is_refused(name: str) -> None:
    flag = system_flag_of(name)
    whole = compress(b"hello " * 100, flag)
    for bad in (whole[:-1], whole + b"more", b"", b"garbage", gzip.compress(b"x")):
        with pytest.raises(InvalidMessage, match=f"no {name}"):
            decompress(bad, flag)


@given(st.binary(max_size=200), st.sampled_from([0, LZ4, ZSTD, ZLIB, 0x400, 0x700]))
def test_any_bytes_give_a_body_or_an_error_of_ours(data: bytes, kind: int) -> None:
    with contextlib.suppress(InvalidMessage):
        decompress(data, COMPRESSED | kind)


def test_an_unknown_name_is_refused() -> None:
    assert system_flag_of("") == 0
    with pytest.raises(InvalidRequest, match="zstd, lz4 or zlib, not 'gzip'"):
        system_flag_of("gzip")
