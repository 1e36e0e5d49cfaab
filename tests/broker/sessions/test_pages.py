from __future__ import annotations

import pytest

from broker.sessions import pages
from broker.sessions.fold import holder
from penstock.errors import InvalidRequest, TopicNotFound
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.sessions import (
    CONNECTED,
    HOME_TOPIC,
    RELEASED,
    EndedSessions,
    FindEndedSessions,
    ListSessionFilters,
    ListSessions,
    OpenSession,
    SaveSessions,
    SessionFiltersPage,
    SessionRow,
    SessionSave,
    SessionsPage,
)
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig


@pytest.mark.parametrize("request_", [ListSessionFilters(), ListSessions(), FindEndedSessions((1,))])
def test_only_the_home_says_what_sessions_are(request_: Request) -> None:
    rig = Rig()
    assert rig.ask(request_).code == TopicNotFound.code
    rig.ask(CreateTopic(HOME_TOPIC, 1))
    assert rig.ask(request_) in (SessionFiltersPage((), 0), SessionsPage((), 0), EndedSessions((1,)))


def test_pages_of_large_sessions_filters_end_early_and_miss_none() -> None:
    rig = Rig()
    rig.ask(CreateTopic(HOME_TOPIC, 1))
    expected = {}
    for client in ("a", "b", "c", "d"):
        opened = rig.ask(OpenSession("g", client, False, 60, b""))
        filters = tuple([f"{client}/{at}/{'x' * 1000}" for at in range(600)])
        for at in range(0, 600, 40):
            rig.ask(OpenFilters(holder(opened.generation), filters[at : at + 40]))
        expected[opened.generation] = set(filters)
    found: dict[int, set[str]] = {}
    sizes, after = [], 0
    while not sizes or after:
        page = rig.ask(ListSessionFilters(after))
        sizes.append(len(page.sessions))
        found |= {one.generation: set(one.filters) for one in page.sessions}
        after = page.after
    assert found == expected
    assert sizes == [2, 2]


def test_sessions_are_found_by_a_part_of_their_client_ids_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LOOKED_AT_MAX", 3)
    rig = Rig()
    rig.ask(CreateTopic(HOME_TOPIC, 1))
    for client in ("plant-1", "x", "y", "z", "plant-2", "plant-3"):
        rig.ask(OpenSession("g", client, False, 60, b""))
    found, sizes, after = list[str](), list[int](), 0
    while not sizes or after:
        page = rig.ask(ListSessions(after, 2, contains="plant"))
        found += [one.client for one in page.sessions]
        sizes.append(len(page.sessions))
        after = page.after
    assert found == ["plant-1", "plant-2", "plant-3"]
    assert sizes == [1, 2, 0], "three are looked at; two are enough"


def test_how_sessions_stand_is_told() -> None:
    rig = Rig()
    rig.ask(CreateTopic(HOME_TOPIC, 1))
    first = rig.ask(OpenSession("g", "c", False, 60, b"", user="alice"))
    second = rig.ask(OpenSession("g", "d", False, 60, b""))
    rig.ask(SaveSessions("g", (SessionSave("c", first.epoch, RELEASED, 60, terms=b"terms", flow=b"flow"),)))
    gone_ms = rig.clock.wall_ms()
    row = SessionRow("c", first.generation, "", RELEASED, "alice", gone_ms, 60, b"terms", b"flow")
    other = SessionRow("d", second.generation, "g", CONNECTED, "", 0, 60, b"", b"")
    assert rig.ask(ListSessions()) == SessionsPage((row, other), 0)
    assert rig.ask(ListSessions(client="c")) == SessionsPage((row,), 0)
    assert rig.ask(ListSessions(client="nobody")) == SessionsPage((), 0)
    assert isinstance(rig.ask(ListSessions(count_max=0)), InvalidRequest)


def test_sessions_are_told_a_page_at_a_time_by_count_and_by_size_also_after_a_restart() -> None:
    rig = Rig(segment_bytes=1 << 23)
    rig.ask(CreateTopic(HOME_TOPIC, 1))
    for client in "xyz":
        opened = rig.ask(OpenSession("g", client, False, 60, b""))
        rig.ask(SaveSessions("g", (SessionSave(client, opened.epoch, RELEASED, 60, terms=b"t" * 600_000),)))

    def pages(count_max: int) -> list[str]:
        told, after = [], 0
        while True:
            page = rig.ask(ListSessions(after, count_max))
            told.append("".join([row.client for row in page.sessions]))
            after = page.after
            if not after:
                return told

    assert pages(1) == ["x", "y", "z", ""]
    assert pages(10) == ["xy", "z"]
    rig.state.sessions.restore(rig.state.sessions.snapshot())
    assert pages(10) == ["xy", "z"]
