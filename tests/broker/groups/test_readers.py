"""Twin of broker/groups/readers.py, on a broker without a network."""

from __future__ import annotations

import pytest

from broker.groups import readers
from broker.groups.holders import HOLDS
from penstock.errors import Busy, GroupNotFound, StorageFull
from penstock.protocol.message import Message
from penstock.protocol.requests.groups import (
    Assignment,
    CommitOffsets,
    DescribeGroup,
    HoldOffsets,
    JoinGroup,
    ListGroups,
    Progress,
    QueueOffset,
)
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append


def made(**settings: object) -> Rig:
    rig = Rig(**{"reader_silence_s": 100.0, **settings})
    rig.ask(CreateTopic("t", 2))
    rig.ask(append(*[Message("t", b"x")] * 8))
    return rig


def commit(rig: Rig, group: str, *offsets: tuple[str, int]) -> Done | Busy:
    answer = rig.ask(CommitOffsets(group, "", 0, tuple(QueueOffset(*one) for one in offsets or (("t:0", 1),))))
    assert isinstance(answer, Done | Busy)
    return answer


def join(rig: Rig, group: str, session_s: float = 3600.0) -> Assignment | Busy:
    answer = rig.ask(JoinGroup(group, "m", ("t",), session_s))
    assert isinstance(answer, Assignment | Busy)
    return answer


def needed_from(rig: Rig) -> int | None:
    """As it is worked out the next time."""
    rig.clock.now += 10.0
    rig.dispatch.tick()
    return rig.service._readers.needed_from


def groups(rig: Rig) -> list[str]:
    return [one.group for one in rig.ask(ListGroups()).groups]


def test_retention_waits_for_the_slowest_group_that_still_reads() -> None:
    rig = made()
    assert needed_from(rig) is None
    commit(rig, "g", ("t:0", 1), ("t:1", 2))
    commit(rig, "h", ("t:0", 4), ("t:1", 1))
    assert needed_from(rig) == min(rig.store.position_of("t:0", 1), rig.store.position_of("t:1", 1))
    rig.clock.now += 90.0
    assert needed_from(rig) is None, "they are taken for given up"
    join(rig, "g")
    assert needed_from(rig) == rig.store.position_of("t:0", 1)


def test_a_group_that_a_gateway_holds_is_not_given_up_however_long_nothing_moves() -> None:
    rig = made(groups_max=1)
    commit(rig, "g", ("t:0", 1))

    def hold(lease_s: float) -> None:
        rig.ask(HoldOffsets("g", "gateway-a", lease_s, (Progress("t:0", HOLDS, 0),)))

    for _ in range(40):  # a subscription at the end of its topic, or one whose client acknowledges nothing
        rig.clock.now += 100.0
        hold(300.0)
    assert needed_from(rig) == rig.store.position_of("t:0", 1)
    assert groups(rig) == ["g"]
    hold(0.0)
    rig.clock.now += 100.0
    assert needed_from(rig) is None
    assert groups(rig) == []


def test_no_tick_looks_at_more_than_a_slice_and_until_all_are_seen_everything_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "SLICE", 10)
    rig = made()
    for number in range(95):
        commit(rig, f"g{number:02d}", ("t:0", 1 + number % 4))
    found = [rig.service._readers.needed_from]
    for _ in range(10):
        rig.dispatch.tick()
        found.append(rig.service._readers.needed_from)
    assert found == [0] * 10 + [rig.store.position_of("t:0", 1)]


def test_a_group_whose_place_in_the_log_cannot_be_read_needs_everything() -> None:
    rig = made(chunk_bytes=2000)
    for _ in range(50):
        rig.ask(append(Message("t", bytes(100))))
        rig.dispatch.tick()
    commit(rig, "g", ("t:0", 10))
    wanted = needed_from(rig)
    assert wanted is not None
    assert rig.store.start < wanted < rig.store.sealed
    rig = rig.restarted()
    for path in rig.disk.paths("index/"):
        rig.disk.delete(path)
    assert needed_from(rig) == rig.store.start


def test_where_groups_have_no_room_those_that_were_given_up_go_for_good() -> None:
    rig = made(groups_max=3)
    for group in ("given up", "has a member", "commits"):
        commit(rig, group)
    assert isinstance(join(rig, "new"), Busy)
    rig.clock.now = 3590.0
    join(rig, "has a member")
    commit(rig, "commits")
    needed_from(rig)
    assert groups(rig) == ["commits", "has a member"]
    assert isinstance(rig.ask(DescribeGroup("given up")), GroupNotFound)
    assert commit(rig, "new") == Done()
    assert groups(rig.restarted()) == ["commits", "has a member", "new"]


def test_no_group_goes_while_there_is_room() -> None:
    rig = made(groups_max=4)
    for group in ("a", "b", "c"):
        commit(rig, group)
    rig.clock.now = 1e6
    assert needed_from(rig) is None
    assert groups(rig) == ["a", "b", "c"]


def test_after_a_restart_members_have_the_longest_session_to_come_back() -> None:
    rig = made(groups_max=1)
    commit(rig, "g")
    rig.clock.now = 1e6
    rig = rig.restarted()
    began = rig.clock.now
    needed_from(rig)
    assert groups(rig) == ["g"]
    rig.clock.now = began + 3590.0
    needed_from(rig)
    assert groups(rig) == []


def test_groups_that_the_full_disk_does_not_let_go_go_later() -> None:
    rig = made(groups_max=1)
    commit(rig, "g")
    rig.clock.now = 3590.0
    rig.disk.capacity = rig.disk.used()
    for body in (bytes(100), b""):  # until no record fits into what the segment has
        while not isinstance(rig.ask(append(Message("t", body))), StorageFull):
            pass
    needed_from(rig)
    assert groups(rig) == ["g"]
    rig.disk.capacity = None
    needed_from(rig)
    assert groups(rig) == []
