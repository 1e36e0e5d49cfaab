"""Who comes or goes has a turn, so that whoever stays is served in every round.

Nothing lost: everybody who came or went is served, once, in the order in which it was told.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from lines import Echo, HandPoller, Upper

from gateway.net.poller import BROKEN, ENDED, READ, WRITE
from gateway.net.rounds import Rounds
from gateway.net.shard import CHANGES_MAX, Line, Shard
from penstock.world import RealClock


class Coming(Echo):
    """One that is not let in before it has said something, as often as it does."""

    is_let_in = False

    def receive(self, chunk: bytes) -> None:
        super().receive(chunk)
        self.is_let_in = True

    def is_new(self) -> bool:
        return not self.is_let_in


class Square:
    """A shard with many clients, and what happened to them in its order."""

    def __init__(self) -> None:
        self.poller = HandPoller()
        self.shard = Shard(self.poller, Rounds(RealClock(), lambda: None), output_bytes_max=100_000)
        self.clients: list[socket.socket] = []
        self.told: list[int] = []

    def add(self, kind: type[Echo] = Echo, *, is_coded: bool = False) -> Echo:
        ours, client = socket.socketpair()
        ours.setblocking(False)
        client.setblocking(False)
        self.clients.append(client)
        line = self.shard.add(ours, Upper() if is_coded else None)
        occupant = line.occupant = kind(line)
        return occupant

    def say(self, *masks: tuple[Line, int]) -> None:
        """What the poller tells in the next round."""
        self.poller.ready = [(line.descriptor, mask) for line, mask in masks]

    def close(self) -> None:
        self.shard.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def square() -> Iterator[Square]:
    made = Square()
    yield made
    made.close()


def heard(occupants: list[Echo]) -> list[int]:
    return [at for at, one in enumerate(occupants) if one.events]


@pytest.mark.parametrize("mask", [BROKEN, READ | ENDED, READ | BROKEN | ENDED])
def test_those_who_go_at_once_go_a_few_in_a_round_and_who_stays_is_answered_in_the_first(
    square: Square, mask: int
) -> None:
    going = [square.add() for _ in range(2 * CHANGES_MAX + 5)]
    staying = square.add()
    lines = [one.line for one in going]
    for client in square.clients[:-1]:
        client.close()
    square.clients[-1].send(b"hello")
    square.say(*[(line, mask) for line in lines], (staying.line, READ))
    square.shard.round()
    assert staying.events == [b"hello"]
    assert heard(going) == list(range(CHANGES_MAX))
    for rounds in (2, 3):
        assert square.poller.wakes == rounds - 1, "the next round comes by itself"
        square.shard.round()
        assert heard(going) == list(range(min(rounds * CHANGES_MAX, len(going))))
    assert [one.events for one in going] == [["broken"]] * len(going)
    assert len(square.shard) == 1
    assert square.poller.wakes == 2


def test_those_who_come_at_once_are_heard_a_few_in_a_round_and_from_then_on_with_the_others(square: Square) -> None:
    coming = [square.add(Coming) for _ in range(CHANGES_MAX + 5)]
    for client in square.clients:
        client.send(b"connect")
    square.say(*[(one.line, READ) for one in coming])
    square.shard.round()
    assert heard(coming) == list(range(CHANGES_MAX))
    for client in square.clients:
        client.send(b" publish")
    square.say(*[(one.line, READ) for one in coming])
    square.shard.round()
    assert [one.events for one in coming[:CHANGES_MAX]] == [[b"connect", b" publish"]] * CHANGES_MAX
    assert [one.events for one in coming[CHANGES_MAX:]] == [[b"connect publish"]] * 5
    square.shard.round()
    assert [len(one.events) for one in coming] == [2] * CHANGES_MAX + [1] * 5, "what was told twice is served once"


def test_whoever_waits_for_a_turn_keeps_its_place_however_often_it_is_told(square: Square) -> None:
    coming = [square.add(Coming) for _ in range(CHANGES_MAX + 2)]
    for client in square.clients:
        client.send(b"c")
    square.say(*[(one.line, READ) for one in coming])
    square.shard.round()
    late = square.add(Coming)
    square.clients[-1].send(b"c")
    for _ in range(3):
        square.say((late.line, READ), *[(one.line, WRITE) for one in coming[CHANGES_MAX:]])
    square.shard.round()
    assert heard([*coming, late]) == list(range(CHANGES_MAX + 3))
    assert square.shard.waiting == 0


class Heavy(Echo):
    """One with much to be ended."""

    def holdings(self) -> int:
        return 25 * CHANGES_MAX


def test_who_leaves_much_behind_counts_for_more(square: Square) -> None:
    going = [square.add(Heavy) for _ in range(5)]
    for client in square.clients:
        client.close()
    square.say(*[(one.line, BROKEN) for one in going])
    square.shard.round()
    assert heard(going) == [0, 1, 2, 3]
    square.shard.round()
    assert heard(going) == [0, 1, 2, 3, 4]


def test_a_handshake_counts_for_more(square: Square) -> None:
    coming = [square.add(Coming, is_coded=True) for _ in range(CHANGES_MAX)]
    for client in square.clients:
        client.send(b"HELLO")
    square.say(*[(one.line, READ) for one in coming])
    square.shard.round()
    assert 0 < len(heard(coming)) <= CHANGES_MAX // 8
    for _ in range(8):
        square.shard.round()
    assert [one.events for one in coming] == [[b"hello"]] * CHANGES_MAX


def test_who_is_shut_while_it_waits_has_no_turn_and_who_has_its_descriptor_then_no_turn_of_its(square: Square) -> None:
    coming = [square.add(Coming) for _ in range(CHANGES_MAX + 1)]
    for client in square.clients:
        client.send(b"c")
    square.say(*[(one.line, READ) for one in coming])
    square.shard.round()
    last = coming[-1].line
    descriptor = last.descriptor
    last.shut()
    assert square.shard.waiting == 0
    heir = square.add()
    assert heir.line.descriptor == descriptor
    square.shard.round()
    assert heir.events == []
    assert coming[-1].events == []
