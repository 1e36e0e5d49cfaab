"""The label of a log: what it says comes back, a newer one is refused, and any other is no reason to stop."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.frames import crc32c
from broker.store.label import FORMAT, PATH, Label, decode, encode, newer, read, write
from penstock.errors import DataFolderUnusable
from penstock.version import VERSION
from tests.simulation.disk import SimDisk

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "log.md"


@given(st.integers(0, 1 << 63))
def test_a_label_comes_back_as_it_was(begins: int) -> None:
    assert decode(encode(Label(FORMAT, begins))) == Label(FORMAT, begins, VERSION)


def test_a_written_label_survives_a_power_cut() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        write(disk, 7)
        write(disk, 4096)
        disk.lose_power()
        assert read(disk) == Label(FORMAT, 4096, VERSION)


def test_the_pages_label_is_what_the_store_writes() -> None:
    found = re.search(r"^format = .*?\n^crc = \d+\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert encode(Label(FORMAT, 1_073_741_824, "0.1.0")) == found[0].encode()


def test_one_of_a_newer_format_is_refused_with_both_versions_whatever_else_it_says() -> None:
    disk = SimDisk()
    text = b'format = 7\nwritten_by = "3.1.4"\n[a_table]\nof_later = true\n'
    disk.put(PATH, text + b"crc = %d\n" % crc32c(text))
    with pytest.raises(DataFolderUnusable) as caught:
        read(disk)
    assert caught.value.message == (
        f"the data folder has format 7 (written by Penstock 3.1.4), and this Penstock {VERSION} reads up to {FORMAT}"
    )


def test_without_a_label_there_is_none_and_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert read(SimDisk()) is None
    assert caplog.records == []


@pytest.mark.parametrize("at", range(len(encode(Label(FORMAT, 4096)))))
def test_a_label_with_any_byte_changed_is_logged_and_counts_as_none(at: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    disk.put(PATH, encode(Label(FORMAT, 4096)))
    disk.flip(PATH, at, 1)
    assert read(disk) is None
    assert "log/label.toml cannot be read" in caplog.text


@given(
    st.binary() | st.text().map(str.encode) | st.sampled_from(["format = 'x'", "a = 1", "format = []"]).map(str.encode)
)
def test_whatever_the_bytes_are_they_are_a_label_or_none(data: bytes) -> None:
    for one in (data, data + b"\ncrc = %d\n" % crc32c(data + b"\n")):
        disk = SimDisk()
        disk.put(PATH, one)
        assert read(disk) is None


def test_one_that_cannot_be_opened_counts_as_none_and_makes_way() -> None:
    disk = SimDisk()
    disk.obstruct(PATH)
    assert read(disk) is None
    write(disk, 5)
    assert read(disk) == Label(FORMAT, 5, VERSION)


def test_one_that_cannot_be_written_is_an_error_of_the_disk() -> None:
    disk = SimDisk()
    disk.fail("replace", errno.ENOSPC)
    with pytest.raises(OSError):
        write(disk, 5)


def test_a_refusal_says_what_to_do() -> None:
    assert newer("it has version 2", 1, "do this").hint == "do this"
