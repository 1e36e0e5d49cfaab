"""Addresses as people write them."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig, Unavailable
from penstock.protocol.addresses import join_address, no_name_server, nobody_answers, parse_servers, split_address


@pytest.mark.parametrize(
    ("address", "split"),
    [("127.0.0.1:9876", ("127.0.0.1", 9876)), (" host:1 ", ("host", 1)), ("[::1]:65535", ("::1", 65535))],
)
def test_an_address_is_split_into_host_and_port(address: str, split: tuple[str, int]) -> None:
    assert split_address(address) == split
    assert join_address(*split) == address.strip()


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


def test_a_url_is_no_address_and_the_hint_says_what_is_too_much() -> None:
    with pytest.raises(InvalidConfig, match=r"'http://localhost:9876' is no server address \(.* without http://"):
        parse_servers("http://localhost:9876")


def test_that_nobody_answers_names_all_or_says_that_these_are_no_name_servers() -> None:
    wrong, gone = no_name_server("a:1"), Unavailable("no server at b:1")
    assert "a:1 is no Penstock name server (usual port 9876)" in str(nobody_answers([wrong, no_name_server("b:1")]))
    assert not nobody_answers([wrong]).retryable
    both = nobody_answers([wrong, gone])
    assert both.message == f"no name server answers: {wrong.message}; no server at b:1"
    assert both.retryable, "one of them may come back"
