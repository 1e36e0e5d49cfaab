"""Listings and searches while one of two brokers is away."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.blocking.link import BlockingLink
from penstock.cli.root import root
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import RegisterBroker, TopicRoute, UnregisterBroker


@pytest.fixture
def servers(real_cluster: Any) -> str:
    """Of a cluster whose second broker has gone, with queues of the topic that the first has too."""
    assert penstock(real_cluster.servers, "produce", "orders", "hello", "--key", "k").exit_code == 0
    consumed = penstock(real_cluster.servers, "consume", "orders", "--group", "billing", "--count", "1")
    assert consumed.exit_code == 0, consumed.output
    names = BlockingLink(real_cluster.servers, 10)
    topics = (TopicRoute("orders", 4),)
    names.ask(RegisterBroker("broker-b", "127.0.0.1:1", 1, 60, topics), Done)
    names.ask(UnregisterBroker("broker-b", "127.0.0.1:1"), Done)
    names.close()
    return str(real_cluster.servers)


def penstock(servers: str, *arguments: str) -> Result:
    return CliRunner().invoke(root, ["--server", servers, *arguments])


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "list"),
        ("topic", "show", "orders"),
        ("topic", "delete", "orders", "--yes"),
        ("group", "list"),
        ("group", "show", "billing"),
        ("share", "list"),
        ("find", "orders", "k"),
        ("consume", "orders", "--end"),
    ],
)
def test_an_incomplete_answer_is_an_error_that_names_the_broker_or_asked_for(
    servers: str, command: tuple[str, ...]
) -> None:
    refused = penstock(servers, *command)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "error: broker broker-b is away" in refused.stderr
    assert "--allow-incomplete" in refused.stderr
    assert penstock(servers, *command, "--allow-incomplete").exit_code == 0


def test_a_listing_that_was_allowed_to_be_incomplete_says_what_it_lacks(servers: str) -> None:
    listed = penstock(servers, "topic", "list", "--allow-incomplete")
    assert listed.stderr.startswith("(incomplete: without broker-b")


def test_status_names_a_broker_that_is_away(servers: str) -> None:
    told = penstock(servers, "status")
    assert told.exit_code == 1
    assert "broker-b" in told.stdout
    assert "away" in told.stdout
