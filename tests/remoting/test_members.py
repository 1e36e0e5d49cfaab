"""The clients of a front, without any network."""

from __future__ import annotations

import pytest

from penstock.errors import Busy, ProtocolError
from remoting.members import CLIENTS_MAX, LOCK_S, LOCKS_MAX, Beat, Client, Consumer, Members, Subscription, beat_of


def client(name: str, connection: int = 1) -> Client:
    return Client(name, connection, "JAVA", 464, "127.0.0.1:1")


def consumer(group: str, topic: str, model: str = "CLUSTERING") -> Consumer:
    return Consumer(group, model, "CONSUME_PASSIVELY", "", {topic: Subscription(topic)})


@pytest.mark.parametrize(("text", "tags"), [("*", ()), ("", ()), ("a", ("a",)), (" a || b||a", ("a", "b")), ("||", ())])
def test_tags_are_joined_by_bars(text: str, tags: tuple[str, ...]) -> None:
    assert Subscription("t", text).tags == tags
    assert Subscription("t", text).condition == ""
    assert Subscription("t", "n > 1", is_sql=True).tags == ()


def test_a_heartbeat_says_all_groups_of_its_client() -> None:
    members = Members()
    assert members.beat(client("a"), Beat("a", (), (consumer("g", "t"),))).groups == ("g",)
    assert members.beat(client("a"), Beat("a", (), (consumer("g", "t"),))).groups == ()
    assert members.topics("g") == {"t"}
    assert members.beat(client("a"), Beat("a", (), (consumer("h", "u"),))).groups == ("g", "h")
    assert (members.topics("g"), members.topics("h")) == (frozenset(), {"u"})
    assert members.consumer_groups == ["h"]


def test_broadcasting_members_keep_their_offsets_themselves() -> None:
    members = Members()
    members.beat(client("a"), Beat("a", (), (consumer("g", "t", "BROADCASTING"),)))
    assert members.topics("g") == frozenset()
    assert list(members.consumers("g")) == ["a"]


def test_a_connection_that_ends_takes_its_clients_and_their_locks_along() -> None:
    members = Members()
    members.beat(client("a", 1), Beat("a", ("p",), (consumer("g", "t"),)))
    members.beat(client("b", 2), Beat("b", ("p",), (consumer("g", "t"),)))
    assert members.lock("g", "a", ["t:0", "t:1"], 0.0) == ["t:0", "t:1"]
    assert members.lock("g", "b", ["t:0"], 0.0) == []
    assert members.disconnect(1).groups == ("g",)
    assert members.lock("g", "b", ["t:0"], 0.0) == ["t:0"]
    assert [one.id for one in members.producers("p")] == ["b"]
    assert list(members.connections_of("g")) == [2]
    assert members.disconnect(1).groups == ()


def test_a_client_that_comes_back_by_another_connection_stays_when_the_old_one_ends() -> None:
    members = Members()
    members.beat(client("a", 1), Beat("a", (), (consumer("g", "t"),)))
    members.beat(client("a", 2), Beat("a", (), (consumer("g", "t"),)))
    assert members.disconnect(1).groups == ()
    assert list(members.consumers("g")) == ["a"]


def test_a_lock_ends_by_itself() -> None:
    members = Members()
    members.lock("g", "a", ["q"], 0.0)
    assert members.lock("g", "b", ["q"], LOCK_S - 0.1) == []
    assert members.lock("g", "b", ["q"], LOCK_S) == ["q"]
    members.unlock("g", "a", ["q"])
    assert members.lock("g", "a", ["q"], LOCK_S) == []


@pytest.mark.parametrize("row", [{}, [], {"clientID": ""}, {"clientID": "a", "consumerDataSet": [{}]}])
def test_a_heartbeat_that_is_none_is_refused(row: object) -> None:
    with pytest.raises(ProtocolError, match="heartbeat"):
        beat_of(row)


def test_one_connection_has_so_many_clients_and_makes_room_for_others_when_it_ends() -> None:
    members = Members()
    for number in range(CLIENTS_MAX):
        members.beat(client(f"c{number}", 1), Beat(f"c{number}", (), ()))
    with pytest.raises(Busy):
        members.beat(client("one-more", 1), Beat("one-more", (), ()))
    members.beat(client("c0", 1), Beat("c0", (), ()))
    members.beat(client("of-another", 2), Beat("of-another", (), ()))
    members.disconnect(1)
    members.beat(client("one-more", 1), Beat("one-more", (), ()))


def test_there_are_so_many_locks_and_those_that_have_ended_make_room() -> None:
    members, names = Members(), [f"t:{number}" for number in range(LOCKS_MAX)]
    assert members.lock("g", "a", names, 0.0) == names
    assert members.lock("g", "b", ["u:0"], LOCK_S / 2) == []
    assert members.lock("g", "a", ["t:0"], LOCK_S / 2) == ["t:0"]
    assert members.lock("g", "b", ["u:0", "t:0"], LOCK_S + 1) == ["u:0"]
