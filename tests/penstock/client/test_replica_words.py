"""What an operator reads of a group of copies."""

from __future__ import annotations

import pytest

from penstock.client.replica_tasks import ReplicaGroup, replicas
from penstock.client.replica_words import advice_on, losses, shown_bytes, state_of, words_for
from penstock.protocol.requests.replicas import Replicas
from tests.penstock.client.replica_scene import END, Cluster, follower, leader, row

A, B, C = row("a"), row("b"), row("c")
SILENT = C._replace(heard_s=40.0)


def group(*said: Replicas) -> ReplicaGroup:
    [found] = Cluster({one.node: one for one in said}).run(replicas())
    return found  # type: ignore[no-any-return]


def test_each_node_has_its_state_in_a_few_words() -> None:
    late = row("d", END - (3 << 20), behind_s=7.2)
    found = group(leader(A, B, SILENT, late), follower("b", A, B, damaged=2))
    assert [state_of(one) for one in found.nodes] == [
        "leads",
        "2 damaged parts, being repaired",
        "silent for 40 s",
        "lacks 3.0 MiB, for 7 s",
    ]
    assert [state_of(one) for one in group(follower("b", A, B), follower("c", A, B)).nodes] == [
        "does not answer",
        "answers",
    ]
    assert state_of(group(leader(A, B)).nodes[1]) == "level"
    assert [shown_bytes(size) for size in (0, 1023, 1024, 5 << 30)] == ["0 bytes", "1,023 bytes", "1.0 KiB", "5.0 GiB"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([leader(A, B, C)], ["1 of 3 voters may be lost"]),
        ([leader(A, B, SILENT)], ["No further voter may be lost", "replica replace c --by NEW"]),
        ([leader(A, B, C, refusal="2 of 3 nodes are there")], ["Nothing is stored just now: 2 of 3", "1 of 3 voters"]),
        ([leader(A)], ["There is one copy"]),
        ([leader(A, B._replace(is_voter=False))], ["a alone votes: if it is lost, reads work"]),
        ([leader(A, *[one._replace(is_voter=False) for one in (B, C)])], ["replica promote b c"]),
        ([leader(A, B)], ["nothing is stored while either is away"]),
        ([follower("b", A, B, C), follower("c", A, B, C)], ["an election takes a few seconds"]),
        ([follower("b", A, B, C)], ["1 of 3 voters answer, and it takes 2. Start a and c. If their disks are lost"]),
    ],
)
def test_what_a_group_bears_and_what_to_do_is_said(said: list[Replicas], words: list[str]) -> None:
    sentences = advice_on(group(*said))
    assert len(sentences) == len(words)
    for sentence, word in zip(sentences, words, strict=True):
        assert word in sentence


def test_the_command_that_gives_nodes_up_names_them_all() -> None:
    [sentence] = advice_on(group(follower("b", A, B, C)))
    assert sentence.endswith("penstock replica force-leader b --lost a --lost c")


def test_what_a_forced_leader_may_lose_is_said_before_it_leads() -> None:
    said = losses(group(follower("b", A, B, C, end=END)), "b", ["a", "c"])
    assert f"up to position {END:,}, in epoch 5; it knows that all before {END - 100:,} was committed" in said[0]
    assert said[1].startswith("What a and c stored behind that is lost for good, also where it was acknowledged")
    assert "alone" in said[2]
    assert "must never start again with the old folders" in said[3]
    assert words_for(["a", "c"]) == "lose what only a and c had"
