from __future__ import annotations

from pathlib import Path

from node.addresses import Addresses


def test_the_ready_line_names_every_address_and_the_folder() -> None:
    addresses = Addresses("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4", Path("/data"))
    expected = "ready mqtt=127.0.0.1:1 broker=127.0.0.1:2 namesrv=127.0.0.1:3 http=127.0.0.1:4 data=/data"
    assert addresses.ready_line() == expected
