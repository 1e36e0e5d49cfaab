from __future__ import annotations

import pytest

from broker.filters import requests as filter_requests
from broker.state import BrokerState
from penstock.errors import Busy, InvalidRequest, InvalidTopic, QueueNotFound, StorageFull, TooLarge
from penstock.protocol.message import Message, decode_batch
from penstock.protocol.requests.filters import (
    CloseFilters,
    FetchRetained,
    FilterLevels,
    KeepFilters,
    ListFilters,
    OpenedFilters,
    OpenFilters,
)
from penstock.protocol.requests.messages import QueryBounds
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append, but_epochs


def made(**settings: object) -> Rig:
    rig = Rig(**settings)
    rig.ask(CreateTopic("t", 1))
    return rig


def opened(rig: Rig, owner: str, *filters: str) -> OpenedFilters:
    answer = rig.ask(OpenFilters(owner, filters))
    assert isinstance(answer, OpenedFilters), answer
    assert answer.refused == ()
    return answer


def state(rig: Rig) -> list[list[object]]:
    return rig.state.filters.snapshot()


def test_a_filters_queue_holds_exactly_what_was_appended_after_it_was_opened() -> None:
    rig = made()
    rig.ask(append(Message("t", b"before", mqtt_topic="a/b")))
    one = opened(rig, "g", "a/+").opened[0]
    rig.ask(append(Message("t", b"after", mqtt_topic="a/b"), Message("t", b"other", mqtt_topic="b/b")))
    assert rig.bodies(one.queue, one.offset) == [b"after"]


def test_open_filters_are_a_tree_of_levels_in_pages() -> None:
    rig = made()
    opened(rig, "g", "a/b", "a/+/c", "a", "/x", "$share/s/a/#")
    opened(rig, "~7", "a/b")
    assert rig.ask(ListFilters()) == FilterLevels((("", 1, 0), ("$share", 1, 0), ("a", 3, 1)), 3)
    assert rig.ask(ListFilters("a", False)) == FilterLevels((("+", 1, 0), ("b", 1, 2)), 2)
    assert rig.ask(ListFilters("", False)) == FilterLevels((("x", 1, 1),), 1)
    assert rig.ask(ListFilters("a", False, skip=1, count_max=1)) == FilterLevels((("b", 1, 2),), 2)
    assert rig.ask(ListFilters("nothing", False)) == FilterLevels((), 0)
    assert isinstance(rig.ask(ListFilters(skip=-1)), InvalidRequest)


def test_opening_is_answered_when_its_record_is_durable() -> None:
    rig = made()
    first, second = rig.submit(OpenFilters("g", ("a",))), rig.submit(OpenFilters("h", ("a",)))
    assert (first, second) == ([], [])
    rig.sync()
    assert (len(first), len(second)) == (1, 1)
    assert len(rig.submit(OpenFilters("g", ("a",)))) == 1, "it is open and durable"


def test_a_filter_that_was_answered_for_is_open_after_a_power_loss() -> None:
    rig = made()
    one = opened(rig, "g", "a").opened[0]
    rig.disk.lose_power()
    after = rig.restarted()
    after.ask(append(Message("t", b"1", mqtt_topic="a")))
    assert after.bodies(one.queue, one.offset) == [b"1"]


def test_whoever_opens_an_open_filter_begins_at_its_end() -> None:
    rig = made()
    first = opened(rig, "g", "a").opened[0]
    rig.ask(append(Message("t", b"1", mqtt_topic="a")))
    second = opened(rig, "h", "a").opened[0]
    rig.ask(append(Message("t", b"2", mqtt_topic="a")))
    assert (rig.bodies("~filter:a", first.offset), rig.bodies("~filter:a", second.offset)) == ([b"1", b"2"], [b"2"])


def test_filters_are_answered_in_the_order_asked_twice_named_ones_too() -> None:
    assert [one.filter for one in opened(made(), "g", "b", "a", "b").opened] == ["b", "a", "b"]


def test_a_filter_is_open_until_its_last_owner_closes_it() -> None:
    rig = made()
    opened(rig, "g", "a")
    opened(rig, "h", "a")
    assert rig.ask(CloseFilters("g", ("a", "a", "never opened"))) == Done()
    assert state(rig) == [["a", ["h"]]]
    rig.ask(CloseFilters("h", ("a",)))
    assert state(rig) == []
    assert isinstance(rig.ask(QueryBounds(("~filter:a",))), QueueNotFound)


def test_a_queue_that_is_opened_again_never_repeats_an_offset() -> None:
    rig = made()
    first = opened(rig, "g", "a").opened[0]
    rig.ask(append(*[Message("t", b"x", mqtt_topic="a")] * 100))
    end = rig.ask(QueryBounds((first.queue,))).bounds[0].end
    rig.ask(CloseFilters("g", ("a",)))
    assert opened(rig, "g", "a").opened[0].offset >= end


def test_the_filters_of_a_silent_owner_are_closed_and_those_of_a_living_one_stay() -> None:
    rig = made(owner_lease_s=10.0)
    opened(rig, "silent", "a", "both")
    opened(rig, "living", "b", "both")
    for rig.clock.now in (5.0, 9.9):
        rig.ask(KeepFilters("living", 10.0))
        rig.dispatch.tick()
    assert len(state(rig)) == 3
    rig.clock.now = 10.0
    rig.dispatch.tick()
    assert state(rig) == [["b", ["living"]], ["both", ["living"]]]


def test_after_a_restart_owners_have_a_whole_lease_to_come_back() -> None:
    rig = made(owner_lease_s=10.0)
    opened(rig, "g", "a")
    rig.clock.now = 100.0
    after = rig.restarted()
    after.clock.now += 9.9
    after.dispatch.tick()
    assert state(after) == [["a", ["g"]]]
    after.clock.now += 0.1
    after.dispatch.tick()
    assert state(after) == []


def test_a_lease_that_ends_while_the_disk_is_full_is_seen_to_later(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = made(owner_lease_s=10.0)
    opened(rig, "g", "a")
    rig.disk.capacity = rig.disk.used()
    while not isinstance(rig.ask(append(Message("t", bytes(100)))), StorageFull):
        pass
    rig.clock.now = 10.0
    rig.dispatch.tick()
    rig.disk.capacity = None
    rig.dispatch.tick()
    assert state(rig) == []


def test_an_owner_of_very_many_filters_takes_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_requests, "FILTER_BYTES_PER_RECORD", 100)
    rig = made(owner_lease_s=10.0)
    filters = [f"a/{number:03d}" for number in range(95)]
    opened(rig, "g", *filters)
    assert [row[0] for row in state(rig)] == filters
    rig.clock.now = 10.0
    rig.dispatch.tick()
    assert state(rig) == []


def test_more_filters_than_the_limit_are_refused_but_open_ones_may_be_opened_again() -> None:
    rig = made(filters_max=2)
    opened(rig, "g", "a", "b")
    assert rig.refused("g", "a", "c") == {"c": Busy}
    opened(rig, "h", "a", "b")


def test_of_several_filters_as_many_are_opened_as_there_is_room_for() -> None:
    rig = made(filters_max=2)
    assert rig.refused("g", "a", "b", "c", "b", "d") == {"c": Busy, "d": Busy}
    assert [row[0] for row in state(rig)] == ["a", "b"]


def test_filters_that_would_make_every_match_slow_are_refused() -> None:
    rig = made()
    count = 0
    for number in range(1, 1 << 11):  # every form of wildcards in 11 levels
        levels = ["+" if number >> place & 1 else "x" for place in range(11)]
        count += len(rig.refused("g", "/".join(levels)))
    assert count > 1000
    opened(rig, "g", "plain/" * 10 + "x")


LONG = 70_000


@pytest.mark.parametrize("filter", ["", "a/#/b", "a+", "a\0b", "a" * LONG, "$share/g\0/a", f"$share/{'g' * LONG}/a"])
def test_an_illegal_filter_is_refused_and_takes_no_other_with_it(filter: str) -> None:
    rig = made()
    assert rig.refused("g", filter, "fine") == {filter: InvalidTopic}
    assert isinstance(rig.ask(FetchRetained(filter)), InvalidTopic)
    assert [row[0] for row in state(rig)] == ["fine"]


@pytest.mark.parametrize(
    "request_", [OpenFilters("", ("a",)), OpenFilters("x" * 301, ("a",)), KeepFilters("", 1.0), KeepFilters("g", 0.0)]
)
def test_an_owner_has_a_name_and_a_lease(request_: OpenFilters | KeepFilters) -> None:
    assert isinstance(made().ask(request_), InvalidRequest)


# ---------------------------------------------------------------- retained messages


def retain(rig: Rig, *names: str, body: bytes = b"x") -> None:
    rig.ask(append(*[Message("t", body, mqtt_topic=name, retain=True) for name in names]))


def names(rig: Rig, filter: str, count_max: int = 256) -> list[str]:
    """All pages of a filter."""
    found: list[str] = []
    after = ""
    while True:
        page = rig.ask(FetchRetained(filter, after, count_max))
        assert page.count <= count_max
        found += [message.name for _, message in decode_batch(page.count, page.body)]
        after = page.after
        if not after:
            return found


def test_the_last_message_of_a_name_is_retained_and_an_empty_one_removes_it() -> None:
    rig = made()
    retain(rig, "a/b", body=b"1")
    retain(rig, "a/b", body=b"2")
    page = rig.ask(FetchRetained("a/+"))
    ((_, message),) = decode_batch(page.count, page.body)
    assert (message.body, message.retain, message.name) == (b"2", True, "a/b")
    retain(rig, "a/b", body=b"")
    assert names(rig, "#") == []


def test_a_retained_message_is_shown_when_it_is_durable_and_so_is_its_end() -> None:
    rig = made()
    for body in (b"x", b""):
        rig.submit(append(Message("t", body, mqtt_topic="a", retain=True)))
        answers = rig.submit(FetchRetained("a"))
        assert answers == []
        rig.sync()
        assert len(answers) == 1
    assert len(rig.submit(FetchRetained("a"))) == 1


def test_pages_of_retained_messages_are_whole_and_in_order() -> None:
    rig = made()
    every = [f"{letter}/{number}" for letter in "cab" for number in range(7)]
    retain(rig, *every)
    for size in (1, 2, 7, 20, 21, 22):
        assert names(rig, "#", size) == sorted(every)
        assert names(rig, "b/+", size) == [f"b/{number}" for number in range(7)]


def test_a_page_has_a_limit_of_bytes_and_of_names_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_requests, "LOOKED_AT_MAX", 3)
    monkeypatch.setattr(filter_requests, "PAGE_BYTES_MAX", 600)
    rig = made()
    every = [*[f"a/{number:02d}/{kind}" for number in range(20) for kind in "xy"], "a/19/z"]
    retain(rig, *every, body=bytes(100))
    assert rig.ask(FetchRetained("#")).count == 2
    assert rig.ask(FetchRetained("a/+/z")).count == 0, "it is further away than one page looks"
    assert names(rig, "#") == every
    assert names(rig, "a/+/z") == ["a/19/z"]


def test_retained_messages_outlive_a_restart() -> None:
    rig = made()
    retain(rig, "a", "b")
    assert names(rig.restarted(), "#") == ["a", "b"]


def test_a_page_of_nothing_is_refused() -> None:
    assert isinstance(made().ask(FetchRetained("a", count_max=0)), InvalidRequest)


def test_replay_and_snapshot_agree_on_filters_and_retained_messages() -> None:
    rig = made()
    opened(rig, "g", "b/+", "a")
    opened(rig, "h", "a", "c/#")
    rig.ask(CloseFilters("g", ("a",)))
    retain(rig, "x", "b/1")
    retain(rig, "x", body=b"")
    copy = BrokerState()
    copy.restore(rig.state.snapshot())
    assert copy.snapshot() == rig.state.snapshot()
    assert but_epochs(rig.restarted().state) == but_epochs(copy)


def test_a_long_filter_counts_several_times() -> None:
    rig = made(filters_max=70, segment_bytes=1 << 24)
    first = rig.ask(OpenFilters("g", ("x" * 65_535, *[f"a{n}" for n in range(6)], "late")))
    assert [one.filter for one in first.refused] == ["late"]
    assert "filters_max" in first.refused[0].message
    rig.ask(CloseFilters("g", ("x" * 65_535,)))
    many = rig.ask(OpenFilters("g", tuple(["y" * 30_000 + str(n) for n in range(3)])))
    assert [len(one.filter) for one in many.refused] == [30_001]
    again = rig.restarted().ask(OpenFilters("h", tuple([f"b{n}" for n in range(7)])))
    assert len(again.opened) == 4, "what was open still counts"


def test_the_filters_of_an_owner_of_many_long_ones_fit_records_and_are_closed_with_its_lease() -> None:
    rig = made(owner_lease_s=10.0, segment_bytes=6 << 20)
    filters = tuple([f"{n}" + "x" * 65_000 for n in range(140)])
    assert len(opened(rig, "g", *filters[:70]).opened) == len(opened(rig, "g", *filters[70:]).opened) == 70
    rig.clock.now += 10.0
    rig.dispatch.tick()
    assert state(rig) == []


def test_filters_that_no_segment_holds_together_are_opened_and_closed_in_parts() -> None:
    rig = made(owner_lease_s=10.0)
    filters = tuple([f"{number:04d}/" + "x" * 90 for number in range(2_000)])
    assert sum(map(len, filters)) > 2 * rig.store.batch_bytes_max
    first = opened(rig, "g", *filters)
    assert [one.filter for one in first.opened] == list(filters)
    assert len({one.offset for one in first.opened}) == 4, "each begins at its record"
    rig.ask(append(Message("t", b"1", mqtt_topic=filters[0]), Message("t", b"2", mqtt_topic=filters[-1])))
    after = rig.restarted()
    for one, body in ((first.opened[0], b"1"), (first.opened[-1], b"2")):
        assert after.bodies(one.queue, one.offset) == [body]
    after.ask(CloseFilters("g", filters[:1_999]))
    assert [row[0] for row in state(after.restarted())] == [filters[-1]]


def test_a_filter_that_no_segment_holds_is_refused_alone() -> None:
    rig = made(segment_bytes=1 << 14)
    assert rig.refused("g", "a/#", "x" * 20_000, "$share/s/" + "y" * 20_000) == {
        "x" * 20_000: TooLarge,
        "$share/s/" + "y" * 20_000: TooLarge,
    }
    assert [row[0] for row in state(rig)] == ["a/#"]
