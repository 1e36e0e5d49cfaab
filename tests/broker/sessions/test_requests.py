from __future__ import annotations

from dataclasses import replace
from errno import ENOSPC
from typing import Any

import pytest

from broker.kernel.outcomes import AfterQuorum, Now
from broker.sessions.calls import HANDOVER_S
from broker.sessions.requests import SessionRequests
from penstock.errors import Busy, Fenced, InvalidRequest, SessionNotFound, StorageFull, TooLarge
from penstock.protocol.message import (
    CLIENT_ID,
    FLAG_ONCE,
    MQTT_ID,
    MQTT_TOPIC,
    encode_properties,
    encode_record,
    record_tail,
)
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import Append, Appended, QueryBounds
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.sessions import (
    ANY_EPOCH,
    CONNECTED,
    GONE,
    LOST,
    NEVER_ENDS,
    RELEASED,
    ClosedSession,
    CloseSession,
    EndGatewayEpochs,
    EndSession,
    Exchanges,
    FetchExchanges,
    KeepSessions,
    OpenedSession,
    OpenSession,
    ReleaseExchanges,
    Request,
    SavedSessions,
    SaveSessions,
    SessionCall,
    SessionCalls,
    SessionDuties,
    SessionSave,
    WatchSessions,
)
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import Run
from tests.broker.broker_rig import Rig, after_sync


def open_session(rig: Rig, owner: str = "g", client: str = "c", **asked: Any) -> OpenedSession:
    """Gives a session to an owner. ``force``: one that has it is passed over when it has had its time."""
    request = OpenSession(owner, client, **{"clean": False, "expiry_s": 60, "will": b"", **asked, "force": False})
    answers = rig.submit(request)
    rig.sync()
    if asked.get("force") and not answers:
        pass_time(rig, HANDOVER_S)
        assert answers == [OpenedSession(0, 0, False)]
        answers = [rig.ask(replace(request, force=True))]
    answer = answers[0]
    assert isinstance(answer, OpenedSession), answer
    return answer


def save(rig: Rig, epoch: int, state: int, owner: str = "g", **kept: Any) -> tuple[int, ...]:
    answer = rig.ask(SaveSessions(owner, (SessionSave("c", epoch, state, kept.pop("expiry_s", 60), **kept),)))
    assert isinstance(answer, SavedSessions), answer
    return answer.fenced


def alive(rig: Rig, *owners: str, fresh: bool = False) -> SessionDuties:
    answers = [rig.ask(KeepSessions(owner, 30.0, fresh)) for owner in owners]
    assert isinstance(answers[-1], SessionDuties)
    return answers[-1]


def pass_time(rig: Rig, seconds: float) -> None:
    rig.clock.now += seconds
    rig.dispatch.tick()
    rig.sync()


def test_where_another_node_may_lead_every_session_waits_for_the_group() -> None:
    """Else that one could give the same epoch, a position of the log, to another gateway."""
    passing = OpenSession("g", "d", True, 0, b"")
    assert isinstance(Rig().handle(passing), Now)
    assert isinstance(Rig(node="a", replica_port=0).handle(passing), AfterQuorum)


def test_what_was_saved_comes_back_with_a_higher_epoch_also_after_a_kill() -> None:
    rig = Rig()
    first = open_session(rig, will=b"will")
    assert (first.present, first.generation) == (False, first.epoch)
    assert save(rig, first.epoch, RELEASED, terms=b"terms", flow=b"flow") == ()
    again = open_session(rig.restarted(), "h")
    assert (again.present, again.generation, again.epoch > first.epoch) == (True, first.generation, True)
    assert (again.will, again.terms, again.flow, again.state) == (b"will", b"terms", b"flow", RELEASED)


def test_whoever_lost_a_session_is_fenced() -> None:
    rig = Rig()
    old = open_session(rig)
    new = open_session(rig, "h", force=True)
    assert save(rig, old.epoch, RELEASED, terms=b"late") == (0,)
    assert save(rig, new.epoch, CONNECTED, "g") == (0,), "the epoch alone does not make an owner"
    late = rig.handle(EndSession("c", old.epoch))
    assert isinstance(after_sync(late), Fenced)
    last = open_session(rig, "g", force=True)
    assert (last.present, last.terms) == (True, b"")


def test_a_living_owner_is_called_first_and_the_session_changes_hands_when_it_lets_go() -> None:
    rig = Rig()
    alive(rig, "g", "h")
    held = open_session(rig)
    watching = rig.submit(WatchSessions("g", 30.0))
    asking = rig.submit(OpenSession("h", "c", True, 60, b""))
    assert watching == [SessionCalls((SessionCall("c", held.epoch, True),))]
    assert asking == []
    save(rig, held.epoch, RELEASED, flow=b"last")
    assert asking == [OpenedSession(0, 0, False)]
    assert open_session(rig, "h", force=True).flow == b"last"


def test_an_owner_that_does_not_let_go_loses_the_session_all_the_same() -> None:
    rig = Rig()
    alive(rig, "g", "h")
    held = open_session(rig)
    asking = rig.submit(OpenSession("h", "c", False, 60, b""))
    pass_time(rig, HANDOVER_S)
    assert asking == [OpenedSession(0, 0, False)]
    taken = open_session(rig, "h", force=True)
    assert (taken.present, taken.state, save(rig, held.epoch, RELEASED)) == (True, CONNECTED, (0,))


def test_whoever_got_the_session_has_a_second_also_where_several_ask_for_it() -> None:
    """One has waited for its owner before, another asks at the same time: neither takes it before its time."""
    rig = rig_with_a_topic()
    for owner, epoch in (("g", "a"), ("h", "b"), ("x", "c")):
        live(rig, owner, epoch)
    held = open_session(rig, "g")
    asked = OpenSession("h", "c", False, 60, b"")
    waiting = rig.submit(asked)
    save(rig, held.epoch, RELEASED)
    assert waiting == [OpenedSession(0, 0, False)]
    between = open_session(rig, "x")
    again = rig.submit(asked)
    pass_time(rig, HANDOVER_S / 2)
    forced = rig.submit(replace(asked, force=True))
    pass_time(rig, HANDOVER_S / 4)
    assert again == forced == []
    assert isinstance(publish(rig, "c"), Appended)
    pass_time(rig, HANDOVER_S / 4)
    assert again == forced == [OpenedSession(0, 0, False)], "the time is counted from the first call"
    assert save(rig, between.epoch, RELEASED, "x") == ()
    assert open_session(rig, "h", force=True).epoch > between.epoch
    assert isinstance(publish(rig, "c"), Appended), "it has let go in time"


def test_whoever_got_the_session_while_another_owner_was_called_upon_is_called_upon_too() -> None:
    rig = Rig()
    alive(rig, "g", "h", "x")
    held = open_session(rig, "g")
    asked = OpenSession("h", "c", False, 60, b"")
    assert rig.submit(asked) == []
    save(rig, held.epoch, RELEASED)
    between = open_session(rig, "x")
    told = rig.submit(replace(asked, force=True))
    assert told == []
    assert rig.ask(WatchSessions("x", 0.0)) == SessionCalls((SessionCall("c", between.epoch, False),))
    pass_time(rig, HANDOVER_S)
    assert told == [OpenedSession(0, 0, False)]
    assert rig.ask(replace(asked, force=True)).epoch > between.epoch


def test_an_owner_that_was_too_slow_to_let_go_hears_all_the_same_that_its_session_is_gone() -> None:
    rig = Rig()
    alive(rig, "g", "h")
    held = open_session(rig)
    rig.submit(OpenSession("h", "c", False, 60, b""))
    call = SessionCalls((SessionCall("c", held.epoch, False),))
    assert rig.submit(WatchSessions("g", 30.0)) == [call]
    watching = rig.submit(WatchSessions("g", 30.0))
    pass_time(rig, HANDOVER_S)
    assert watching == []
    open_session(rig, "h", force=True)
    assert watching == [call]


def test_a_clean_start_ends_the_old_session_with_its_filters_and_exchanges() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    old = open_session(rig)
    rig.ask(OpenFilters(f"~session/{old.generation}", ("t/+",)))
    rig.ask(_once(old.generation, 1))
    save(rig, old.epoch, RELEASED, terms=b"terms")
    new = open_session(rig, clean=True)
    assert (new.present, new.ended, new.terms) == (False, old.generation, b"terms")
    assert rig.state.filters.owners == []
    assert rig.ask(FetchExchanges("c", old.generation, old.epoch)) == Exchanges(())
    assert rig.ask(QueryBounds(("~filter:t/+",))).code == 23


def test_filters_of_a_session_need_no_lease() -> None:
    rig = Rig()
    held = open_session(rig)
    rig.ask(OpenFilters(f"~session/{held.generation}", ("t/+",)))
    rig.ask(OpenFilters("g", ("u/+",)))
    pass_time(rig, 10_000)
    assert rig.state.filters.owners == [f"~session/{held.generation}"]


def test_a_session_whose_client_stays_away_ends_by_itself() -> None:
    for state, restarts in ((RELEASED, False), (RELEASED, True), (GONE, False), (GONE, True)):
        rig = Rig()
        held = open_session(rig)
        save(rig, held.epoch, state)
        pass_time(rig, 59)
        assert rig.state.sessions.get("c") is not None
        if restarts:
            rig = rig.restarted()
        for _ in range(3):  # an owner that has it still, and is dead, is given its time
            pass_time(rig, rig.settings.owner_lease_s)
        assert rig.state.sessions.get("c") is None


def test_a_client_that_comes_and_goes_leaves_nothing_behind() -> None:
    rig = Rig()
    opened = open_session(rig)
    for _ in range(10):
        save(rig, opened.epoch, RELEASED)
        opened = open_session(rig)
    save(rig, opened.epoch, RELEASED)
    assert len(rig.theme(SessionRequests)._ends) == 1
    pass_time(rig, 61)
    assert rig.state.sessions.get("c") is None


def test_a_session_lives_its_whole_time_after_each_time_that_its_client_has_left() -> None:
    rig = Rig()
    save(rig, open_session(rig).epoch, RELEASED)
    pass_time(rig, 30)
    save(rig, open_session(rig).epoch, RELEASED)
    pass_time(rig, 59)
    assert rig.state.sessions.get("c") is not None
    pass_time(rig, 1)
    assert rig.state.sessions.get("c") is None


def test_a_session_that_never_ends_stays() -> None:
    rig = Rig()
    held = open_session(rig, expiry_s=NEVER_ENDS)
    save(rig, held.epoch, RELEASED, expiry_s=NEVER_ENDS)
    pass_time(rig, 1e9)
    assert open_session(rig).present


def test_a_client_that_comes_back_too_late_finds_a_new_session() -> None:
    rig = Rig()
    held = open_session(rig)
    save(rig, held.epoch, RELEASED)
    rig.clock.now += 61  # before anybody has looked
    late = open_session(rig)
    assert (late.present, late.ended) == (False, held.generation)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_next_owner_is_told_until_when_a_dead_one_may_have_done_what_nobody_knows(restarts: bool) -> None:
    rig = Rig()
    alive(rig, "g", "h")
    held = open_session(rig)
    save(rig, held.epoch, CONNECTED, flow=b"flow")
    pass_time(rig, 31)
    alive(rig, "h")
    dead_by = rig.clock.wall_ms()
    pass_time(rig, 10)
    rig = rig.restarted() if restarts else rig
    found = open_session(rig, "h")
    assert (found.state, found.flow, held.doubtful_ms) == (RELEASED, b"flow", 0)
    assert dead_by - 1000 <= found.doubtful_ms <= dead_by


def test_an_owner_that_lets_go_leaves_no_doubt_and_one_that_is_passed_over_does() -> None:
    rig = Rig()
    first = open_session(rig)
    save(rig, first.epoch, RELEASED)
    assert open_session(rig, "h").doubtful_ms == 0
    assert open_session(rig, "i", force=True).doubtful_ms == rig.clock.wall_ms()


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
def test_a_wall_clock_that_is_set_ends_no_session_and_keeps_none_alive(jump_s: int) -> None:
    rig = Rig(set_ms=1 << 40)
    save(rig, open_session(rig).epoch, RELEASED)
    pass_time(rig, 30)
    rig.clock.set_ms += jump_s * 1000
    pass_time(rig, 29)
    assert rig.state.sessions.get("c") is not None
    again = open_session(rig)
    assert again.present
    save(rig, again.epoch, RELEASED)
    pass_time(rig, 59)
    assert rig.state.sessions.get("c") is not None
    pass_time(rig, 1)
    assert rig.state.sessions.get("c") is None


def test_an_absence_counts_on_over_a_restart_by_the_wall_clock_and_anew_where_that_has_gone_back() -> None:
    for jump_s, left_s in ((0, 29), (20, 9), (-1000, 60)):
        rig = Rig(set_ms=1 << 40)
        save(rig, open_session(rig).epoch, RELEASED)
        pass_time(rig, 30)
        set_ms = rig.clock.set_ms + jump_s * 1000
        rig = rig.restarted(set_ms=set_ms)
        pass_time(rig, left_s - 1)
        assert rig.state.sessions.get("c") is not None
        pass_time(rig, 1)
        assert rig.state.sessions.get("c") is None


def claim(rig: Rig, owner: str) -> OpenedSession:
    alive(rig, owner)
    pass_time(rig, 0)
    return open_session(rig, owner, claim=True)


def test_the_absence_of_a_client_goes_on_through_owners_and_restarts() -> None:
    rig = Rig()
    alive(rig, "g", "h")
    held = open_session(rig, will=b"will", expiry_s=1000)
    assert held.absence_s == 0
    save(rig, held.epoch, GONE, expiry_s=1000)
    pass_time(rig, 31)
    assert claim(rig, "h").absence_s == 31
    rig = rig.restarted()
    pass_time(rig, rig.settings.owner_lease_s)
    assert claim(rig, "i").absence_s == 32 + rig.settings.owner_lease_s
    pass_time(rig, 31)
    back = open_session(rig, "g")
    assert (back.present, back.absence_s) == (True, 63 + rig.settings.owner_lease_s)
    assert open_session(rig, "g").absence_s == 0


def test_a_client_whose_owner_died_is_gone_from_when_that_was_noticed() -> None:
    rig = Rig()
    alive(rig, "g")
    open_session(rig, will=b"will", expiry_s=100)
    pass_time(rig, 31)
    pass_time(rig, 60)
    assert claim(rig, "h").absence_s == 60
    pass_time(rig, 39)
    late = claim(rig, "i")
    assert (late.present, late.ended > 0, late.will) == (True, False, b"will")
    pass_time(rig, 31)
    over = claim(rig, "h")
    assert (over.present, over.ended > 0, over.will) == (False, True, b"will")
    pass_time(rig, 31)
    assert claim(rig, "i").absence_s == 60 + 39 + 31 + 31, "what its will waits for is no new session"


def test_a_client_whose_owner_was_not_dead_has_not_been_gone() -> None:
    rig = Rig()
    alive(rig, "g")
    held = open_session(rig, will=b"will")
    pass_time(rig, 31)
    pass_time(rig, 31)
    assert save(rig, held.epoch, CONNECTED) == ()
    pass_time(rig, 31)
    alive(rig, "g")
    assert save(rig, held.epoch, GONE) == ()
    pass_time(rig, 31)
    assert claim(rig, "h").absence_s == 31


def test_the_wills_of_a_dead_owner_are_offered_to_the_living_until_one_has_claimed_them() -> None:
    rig = Rig()
    alive(rig, "g", "h")
    open_session(rig, client="with", will=b"will")
    held = open_session(rig, client="without")
    assert alive(rig, "h").clients == ()
    rig.clock.now += 31
    alive(rig, "h")
    pass_time(rig, 0.1)
    assert alive(rig, "h").clients == ("with",)
    entry = rig.state.sessions.get("without")
    assert entry is not None
    assert (entry.owner, entry.state, entry.epoch) == ("", RELEASED, held.epoch)
    claimed = open_session(rig, "h", "with", claim=True)
    assert (claimed.will, claimed.state, claimed.present, claimed.expiry_s) == (b"will", CONNECTED, True, 60)
    assert alive(rig, "h").clients == ()
    assert rig.ask(OpenSession("g", "with", False, 0, b"", claim=True)).code == Fenced.code


def test_the_will_of_an_owner_that_says_a_last_word_and_dies_is_offered_again() -> None:
    rig = Rig(owner_lease_s=10.0)
    alive(rig, "g")
    held = open_session(rig, will=b"will")
    pass_time(rig, 31)
    assert alive(rig, "h").clients == ("c",)
    assert save(rig, held.epoch, CONNECTED) == ()
    assert alive(rig, "h").clients == ()
    pass_time(rig, 11)
    assert alive(rig, "h").clients == ("c",)


def test_a_session_that_its_owner_calls_lost_is_offered_as_if_the_owner_were_dead() -> None:
    rig = Rig()
    alive(rig, "g")
    held = open_session(rig, will=b"will")
    open_session(rig, client="other")
    assert save(rig, ANY_EPOCH, LOST, owner="h") == (0,), "another's is not its to lose"
    assert save(rig, ANY_EPOCH, LOST) == ()
    assert alive(rig, "g").clients == ("c",)
    again = open_session(rig, "g", claim=True)
    assert again.will == b"will"
    assert again.epoch > held.epoch
    assert alive(rig, "g").clients == ()


def test_an_owner_that_was_taken_for_dead_is_not_called_upon_by_a_claim() -> None:
    """It would take the client for back, and give its will up; where the claim is lost with the power nobody has it."""
    rig = Rig()
    alive(rig, "g")
    open_session(rig, will=b"will")
    pass_time(rig, 31)
    assert alive(rig, "g", "h").clients == ("c",)
    open_session(rig, "h", claim=True)
    assert rig.ask(WatchSessions("g", 0.0)) == SessionCalls(())


def test_that_a_session_is_lost_outlives_the_home() -> None:
    """Its owner lives and says it once: forgotten, the will would wait for as long as the owner lives."""
    rig = Rig()
    alive(rig, "g")
    held = open_session(rig, will=b"will")
    open_session(rig, client="other", expiry_s=60)
    assert rig.ask(SaveSessions("g", (SessionSave("c", ANY_EPOCH, LOST, 0), SessionSave("other", 0, LOST, 0)))) == (
        SavedSessions(())
    )
    after = rig.restarted()
    assert alive(after, "g").clients == ("c",)
    again = open_session(after, "h", claim=True)
    assert (again.will, again.epoch > held.epoch) == (b"will", True)
    assert alive(after, "g").clients == ()
    pass_time(after, 61)
    assert not open_session(after, "h", "other").present


@pytest.mark.parametrize(("expiry_s", "will", "waits"), [(60, b"", True), (0, b"will", True), (0, b"", False)])
def test_a_session_that_is_to_outlive_anything_is_given_when_that_is_durable(
    expiry_s: int, will: bytes, waits: bool
) -> None:
    rig = Rig()
    told = rig.submit(OpenSession("g", "c", False, expiry_s, will))
    assert (told == []) == waits
    rig.sync()
    assert [type(one) for one in told] == [OpenedSession]


@pytest.mark.parametrize(("expiry_s", "will", "at_once"), [(60, b"", []), (0, b"will", []), (0, b"", [Done()])])
def test_the_end_of_a_session_that_could_come_back_or_has_a_will_is_told_when_it_is_durable(
    expiry_s: int, will: bytes, at_once: list[Done]
) -> None:
    rig = Rig()
    epoch = open_session(rig, expiry_s=expiry_s, will=will).epoch
    told = rig.submit(EndSession("c", epoch))
    assert rig.state.sessions.get("c") is None
    assert told == at_once
    again = rig.submit(EndSession("c", epoch))
    assert again == [], "whoever says it again hears no more than is durable"
    rig.sync()
    assert (told, [type(one) for one in again]) == ([Done()], [Fenced])


def test_an_owner_that_begins_anew_has_lost_what_it_had() -> None:
    rig = Rig()
    alive(rig, "g", fresh=True)
    open_session(rig, will=b"will")
    after = rig.restarted()
    assert alive(after, "g", fresh=True).clients == ("c",)
    assert open_session(after, "h").will == b"will", "nobody has to be asked first"


def test_a_broker_that_comes_back_gives_owners_their_time() -> None:
    rig = Rig()
    held = open_session(rig, will=b"will")
    after = rig.restarted()
    pass_time(after, 1)
    assert alive(after, "h").clients == ()
    assert save(after, held.epoch, CONNECTED) == ()


def _once(generation: int, packet_id: int, body: bytes = b"x", epoch: int = 1 << 40) -> Append:
    exchange = f"{generation}:{epoch}:{packet_id}"
    properties = f"{MQTT_TOPIC}\x01t/1\x02{CLIENT_ID}\x01c\x02{MQTT_ID}\x01{exchange}".encode()
    record = encode_record(b"t", body, properties, flag=2 | FLAG_ONCE)
    return Append(1, True, record)


def test_a_message_of_an_exchange_is_stored_once_until_its_release_is_durable() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    held = open_session(rig)
    for _ in range(3):
        answer = rig.ask(_once(held.generation, 1))
        assert isinstance(answer, Appended)
        assert (answer.refused, answer.level) == ((), "disk")
    assert rig.bodies("t:0") == [b"x"]
    again = rig.restarted()
    assert again.ask(FetchExchanges("c", held.generation, held.epoch)) == Exchanges((1,))
    again.ask(_once(held.generation, 1))
    assert again.bodies("t:0") == [b"x"]
    assert again.ask(ReleaseExchanges("c", held.generation, (1,))) == Done()
    again.ask(_once(held.generation, 1, b"y"))
    assert again.bodies("t:0") == [b"x", b"y"]


def test_the_release_of_one_exchange_leaves_the_others_of_its_session_open() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    held = open_session(rig)
    for packet_id in (1, 2):
        rig.ask(_once(held.generation, packet_id))
    assert rig.ask(ReleaseExchanges("c", held.generation, (1,), epoch=held.epoch)) == Done()
    assert rig.ask(FetchExchanges("c", held.generation, held.epoch)) == Exchanges((2,))
    rig.ask(_once(held.generation, 2))
    assert rig.bodies("t:0") == [b"x", b"x"]


def test_a_repeated_message_is_answered_when_the_first_one_is_durable() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1, "cache"))
    first, second = rig.submit(_once(1, 1)), rig.submit(_once(1, 1))
    assert (len(first), len(second)) == (1, 0)
    rig.sync()
    assert len(second) == 1


def test_two_of_an_exchange_in_one_batch_are_one_message() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    twice = _once(1, 1).body
    answer = rig.ask(Append(2, True, bytes(twice) * 2))
    assert [place.position for place in answer.placed][1] == 0
    assert rig.bodies("t:0") == [b"x"]


def test_a_message_that_names_no_exchange_is_refused() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    record = encode_record(b"t", b"x", b"", flag=2 | FLAG_ONCE)
    assert rig.ask(Append(1, True, record)).refused[0].code == 40


def test_sessions_have_a_limit_and_those_that_stand_go_on() -> None:
    rig = Rig(sessions_max=1)
    open_session(rig)
    assert "sessions_max" in told_busy(rig, OpenSession("g", "d", False, 60, b""))
    again = open_session(rig)
    assert again.present
    save(rig, again.epoch, RELEASED)
    assert open_session(rig, "h").present


def told_busy(rig: Rig, request: Request) -> str:
    """What the refusal says; nothing was appended before it."""
    before = rig.store.written
    answer = rig.ask(request)
    assert isinstance(answer, Busy), answer
    assert rig.store.written == before
    return answer.message


def test_an_opening_with_a_will_beyond_the_limit_is_refused_and_nothing_is_appended() -> None:
    rig = Rig(sessions_bytes_max=10)
    open_session(rig, will=bytes(10))
    assert "sessions_bytes_max" in told_busy(rig, OpenSession("g", "d", False, 60, b"w"))
    assert open_session(rig, client="d").epoch, "one without a will takes nothing"
    rig.ask(EndSession("c", open_session(rig, will=bytes(9)).epoch))
    assert open_session(rig, client="e", will=bytes(10)).epoch


def test_a_living_owner_is_not_called_for_an_opening_that_has_no_room() -> None:
    rig = Rig(sessions_bytes_max=10)
    alive(rig, "g", "h")
    open_session(rig, will=bytes(8))
    watching = rig.submit(WatchSessions("g", 30.0))
    told_busy(rig, OpenSession("h", "c", False, 60, bytes(11)))
    assert watching == []


def test_sessions_beyond_the_limit_come_back_change_hands_shrink_and_end() -> None:
    rig = Rig()
    alive(rig, "g", fresh=True)
    for client in ("a", "b", "c", "d"):
        epoch = open_session(rig, client=client, will=bytes(50)).epoch
        saves = (SessionSave(client, epoch, CONNECTED, 60, terms=bytes(20), flow=bytes(30)),)
        assert rig.ask(SaveSessions("g", saves)) == SavedSessions(())
    rig = rig.restarted(sessions_bytes_max=100)
    assert rig.state.sessions.bytes == 400
    alive(rig, "g", "h", fresh=True)
    told_busy(rig, OpenSession("h", "a", False, 60, bytes(51), force=True))
    taken = open_session(rig, "h", "a", will=bytes(50), force=True)
    assert (taken.present, len(taken.terms), len(taken.flow)) == (True, 20, 30)
    assert open_session(rig, "h", "b", will=bytes(100), clean=True).ended
    assert open_session(rig, "h", "c", claim=True).will == bytes(50)
    smaller = SessionSave("a", taken.epoch, RELEASED, 60, b"\xc0", flow=bytes(29))
    assert rig.ask(SaveSessions("h", (smaller,))) == SavedSessions(())
    assert rig.state.sessions.bytes == 400 - 50 - 1
    rig.ask(EndSession("a", taken.epoch))
    assert rig.state.sessions.bytes == 300


def test_a_save_by_which_a_session_grows_beyond_the_limit_is_refused_alone() -> None:
    rig = Rig(sessions_bytes_max=100)
    held = {client: open_session(rig, client=client).epoch for client in ("a", "b", "c")}
    before = SessionSave("b", held["b"], CONNECTED, 60, flow=bytes(10))
    rig.ask(SaveSessions("g", (before,)))
    saves = (
        SessionSave("a", held["a"], CONNECTED, 60, flow=bytes(60)),
        SessionSave("b", held["b"], RELEASED, 60, terms=bytes(41)),
        SessionSave("c", held["c"], CONNECTED, 60, flow=bytes(30)),
        SessionSave("c", 1 << 40, CONNECTED, 60),
    )
    assert rig.ask(SaveSessions("g", saves)) == SavedSessions((1, 3), (1,))
    after = rig.restarted(sessions_bytes_max=100)
    entries = [after.state.sessions.get(client) for client in held]
    assert [(entry.state, entry.terms, len(entry.flow)) for entry in entries if entry is not None] == [
        (CONNECTED, b"", 60),
        (CONNECTED, b"", 10),
        (CONNECTED, b"", 30),
    ]
    assert after.service.figures()["penstock_session_bytes"] == 100


@pytest.mark.parametrize("state", [CONNECTED, GONE])
def test_an_owner_that_asks_whether_it_has_a_session_is_answered_without_a_record(state: int) -> None:
    rig = Rig()
    held = open_session(rig)
    change = SessionSave("c", held.epoch, state, 50, b"will", b"terms", b"flow")
    question = SessionSave("c", held.epoch, state, 50)
    rig.submit(SaveSessions("g", (change,)))
    written = rig.store.written
    told = rig.submit(SaveSessions("g", (question, question._replace(epoch=1))))
    assert told == [], "what it says is not durable yet"
    rig.sync()
    assert told == [SavedSessions((1,))]
    assert rig.store.written == written


def test_of_saves_of_one_session_the_last_one_counts_also_where_it_says_what_was_before() -> None:
    rig = Rig()
    held = open_session(rig, expiry_s=60)
    saves = [SessionSave("c", held.epoch, CONNECTED, expiry_s) for expiry_s in (60, 50, 60)]
    rig.ask(SaveSessions("g", tuple(saves)))
    entry = rig.restarted().state.sessions.get("c")
    assert entry is not None
    assert entry.expiry_s == 60


def test_an_owner_gives_back_what_it_was_never_told_it_has() -> None:
    rig = Rig()
    open_session(rig)
    assert save(rig, ANY_EPOCH, RELEASED, "h") == (0,), "another's"
    assert save(rig, ANY_EPOCH, RELEASED) == ()
    assert save(rig, ANY_EPOCH, RELEASED) == (0,)
    assert open_session(rig.restarted(), "h").state == RELEASED


def test_a_session_whose_owner_has_something_to_do_is_given_back_by_its_epoch_alone() -> None:
    rig = Rig()
    held = open_session(rig, will=b"will")
    save(rig, held.epoch, GONE)
    assert save(rig, ANY_EPOCH, RELEASED, will=b"none") == (0,)
    assert open_session(rig).will == b"will"


@pytest.mark.parametrize(
    "request_",
    [
        OpenSession("", "c", False, 0, b""),
        OpenSession("g", "", False, 0, b""),
        OpenSession("g", "c", False, -1, b""),
        KeepSessions("g", 0.0),
        WatchSessions("g", -1.0),
        WatchSessions("", 0.0),
        SaveSessions("", ()),
    ],
)
def test_requests_that_make_no_sense_are_refused_and_change_nothing(request_: Any) -> None:
    rig = Rig()
    before = rig.store.written
    answer = rig.ask(request_)
    assert isinstance(answer, InvalidRequest)
    assert rig.store.written == before


@pytest.mark.parametrize("state", [9, LOST])
def test_a_save_with_a_state_that_no_owner_can_say_is_refused(state: int) -> None:
    rig = Rig()
    held = open_session(rig)
    assert isinstance(rig.ask(SaveSessions("g", (SessionSave("c", held.epoch, state, 0),))), InvalidRequest)


ROOMY = {"segment_bytes": 1 << 25}


def test_saves_that_one_record_does_not_hold_are_several_and_all_are_kept() -> None:
    rig = Rig(**ROOMY)
    held = {client: open_session(rig, client=client).epoch for client in ("a", "b", "c")}
    flow = bytes(3 << 20)
    saves = tuple(SessionSave(client, epoch, RELEASED, 60, flow=flow) for client, epoch in held.items())
    assert rig.ask(SaveSessions("g", saves)) == SavedSessions(())
    after = rig.restarted()
    assert [open_session(after, "h", client).flow == flow for client in held] == [True] * 3


def test_a_save_that_no_record_holds_is_refused_and_nothing_beside_it_is_kept() -> None:
    rig = Rig(**ROOMY)
    held = {client: open_session(rig, client=client).epoch for client in ("a", "b")}
    written = rig.store.written
    saves = (SessionSave("a", held["a"], RELEASED, 60), SessionSave("b", held["b"], RELEASED, 60, flow=bytes(5 << 20)))
    assert isinstance(rig.ask(SaveSessions("g", saves)), TooLarge)
    assert rig.store.written == written


def test_a_dead_owner_may_leave_more_long_names_than_one_record_holds() -> None:
    rig = Rig(**ROOMY)
    clients = [f"{number:03d}" + "x" * 60_000 for number in range(80)]
    for client in clients:
        open_session(rig, client=client)
    alive(rig, "g", fresh=True)
    entries = [rig.state.sessions.get(client) for client in clients]
    assert [entry.state for entry in entries if entry is not None] == [RELEASED] * 80


def test_a_message_that_an_earlier_owner_sent_is_refused_when_it_arrives_late() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    old = open_session(rig)
    new = open_session(rig, "h", force=True)
    late = rig.ask(_once(old.generation, 1, epoch=old.epoch))
    assert late.refused[0].code == Fenced.code
    rig.ask(_once(new.generation, 1, epoch=new.epoch))
    assert rig.bodies("t:0") == [b"x"]


def test_a_broker_that_is_not_the_home_fences_earlier_epochs_off_for_good() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    assert rig.ask(FetchExchanges("c", 5, 9)) == Exchanges(())
    after = rig.restarted()
    assert after.ask(_once(5, 1, epoch=8)).refused[0].code == Fenced.code
    assert after.ask(_once(5, 1, epoch=9)).refused == ()


def test_a_late_release_of_an_earlier_gateway_frees_no_id_that_is_used_again() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    first = open_session(rig)
    second = open_session(rig, "h", force=True)
    rig.ask(_once(first.generation, 1))
    late = ReleaseExchanges("c", first.generation, (1,), epoch=first.epoch)
    assert rig.ask(late).code == Fenced.code
    rig.ask(_once(first.generation, 1))
    assert rig.bodies("t:0") == [b"x"]
    assert rig.ask(ReleaseExchanges("c", first.generation, (1,), epoch=second.epoch)) == Done()


def test_a_users_session_is_no_other_users_not_even_to_end_it() -> None:
    rig = Rig()
    held = open_session(rig, user="alice")
    for clean in (False, True):
        assert rig.ask(OpenSession("h", "c", clean, 60, b"", force=True, user="mallory")).code == Fenced.code
        assert rig.ask(OpenSession("h", "c", clean, 60, b"", force=True)).code == Fenced.code
    save(rig, held.epoch, RELEASED)
    after = rig.restarted()
    assert rig.state.sessions.get("c") is not None
    assert after.ask(OpenSession("h", "c", False, 60, b"", user="mallory")).code == Fenced.code
    assert open_session(after, user="alice").present
    entry = after.state.sessions.get("c")
    assert entry is not None
    assert entry.user == "alice"


def test_a_session_goes_to_another_user_only_as_a_new_one_and_only_from_the_user_that_was_named() -> None:
    rig = Rig()
    held = open_session(rig, user="mallory")
    save(rig, held.epoch, RELEASED, terms=b"t")
    for clean, instead_of in ((False, "mallory"), (True, "bob"), (True, "")):
        refused = OpenSession("h", "c", clean, 60, b"", user="alice", instead_of=instead_of)
        assert rig.ask(refused).code == Fenced.code
    found = open_session(rig, "h", clean=True, user="alice", instead_of="mallory")
    assert (found.present, found.ended) == (False, held.generation)
    entry = rig.state.sessions.get("c")
    assert entry is not None
    assert (entry.user, entry.terms) == ("alice", b"")
    assert rig.ask(OpenSession("g", "c", False, 60, b"", user="mallory")).code == Fenced.code


# ---------------------------------------------------------------- what an operator ends


def test_an_operator_ends_a_session_that_nobody_has_and_no_other() -> None:
    rig = Rig()
    assert rig.ask(CloseSession("c")).code == SessionNotFound.code
    held = open_session(rig)
    save(rig, held.epoch, RELEASED)
    assert rig.ask(CloseSession("c", held.epoch + 1)) == ClosedSession()
    assert rig.state.sessions.get("c") is not None
    assert rig.ask(CloseSession("c")) == ClosedSession()
    assert rig.state.sessions.get("c") is None
    assert rig.restarted().state.sessions.get("c") is None


def test_a_living_owner_is_called_upon_to_end_a_session() -> None:
    rig = Rig()
    alive(rig, "g")
    held = open_session(rig)
    answers = rig.submit(CloseSession("c"))
    assert rig.ask(WatchSessions("g", 0.0)) == SessionCalls((SessionCall("c", held.epoch, True, True),))
    assert answers == []
    assert rig.ask(EndSession("c", held.epoch)) == Done()
    assert answers == [ClosedSession(held.epoch)]
    again = open_session(rig)
    assert rig.ask(CloseSession("c", held.epoch, force=True)) == ClosedSession()
    entry = rig.state.sessions.get("c")
    assert entry is not None, "whoever came meanwhile has a session of its own"
    assert entry.epoch == again.epoch


def test_a_session_ends_also_where_its_owner_does_nothing_and_that_owner_hears_of_it() -> None:
    rig = Rig()
    live(rig, "g", "a")
    held = open_session(rig)
    answers = rig.submit(CloseSession("c"))
    rig.ask(WatchSessions("g", 0.0))
    pass_time(rig, HANDOVER_S)
    assert answers == [ClosedSession(held.epoch)]
    assert rig.ask(CloseSession("c", held.epoch, force=True)) == ClosedSession()
    assert rig.state.sessions.get("c") is None
    assert rig.ask(WatchSessions("g", 0.0)) == SessionCalls((SessionCall("c", held.epoch, True, True),))
    assert live(rig, "g", "a").is_over, "what it still has of the client is not stored"


def test_force_counts_only_when_the_owner_has_had_its_time() -> None:
    rig = Rig()
    alive(rig, "g")
    held = open_session(rig)
    assert rig.submit(CloseSession("c", held.epoch, force=True)) == []
    assert rig.state.sessions.get("c") is not None


def test_the_will_of_a_session_that_an_operator_ends_without_its_owner_is_anothers_duty() -> None:
    rig = Rig()
    alive(rig, "g")
    held = open_session(rig, will=b"will", expiry_s=NEVER_ENDS)
    rig.submit(CloseSession("c"))
    pass_time(rig, HANDOVER_S)
    assert rig.ask(CloseSession("c", held.epoch, force=True)) == ClosedSession()
    assert alive(rig, "h").clients == ("c",)
    claimed = open_session(rig, "h", claim=True)
    assert (claimed.present, claimed.ended, claimed.will) == (False, held.generation, b"will")


def test_an_anonymous_session_becomes_the_users_who_takes_it() -> None:
    rig = Rig()
    open_session(rig)
    assert open_session(rig, user="alice").present
    assert rig.ask(OpenSession("h", "c", False, 60, b"", force=True)).code == Fenced.code


# ---------------------------------------------------------------- epochs of gateways


def live(rig: Rig, owner: str, epoch: str) -> SessionDuties:
    answer = rig.ask(KeepSessions(owner, 30.0, False, epoch))
    assert isinstance(answer, SessionDuties)
    return answer


def publish(rig: Rig, epoch: str) -> Any:
    """What a gateway is answered that appends a message in this epoch."""
    tail = record_tail(b"t", encode_properties({MQTT_TOPIC: "t"}))
    return rig.ask(GivenRuns(1, [Run(tail, 1, 0, [epoch.encode()])], epoch))


def stored(rig: Rig) -> list[bytes]:
    return rig.bodies("t:0")


def rig_with_a_topic(**settings: Any) -> Rig:
    rig = Rig(**settings)
    rig.ask(CreateTopic("t", 1))
    return rig


def test_whoever_loses_a_session_that_it_has_not_let_go_of_stores_nothing_more_in_that_epoch() -> None:
    rig = rig_with_a_topic()
    live(rig, "g", "a")
    live(rig, "h", "b")
    open_session(rig, "g")
    assert isinstance(publish(rig, "a"), Appended)
    assert open_session(rig, "h", force=True).over == ("a",)
    assert isinstance(publish(rig, "a"), Fenced)
    assert isinstance(publish(rig, "b"), Appended)
    assert isinstance(publish(rig, ""), Appended), "an older gateway knows of no epochs"
    assert live(rig, "g", "a").is_over
    assert not live(rig, "g", "c").is_over
    assert isinstance(publish(rig, "c"), Appended)
    assert stored(rig) == [b"a", b"b", b"", b"c"]


def test_encoded_runs_of_an_epoch_that_is_over_are_refused_too() -> None:
    rig = rig_with_a_topic()
    rig.ask(EndGatewayEpochs(("a",)))
    tail = record_tail(b"t", encode_properties({MQTT_TOPIC: "t"}))
    assert isinstance(rig.ask(GivenRuns(1, [Run(tail, 1, 0, [b"x"])], "a").for_wire()), Fenced)
    assert isinstance(rig.ask(GivenRuns(1, [Run(tail, 1, 0, [b"y"])], "b").for_wire()), Appended)
    assert stored(rig) == [b"y"]


def test_whoever_lets_go_of_a_session_lives_on() -> None:
    rig = rig_with_a_topic()
    live(rig, "g", "a")
    for state in (RELEASED, GONE):
        held = open_session(rig, "g", force=True)
        save(rig, held.epoch, state)
        if state == RELEASED:
            assert open_session(rig, "h").over == ()
    assert isinstance(publish(rig, "a"), Appended)
    assert open_session(rig, "h", force=True).over == ("a",), "its will may not be stored yet"


def test_a_session_that_stays_where_it_is_ends_no_epoch() -> None:
    rig = rig_with_a_topic()
    live(rig, "g", "a")
    open_session(rig, "g")
    assert open_session(rig, "g").over == ()
    assert isinstance(publish(rig, "a"), Appended)


def test_who_falls_silent_has_lived_also_without_a_session() -> None:
    rig = rig_with_a_topic()
    live(rig, "g", "a")
    live(rig, "h", "b")
    rig.clock.now += 20
    live(rig, "h", "b")
    rig.clock.now += 20
    rig.dispatch.tick()
    assert isinstance(publish(rig, "a"), Fenced)
    assert isinstance(publish(rig, "b"), Appended)
    assert live(rig, "g", "a").is_over


def test_an_epoch_that_is_over_is_so_after_a_restart_and_who_falls_silent_over_one_as_well() -> None:
    rig = rig_with_a_topic(owner_lease_s=10.0)
    live(rig, "g", "a")
    live(rig, "h", "b")
    open_session(rig, "g")
    open_session(rig, "h", force=True)
    rig = rig.restarted()
    assert isinstance(publish(rig, "a"), Fenced)
    assert isinstance(publish(rig, "b"), Appended)
    rig.clock.now += 11
    rig.dispatch.tick()
    assert isinstance(publish(rig, "b"), Fenced)


def test_an_owner_that_begins_another_epoch_has_ended_the_one_before() -> None:
    rig = rig_with_a_topic()
    live(rig, "g", "a")
    live(rig, "g", "b")
    assert isinstance(publish(rig, "a"), Fenced)
    assert live(rig, "g", "a").is_over, "the process of the same name that came before"
    assert isinstance(publish(rig, "b"), Appended)


def test_also_an_owner_of_an_older_version_that_begins_anew_has_ended_the_epoch_before() -> None:
    rig = rig_with_a_topic()
    live(rig, "g", "a")
    rig.ask(KeepSessions("g", 30.0, False))
    assert isinstance(publish(rig, "a"), Appended)
    rig.ask(KeepSessions("g", 30.0, True))
    assert isinstance(publish(rig, "a"), Fenced)


def test_an_epoch_has_begun_when_that_is_durable_and_goes_on_without_a_record() -> None:
    rig = Rig()
    told = rig.submit(KeepSessions("g", 30.0, True, "a"))
    again = rig.submit(KeepSessions("g", 30.0, True, "a"))
    assert told == again == [], "whoever says it again hears no more than is durable"
    rig.sync()
    assert told == again == [SessionDuties(())]
    written = rig.store.written
    assert rig.submit(KeepSessions("g", 30.0, False, "a")) == [SessionDuties(())]
    assert rig.store.written == written


def test_an_owner_whose_epoch_cannot_begin_for_want_of_room_is_not_taken_for_dead() -> None:
    rig = Rig()
    live(rig, "g", "a")
    held = open_session(rig, "g")
    rig.ask(EndGatewayEpochs(("a",)))
    for _ in range(4):
        pass_time(rig, 20)
        rig.disk.fail("pwrite", ENOSPC)
        assert isinstance(rig.ask(KeepSessions("g", 30.0, False, "b")), StorageFull)
    live(rig, "g", "b")
    assert save(rig, held.epoch, CONNECTED) == ()


def test_whoever_opens_a_session_is_told_which_lives_have_ended_since() -> None:
    rig = Rig()
    for number, owner in enumerate("gh"):
        live(rig, owner, f"epoch {number}")
    open_session(rig, "g")
    assert open_session(rig, "h", force=True, heard="of nothing").over == ("epoch 0",)
    assert open_session(rig, "x", force=True, heard="epoch 0").over == ("epoch 1",)
    assert open_session(rig, "y", "d", heard="epoch 1").over == ()


def test_what_is_told_of_lives_is_durable_whatever_is_opened() -> None:
    rig = Rig()
    live(rig, "g", "a")
    open_session(rig, "g")
    for force in (False, True):
        rig.submit(OpenSession("h", "c", False, 60, b"", force=force))
        rig.clock.now += HANDOVER_S
    asked = OpenSession("h", "new", True, 0, b"")
    assert rig.submit(asked) == []
    rig.sync()
    assert rig.submit(OpenSession("h", "newer", True, 0, b"", heard="a")) != []


def test_another_broker_is_told_which_epochs_are_over_and_never_forgets() -> None:
    rig = rig_with_a_topic()
    told = rig.submit(EndGatewayEpochs(("a", "b")))
    assert told == []
    rig.sync()
    assert told == [Done()]
    written = rig.store.written
    assert rig.ask(EndGatewayEpochs(("b", "a"))) == Done()
    assert rig.store.written == written
    rig = rig.restarted()
    assert [type(publish(rig, epoch)) for epoch in "abc"] == [Fenced, Fenced, Appended]


@pytest.mark.parametrize(
    "request_",
    [
        EndGatewayEpochs(("",)),
        EndGatewayEpochs(("x" * 65,)),
        EndGatewayEpochs(("x",) * 1001),
        KeepSessions("g", 1.0, gateway_epoch="x" * 65),
    ],
)
def test_names_of_lives_have_limits(request_: Request) -> None:
    assert isinstance(Rig().ask(request_), InvalidRequest)


@pytest.mark.parametrize("claim", [False, True])
def test_what_an_earlier_process_of_a_name_has_left_ends_no_epoch_of_the_next(claim: bool) -> None:
    rig = rig_with_a_topic()
    rig.ask(KeepSessions("g", 30.0, True, "a"))
    open_session(rig, "g", will=b"will")
    rig.ask(KeepSessions("g", 30.0, True, "b"))
    open_session(rig, "h", claim=claim)
    assert isinstance(publish(rig, "a"), Fenced)
    assert isinstance(publish(rig, "b"), Appended)


@pytest.mark.parametrize("claim", [False, True])
@pytest.mark.parametrize("is_over", [False, True])
def test_what_an_earlier_process_has_left_is_nobodys_also_after_the_home_has_started_anew(
    claim: bool, is_over: bool
) -> None:
    rig = rig_with_a_topic()
    rig.ask(KeepSessions("g", 30.0, True, "a"))
    open_session(rig, "g", will=b"will")
    rig.ask(KeepSessions("g", 30.0, True, "b"))
    own = open_session(rig, "g", "d", will=b"will")
    if is_over:
        rig.ask(EndGatewayEpochs(("b",)))
        live(rig, "g", "b2")
    rig = rig.restarted()
    rig.dispatch.tick()
    assert live(rig, "h", "c").clients == ("c",)
    open_session(rig, "h", claim=claim)
    assert isinstance(publish(rig, "b2" if is_over else "b"), Appended)
    assert rig.ask(SaveSessions("g", (SessionSave("d", own.epoch, CONNECTED, 60),))) == SavedSessions(())


@pytest.mark.parametrize("state", [CONNECTED, GONE, RELEASED])
def test_an_earlier_process_of_a_name_has_nothing_of_what_it_had(state: int) -> None:
    rig = Rig()
    alive(rig, "g", fresh=True)
    held = open_session(rig, will=b"will")
    alive(rig, "g", fresh=True)
    assert save(rig, held.epoch, state) == (0,)
    assert alive(rig, "h").clients == ("c",)


def frozen(rig: Rig, state: int) -> OpenedSession:
    """A gateway "g" has a session with a will in this state, was taken for dead, and has begun another epoch, "c"."""
    live(rig, "g", "a")
    held = open_session(rig, "g", will=b"will")
    save(rig, held.epoch, state)
    rig.clock.now += 20
    live(rig, "h", "b")
    pass_time(rig, 11)
    assert live(rig, "g", "a").is_over
    assert live(rig, "g", "c").clients == ("c",)
    return held


@pytest.mark.parametrize("state", [CONNECTED, GONE])
def test_what_is_taken_from_whoever_has_not_asked_for_it_in_its_new_epoch_does_not_end_that(state: int) -> None:
    rig = rig_with_a_topic()
    held = frozen(rig, state)
    open_session(rig, "h", claim=True)
    assert isinstance(publish(rig, "c"), Appended)
    assert save(rig, held.epoch, state) == (0,)


@pytest.mark.parametrize("state", [CONNECTED, GONE])
def test_whoever_was_not_dead_goes_on_seeing_to_its_clients_and_their_wills(state: int) -> None:
    rig = rig_with_a_topic()
    held = frozen(rig, state)
    assert save(rig, held.epoch, state) == ()
    assert live(rig, "h", "b").clients == ()
    assert rig.submit(OpenSession("h", "c", False, 60, b"")) == [], "it is called first"
    assert isinstance(publish(rig, "c"), Appended)
    open_session(rig, "h", force=True)
    assert isinstance(publish(rig, "c"), Fenced)


def test_saves_that_no_segment_holds_together_are_several_and_one_that_none_holds_is_refused() -> None:
    rig = Rig()
    held = {client: open_session(rig, client=client).epoch for client in "abcdef"}
    flow = bytes(30_000)
    saves = tuple(SessionSave(client, epoch, RELEASED, 60, flow=flow) for client, epoch in held.items())
    assert rig.ask(SaveSessions("g", saves)) == SavedSessions(())
    after = rig.restarted()
    assert [open_session(after, "h", client).flow == flow for client in held] == [True] * 6
    epoch, written = open_session(after, "g", "new").epoch, after.store.written
    refused = after.ask(SaveSessions("g", (SessionSave("new", epoch, RELEASED, 60, flow=bytes(1 << 16)),)))
    assert isinstance(refused, TooLarge)
    assert after.store.written == written
