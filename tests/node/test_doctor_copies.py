"""What the doctor finds on a node of a group of copies."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from node.doctor import BAD, GOOD, NOTE
from node.doctor_copies import copies, key, nodes, states, times, ways
from node.settings import load
from penstock.client.replica_tasks import replicas
from penstock.clock import RealClock
from tests.penstock.client.replica_scene import Cluster, leader, row


def test_a_key_is_there_long_enough_and_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "cluster.key"
    assert (key("").verdict, key(str(file)).verdict) == (BAD, BAD)
    file.write_text("ab" * 32)
    file.chmod(0o644)
    assert "others may read" in key(str(file)).found
    file.chmod(0o600)
    assert key(str(file)).verdict == GOOD
    file.write_text("short")
    assert key(str(file)).verdict == BAD


def test_each_node_to_join_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = f"127.0.0.1:{server.getsockname()[1]}"
        found = list(ways([good, "127.0.0.1:1", "nowhere"]))
    assert [one.verdict for one in found] == [GOOD, BAD, BAD]
    assert "replica port" in found[1].remedy


def test_the_states_of_the_nodes_and_what_the_group_bears_are_findings() -> None:
    a, b, c = row("a"), row("b"), row("c")._replace(heard_s=60.0)
    [group] = Cluster({"a": leader(a, b, c)}).run(replicas())
    assert [(one.check, one.verdict) for one in states(group)] == [
        ("node a", GOOD),
        ("node b", GOOD),
        ("node c", BAD),
        ("copies", NOTE),
        ("copies", NOTE),
    ]
    [whole] = Cluster({"a": leader(a, b, row("c"))}).run(replicas())
    assert {one.verdict for one in states(whole)} == {GOOD}


@pytest.mark.parametrize(
    ("theirs", "verdict", "word"),
    [(10_500, GOOD, "agrees"), (11_900, GOOD, "agrees"), (8_000, BAD, "2.0 s behind"), (13_500, BAD, "2.5 s ahead of")],
)
def test_clocks_that_differ_are_found_whatever_the_answer_took(theirs: int, verdict: str, word: str) -> None:
    found = times("b", theirs, 10_000, 11_000)
    assert found.verdict == verdict
    assert word in found.found


def test_a_broker_that_does_not_answer_has_no_findings() -> None:
    assert list(nodes("127.0.0.1:1", RealClock())) == []


def test_a_node_with_copies_is_looked_at_as_one(tmp_path: Path) -> None:
    key_file = tmp_path / "cluster.key"
    key_file.write_text("ab" * 32)
    key_file.chmod(0o600)
    flags = {"data": tmp_path / "data", "node": "b", "join": ("127.0.0.1:1",), "cluster_secret_file": str(key_file)}
    flags |= {"broker_port": 1, "replica_port": 0}
    found = list(copies(load(None, {}, flags), {}, RealClock()))
    assert [(one.check, one.verdict) for one in found] == [
        ("key", GOOD),
        ("port of copies", GOOD),
        ("way to a node", BAD),
    ]
    assert list(copies(load(None, {}, {"data": tmp_path / "data"}), {}, RealClock())) == []
