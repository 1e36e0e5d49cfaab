"""Addresses as people write them."""

from __future__ import annotations

import pytest

from penstock.addresses import parse_servers, split_address
from penstock.errors import InvalidConfig


@pytest.mark.parametrize(
    ("address", "split"),
    [("127.0.0.1:9876", ("127.0.0.1", 9876)), (" host:1 ", ("host", 1)), ("[::1]:65535", ("::1", 65535))],
)
def test_an_address_is_split_into_host_and_port(address: str, split: tuple[str, int]) -> None:
    assert split_address(address) == split


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:", "host:x", "host:0", "host:65536", "::1:9876", "h:-1", "h:²"]
)
def test_what_is_no_address_is_refused_with_a_hint(address: str) -> None:
    with pytest.raises(InvalidConfig, match="write"):
        split_address(address)


def test_servers_may_be_one_text_or_a_list_and_each_counts_once() -> None:
    assert parse_servers("a:1, b:2,a:1") == ("a:1", "b:2")
    assert parse_servers(["b:2", "a:1"]) == ("b:2", "a:1")


@pytest.mark.parametrize("servers", ["", " , ", []])
def test_no_server_at_all_is_refused(servers: str | list[str]) -> None:
    with pytest.raises(InvalidConfig, match="no server address"):
        parse_servers(servers)
