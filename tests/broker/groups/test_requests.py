from __future__ import annotations

import pytest

from broker.groups import requests as group_requests
from broker.kernel.fold import fact_record
from broker.lineage import identity
from broker.lineage.identity import Identity
from penstock.errors import (
    Busy,
    Fenced,
    GroupNotFound,
    InvalidFilter,
    InvalidRequest,
    LogReplaced,
    OffsetOutOfRange,
    QueueNotFound,
)
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.groups import (
    Assignment,
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupDetail,
    GroupLag,
    GroupOffsets,
    GroupRow,
    HeldOffsets,
    HoldOffsets,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MemberInfo,
    NoteAttempts,
    Progress,
    QueueOffset,
    Tried,
    WatchGroup,
)
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.retries import SendBack
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, parked


def made(messages: int = 0) -> Rig:
    rig = Rig()
    rig.ask(CreateTopic("t", 2))
    if messages:
        rig.ask(append(*[Message("t", b"x")] * messages))
    return rig


def names(rig: Rig) -> list[str]:
    return [one.group for one in rig.ask(ListGroups()).groups]


def join(rig: Rig, member: str, session_s: float = 30.0) -> Assignment:
    answer = rig.ask(JoinGroup("g", member, ("t",), session_s))
    assert isinstance(answer, Assignment)
    return answer


def queues(assignment: object) -> list[tuple[str, int]]:
    assert isinstance(assignment, Assignment)
    return [(one.queue, one.offset) for one in assignment.queues]


def test_join_rebalance_commit_fence_expire() -> None:
    """The transcript of a group of two."""
    rig = made(messages=8)
    alone = join(rig, "a")
    assert queues(alone) == [("t:0", -1), ("t:1", -1)]
    assert rig.ask(CommitOffsets("g", "a", alone.generation, (QueueOffset("t:1", 3),))) == Done()

    watching = rig.submit(WatchGroup("g", "a", alone.generation, 20.0))
    assert watching == []
    second = join(rig, "b")
    assert queues(second) == [("t:1", 3)], "where the other one stood"
    assert [queues(one) for one in watching] == [[("t:0", -1)]], "the other one is told at once"

    late = rig.ask(CommitOffsets("g", "a", alone.generation, (QueueOffset("t:1", 4),)))
    assert isinstance(late, Fenced)
    assert rig.ask(FetchOffsets("g", ("t:1",))).offsets == (QueueOffset("t:1", 3),)

    rig.clock.now = 29.0
    assert len(rig.submit(WatchGroup("g", "a", second.generation, 0.0))) == 1
    watching = rig.submit(WatchGroup("g", "a", second.generation, 20.0))
    rig.clock.now = 30.0
    rig.dispatch.tick()
    assert [queues(one) for one in watching] == [[("t:0", -1), ("t:1", 3)]], "b fell silent"
    assert isinstance(rig.ask(WatchGroup("g", "b", second.generation, 0.0)), Fenced)

    rig.ask(LeaveGroup("g", "a"))
    detail = rig.ask(DescribeGroup("g"))
    assert (detail.members, detail.lags) == ((), (GroupLag("t:1", 3, 4),))


def test_a_member_that_watches_longer_than_its_session_is_not_taken_for_dead() -> None:
    rig = made()
    generation = join(rig, "a", session_s=10.0).generation
    for _ in range(10):
        answers = rig.submit(WatchGroup("g", "a", generation, 60.0))
        while not answers:
            rig.clock.now += 1.0
            rig.dispatch.tick()
        assert queues(answers[0]) == [("t:0", -1), ("t:1", -1)]


def test_the_answer_to_a_watch_is_no_sign_of_life_of_the_member() -> None:
    rig = made()
    generation = join(rig, "a", session_s=10.0).generation
    deadline = parked(rig.handle(WatchGroup("g", "a", generation, 60.0))).deadline
    assert deadline <= 5.0
    rig.submit(WatchGroup("g", "a", generation, 60.0))
    for rig.clock.now in (5.0, 9.9):
        rig.dispatch.tick()
    assert names(rig) == ["g"]
    rig.clock.now = 10.0
    rig.dispatch.tick()
    assert names(rig) == []


def test_a_member_that_leaves_gives_its_queues_to_the_others_at_once() -> None:
    rig = made()
    join(rig, "a")
    generation = join(rig, "b").generation
    watching = rig.submit(WatchGroup("g", "a", generation, 20.0))
    rig.submit(LeaveGroup("g", "b"))
    assert [queues(one) for one in watching] == [[("t:0", -1), ("t:1", -1)]]


def test_a_commit_is_answered_after_its_sync_and_survives_a_crash() -> None:
    rig = made(messages=4)
    generation = join(rig, "a").generation
    answers = rig.submit(CommitOffsets("g", "a", generation, (QueueOffset("t:0", 2),)))
    assert answers == []
    rig.sync()
    assert answers == [Done()]
    assert rig.restarted().ask(FetchOffsets("g", ("t:0", "t:1"))).offsets == (
        QueueOffset("t:0", 2),
        QueueOffset("t:1", -1),
    )


def test_no_generation_of_an_earlier_life_of_the_broker_comes_again() -> None:
    rig = made(messages=4)
    for number in range(50):  # without a word in the log
        last = join(rig, f"m{number}").generation
    after = rig.restarted()
    assert join(after, "m49").generation > last
    assert isinstance(after.ask(CommitOffsets("g", "m49", last, (QueueOffset("t:0", 1),))), Fenced)


@pytest.mark.parametrize("offset", [-1, 3, 1 << 62])
def test_no_offset_beyond_the_readable_end_is_committed(offset: int) -> None:
    rig = made(messages=4)
    generation = join(rig, "a").generation
    answer = rig.ask(CommitOffsets("g", "a", generation, (QueueOffset("t:0", 1), QueueOffset("t:1", offset))))
    assert isinstance(answer, OffsetOutOfRange)
    assert rig.ask(FetchOffsets("g", ("t:0",))).offsets == (QueueOffset("t:0", -1),), "all or nothing"


def test_a_tool_commits_for_a_group_without_members_only() -> None:
    rig = made(messages=4)
    assert rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 1),))) == Done()
    join(rig, "a")
    assert isinstance(rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 0),))), Fenced)
    assert isinstance(rig.ask(CommitOffsets("h", "", 0, (QueueOffset("nowhere:0", 0),))), QueueNotFound)


@pytest.mark.parametrize(
    "join_request",
    [
        JoinGroup("", "a", ("t",)),
        JoinGroup("g", "", ("t",)),
        JoinGroup("g" * 256, "a", ("t",)),
        JoinGroup("g", "\ud800" * 256, ("t",)),
        JoinGroup("g", "a", ()),
        JoinGroup("g", "a", ("t",), 0.5),
        JoinGroup("g", "a", ("t",), 1e9),
    ],
)
def test_a_membership_that_makes_no_sense_is_refused(join_request: JoinGroup) -> None:
    assert isinstance(made().ask(join_request), InvalidRequest)


def test_groups_are_listed_with_members_or_with_offsets() -> None:
    rig = made(messages=2)
    rig.ask(CommitOffsets("with-offsets", "", 0, (QueueOffset("t:0", 1),)))
    rig.ask(JoinGroup("with-members", "a", ("t",)))
    assert names(rig) == ["with-members", "with-offsets"]
    assert rig.ask(DescribeGroup("with-members")).members == (MemberInfo("a", ("t:0", "t:1")),)
    assert isinstance(rig.ask(DescribeGroup("nobody")), GroupNotFound)


def test_a_page_of_groups_says_how_much_each_has_read_and_has_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = made(messages=6)
    for name in ("c", "a", "b"):
        rig.ask(CommitOffsets(name, "", 0, (QueueOffset("t:0", 1), QueueOffset("t:1", 2))))
    rig.ask(JoinGroup("d", "m", ("t",)))
    first = rig.ask(ListGroups("", 3))
    assert first.groups == tuple([GroupRow(name, 0, 2, 3, 3) for name in "abc"])
    last = rig.ask(ListGroups(first.after, 3))
    assert (last.groups, last.after) == ((GroupRow("d", 1, 2, 0, 6),), "")
    assert [one.group for one in rig.ask(ListGroups(contains="b")).groups] == ["b"]
    monkeypatch.setattr(group_requests, "LABELLED_MAX", 1)
    figures = rig.service.themes.figures()
    lags = {name: value for name, value in figures.items() if name.startswith("rocketmq_consumer_lag_messages")}
    assert lags == {'rocketmq_consumer_lag_messages{consumer_group="a"}': 3}
    assert figures['penstock_unlabelled{kind="groups"}'] == 3


def test_a_group_that_read_a_light_queue_is_described_after_that_queue_is_gone() -> None:
    rig = made(messages=2)
    queue, offset = rig.ask(OpenFilters("o", ("a",))).opened[0][1:3]
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 1), QueueOffset(queue, offset))))
    rig.ask(CloseFilters("o", ("a",)))
    assert rig.ask(DescribeGroup("g")).lags == (GroupLag("t:0", 1, 1),)


def test_groups_have_a_limit_and_those_that_stand_go_on() -> None:
    rig = Rig(groups_max=2)
    rig.ask(CreateTopic("t", 2))
    start = (QueueOffset("t:0", 0),)
    assert rig.ask(CommitOffsets("one", "", 0, start)) == Done()
    assert rig.ask(CommitOffsets("two", "", 0, start)) == Done()
    assert isinstance(rig.ask(CommitOffsets("three", "", 0, start)), Busy)
    assert isinstance(rig.ask(JoinGroup("three", "m", ("t",), 30.0)), Busy)
    assert rig.ask(CommitOffsets("two", "", 0, start)) == Done()
    assert isinstance(rig.ask(JoinGroup("one", "m", ("t",), 30.0)), Assignment)


# ------------------------------------------------------------ positions that gateways hold


def hold(rig: Rig, holder: str, *rows: tuple[str, int] | tuple[str, int, int], lease_s: float = 15.0) -> object:
    """What is answered: where the position is in each queue."""
    answer = rig.ask(HoldOffsets("g", holder, lease_s, tuple(Progress(*row[:2], *(row[2:] or (0,))) for row in rows)))
    return [tuple(row) for row in answer.progress] if isinstance(answer, HeldOffsets) else answer


def committed(rig: Rig, *names: str) -> list[int]:
    return [one.offset for one in rig.ask(FetchOffsets("g", names or ("t:0", "t:1"))).offsets]


def test_a_position_is_where_the_gateway_that_has_come_least_far_is() -> None:
    rig = made(messages=8)
    assert hold(rig, "a", ("t:0", -1)) == [("t:0", -1, 0)]
    assert hold(rig, "b", ("t:0", 3), ("t:1", 2)) == [("t:0", -1, 0), ("t:1", 2, 0)]
    assert hold(rig, "a", ("t:0", 2)) == [("t:0", 2, 0)]
    assert hold(rig, "a", ("t:0", 4), lease_s=0.0) == [("t:0", 3, 0)]
    assert rig.ask(DescribeGroup("g")).holders == ("b",)
    assert hold(rig, "b", ("t:0", 4), ("t:1", 1)) == [("t:0", 4, 0), ("t:1", 2, 0)]


def test_a_gateway_that_is_silent_holds_a_position_for_its_lease() -> None:
    rig = made(messages=8)
    hold(rig, "a", ("t:0", 1))
    rig.clock.now = 10.0
    hold(rig, "b", ("t:0", 3))
    assert committed(rig, "t:0") == [1]
    rig.clock.now = 15.0
    rig.dispatch.tick()
    rig.sync()
    assert committed(rig, "t:0") == [3]


def test_a_gateway_that_has_come_further_than_a_queue_reaches_holds_its_position_and_counts_in_the_others() -> None:
    rig = made(messages=8)
    hold(rig, "a", ("t:0", 1), ("t:1", 1))
    hold(rig, "b", ("t:0", 3), ("t:1", 3))
    assert hold(rig, "a", ("t:0", 99), ("t:1", 2)) == [("t:0", 1, 0), ("t:1", 2, 0)]
    rig.clock.now = 10.0
    hold(rig, "a", ("t:0", 99), ("t:1", 2))
    rig.clock.now = 16.0
    rig.dispatch.tick()
    rig.sync()
    assert rig.ask(DescribeGroup("g")).holders == ("a",)
    assert committed(rig) == [1, 2]


def test_where_nothing_moves_and_nobody_is_new_nothing_is_stored() -> None:
    rig = made(messages=8)
    hold(rig, "a", ("t:0", 1))
    before = rig.store.written
    hold(rig, "a", ("t:0", 1))
    assert rig.store.written == before


def test_while_a_group_has_members_its_positions_are_theirs_and_what_gateways_say_counts_afterwards() -> None:
    rig = made(messages=8)
    hold(rig, "a", ("t:0", 1))
    generation = join(rig, "m").generation
    assert isinstance(hold(rig, "a", ("t:0", 2)), Fenced)
    assert hold(rig, "b", ("t:0", -1)) == [("t:0", 1, 0)]
    hold(rig, "b", lease_s=0.0)
    rig.ask(CommitOffsets("g", "m", generation, (QueueOffset("t:0", 3),)))
    rig.ask(LeaveGroup("g", "m"))
    assert hold(rig, "a", ("t:0", 2)) == [("t:0", 3, 0)]
    assert hold(rig, "a", ("t:0", 4)) == [("t:0", 4, 0)]


def test_a_position_that_is_set_back_stays_there_until_somebody_begins_there() -> None:
    rig = made(messages=8)
    hold(rig, "a", ("t:0", 4), ("t:1", 2))
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 1), QueueOffset("t:1", 3))))
    assert hold(rig, "b", ("t:1", 4)) == [("t:1", 3, 0)], "what was said of others still counts"
    assert hold(rig, "a", ("t:0", 4), ("t:1", 4)) == [("t:0", 1, 1), ("t:1", 4, 0)]
    assert hold(rig, "a", ("t:0", 2, 1)) == [("t:0", 2, 1)]


def test_after_a_restart_a_position_waits_for_all_who_held_it() -> None:
    rig = made(messages=8)
    hold(rig, "a", ("t:0", 1))
    hold(rig, "b", ("t:0", 2))
    rig.ask(CommitOffsets("g", "", 0, (QueueOffset("t:0", 0),)))
    again = rig.restarted()
    assert hold(again, "b", ("t:0", 3, 1)) == [("t:0", 0, 1)]
    assert hold(again, "b", ("t:0", 3, 0)) == [("t:0", 0, 1)], "it had not heard of it"
    assert hold(again, "a", ("t:0", 2, 1)) == [("t:0", 2, 1)]
    hold(again, "a", lease_s=0.0)
    hold(again, "b", lease_s=0.0)
    last = again.restarted()
    assert hold(last, "c", ("t:0", 4, 1)) == [("t:0", 4, 1)], "nobody held it any more"


def test_what_a_gateway_says_has_limits() -> None:
    rig = made(messages=8)
    assert isinstance(hold(rig, "", ("t:0", 1)), InvalidRequest)
    assert isinstance(hold(rig, "a", ("t:0", 1), lease_s=-1.0), InvalidRequest)
    assert isinstance(hold(rig, "a", ("t:0", -2)), OffsetOutOfRange)
    assert hold(rig, "a", ("u:0", 0)) == [("u:0", -1, 0)], "of a topic that is not there nothing is held"


def test_where_groups_have_no_room_a_new_name_is_nowhere_and_moves_nowhere() -> None:
    rig = Rig(groups_max=1)
    rig.ask(CreateTopic("t", 1))
    rig.ask(CommitOffsets("other", "", 0, (QueueOffset("t:0", 0),)))
    assert hold(rig, "a", ("t:0", -1)) == [("t:0", -1, 0)]
    assert isinstance(hold(rig, "a", ("t:0", 0)), Busy)
    assert hold(rig, "a", ("t:0", 0), lease_s=0) == [("t:0", -1, 0)], "who lets go is not refused for ever"


def test_a_filter_and_a_strategy_are_the_groups_and_are_shown() -> None:
    rig = made()
    first = rig.ask(JoinGroup("g", "a", ("t",), 10.0, "level > 5", "circle"))
    assert isinstance(first, Assignment)
    assert first.filter == "level > 5"
    refused = rig.ask(JoinGroup("g", "b", ("t",), 10.0, "level > 6", "circle"))
    assert isinstance(refused, InvalidRequest)
    assert "level > 5" in refused.message
    assert "level > 6" in refused.message
    assert isinstance(rig.ask(JoinGroup("g", "b", ("t",), 10.0, "level > 6", "circle", force=True)), Assignment)
    watched = rig.ask(WatchGroup("g", "a", first.generation, 5.0))
    assert isinstance(watched, Assignment)
    assert watched.filter == "level > 6"
    shown = rig.ask(DescribeGroup("g"))
    assert isinstance(shown, GroupDetail)
    assert (shown.filter, shown.strategy) == ("level > 6", "circle")


def test_a_wrong_filter_or_strategy_is_refused_before_anything_else_changes() -> None:
    rig = made()
    assert isinstance(rig.ask(JoinGroup("g", "a", ("t",), 10.0, "level >")), InvalidFilter)
    assert isinstance(rig.ask(JoinGroup("g", "a", ("t",), 10.0, "", "random")), InvalidRequest)
    assert isinstance(rig.ask(JoinGroup("g", "a", ("t",), 10.0, room="x" * 256)), InvalidRequest)
    assert isinstance(rig.ask(JoinGroup("g", "a", ("t",), 10.0, attempts=(1,) * 1_002)), InvalidRequest)
    assert isinstance(rig.ask(DescribeGroup("g")), GroupNotFound)


def test_more_offsets_than_a_segment_holds_are_committed_in_parts() -> None:
    rig = Rig()
    topic = "x" * 250
    rig.ask(CreateTopic(topic, 600))
    rows = tuple([QueueOffset(f"{topic}:{number}", 0) for number in range(600)])
    assert sum([len(row.queue) for row in rows]) > 2 * rig.store.batch_bytes_max
    assert rig.ask(CommitOffsets("g", "", 0, rows)) == Done()
    assert len(rig.restarted().state.offsets.of("g")) == 600
    held = tuple([Progress(row.queue, 0, 0) for row in rows])
    assert len(rig.ask(HoldOffsets("h", "gateway", 30.0, held)).progress) == 600
    after = rig.restarted().state.offsets
    assert (len(after.of("h")), after.holders("h")) == (600, ("gateway",))


def test_how_far_a_gateway_has_come_in_another_log_moves_nothing() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1, "disk"))
    rig.ask(append(*[Message("t", b"x") for _ in range(5)]))
    rig.store.append([fact_record(identity.TOPIC, Identity.fact("a" * 32))], 1)
    held = rig.ask(HoldOffsets("g", "gw", 15.0, (Progress("t:0", 3, 0),)))
    assert held == HeldOffsets((Progress("t:0", 3, 0),), "a" * 32)
    assert isinstance(rig.ask(HoldOffsets("g", "gw", 15.0, (Progress("t:0", 5, 0),), "another")), LogReplaced)
    assert rig.ask(FetchOffsets("g", ("t:0",))) == GroupOffsets((QueueOffset("t:0", 3),))
    assert rig.ask(HoldOffsets("g", "gw", 15.0, (Progress("t:0", 5, 0),), held.log_id)).progress[0].offset == 5


def test_a_deleted_group_leaves_neither_offsets_nor_retries_and_one_that_is_used_stays() -> None:
    rig = Rig(default_queues=1)
    rig.ask(append(Message("t", b"x"), Message("t", b"y")))
    joined = rig.ask(JoinGroup("g", "m", ("t",)))
    rig.ask(SendBack("g", "m", joined.generation, "t:0", 0, delay_ms=0))
    rig.clock.now += 1.0
    rig.service.tick(rig.times.monotonic(), rig.times.wall_ms(), rig.times.wall_ms())
    rig.sync()
    rig.ask(CommitOffsets("g", "m", rig.ask(JoinGroup("g", "m", ("t",))).generation, (QueueOffset("t:0", 1),)))
    assert isinstance(rig.ask(DeleteGroup("g")), Fenced)
    rig.ask(LeaveGroup("g", "m"))
    assert rig.bodies("%RETRY%g:0") == [b"x"]
    assert rig.ask(DeleteGroup("g")) == Done()
    assert isinstance(rig.ask(Pull("%RETRY%g:0", 0)), QueueNotFound)
    assert isinstance(rig.restarted().ask(DescribeGroup("g")), GroupNotFound)
    rig = rig.restarted()
    assert isinstance(rig.ask(DeleteGroup("g")), GroupNotFound)
    rig.ask(HoldOffsets("h", "gateway", 30.0, (Progress("t:0", 1, 0),)))
    assert isinstance(rig.ask(DeleteGroup("h")), Fenced)


def join_ordered(rig: Rig, member: str) -> Assignment:
    answer = rig.ask(JoinGroup("g", member, ("t",), 30.0, ordered=True))
    assert isinstance(answer, Assignment), answer
    return answer


def test_the_next_holder_of_an_ordered_queue_learns_how_often_a_message_was_tried() -> None:
    rig = made(6)
    [queue, *_] = [one.queue for one in join_ordered(rig, "a").queues]
    generation = join_ordered(rig, "a").generation
    rig.ask(CommitOffsets("g", "a", generation, (QueueOffset(queue, 0),)))
    end = rig.store.bounds(queue).end
    assert rig.ask(NoteAttempts("g", "a", generation, (Tried(queue, 0, 3), Tried(queue, end - 1, 1)))) == Done()
    noted = Tried(queue, 0, 3), Tried(queue, end - 1, 1)
    for power in (False, True):
        if power:
            rig.disk.lose_power()
        rig = rig.restarted()
        rig.clock.now += 100.0  # whoever held it is not waited for any more
        rig.service.tick(rig.clock.now, rig.times.wall_ms(), rig.times.age_ms())
        assert join_ordered(rig, "b").tried == noted
        rig.ask(LeaveGroup("g", "b"))
    generation = join_ordered(rig, "b").generation
    rig.ask(CommitOffsets("g", "b", generation, (QueueOffset(queue, 1),)))
    assert join_ordered(rig, "b").tried == noted[1:]
    rig.ask(NoteAttempts("g", "b", generation, (Tried(queue, 0, 9),)))  # it is passed
    assert join_ordered(rig, "b").tried == noted[1:]
    rig.ask(CommitOffsets("g", "b", generation, (QueueOffset(queue, 0),)))  # set back: all begins anew
    assert join_ordered(rig, "b").tried == ()


def test_attempts_are_noted_by_who_holds_the_queue() -> None:
    rig = made(2)
    assignment = join_ordered(rig, "a")
    queue = assignment.queues[0].queue
    rig.ask(CommitOffsets("g", "a", assignment.generation, (QueueOffset(queue, 0),)))
    assert isinstance(rig.ask(NoteAttempts("g", "b", assignment.generation, (Tried(queue, 0, 1),))), Fenced)
    many = (Tried(queue, 0, 1),) * 2_000
    assert isinstance(rig.ask(NoteAttempts("g", "a", assignment.generation, many)), InvalidRequest)
    assert rig.ask(NoteAttempts("g", "a", assignment.generation, (Tried(queue, 0, 1),))) == Done()
    rig.ask(LeaveGroup("g", "a"))
    rig.ask(DeleteGroup("g"))
    assert list(rig.state.offsets.tried("g")) == []
