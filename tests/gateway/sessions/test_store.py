"""Finding the home of sessions, keeping the lease there, and being called upon."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from moving import gateway_at_moving_broker, move, tell
from pairs import entry_of, save_of, settle, two_gateways
from rig import Gateway

from gateway.mqtt.packets import Connack, Connect, Disconnect, Will
from gateway.mqtt.properties import Properties
from gateway.sessions.store import PART_BYTES_MAX, SAVES_BYTES_MAX
from penstock.errors import NotLeader, PenstockError, TooLarge, Unavailable
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.sessions import (
    CONNECTED,
    GONE,
    HOME_TOPIC,
    NO_WILL,
    RELEASED,
    EndSession,
    KeepSessions,
    OpenedSession,
    OpenSession,
    SaveSessions,
    SessionSave,
)
from penstock.protocol.wire import encode_reply, encode_request
from topicmap.queues import TopicMap, check_topic

LASTING = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}


def test_no_device_can_name_the_topic_of_the_home() -> None:
    check_topic(HOME_TOPIC)
    assert TopicMap().place(HOME_TOPIC).topic != HOME_TOPIC


@pytest.mark.mqtt("3.1.4-3", "4.13.1-1", old=("3.1.4-2",))
def test_a_client_that_goes_to_another_gateway_is_told_at_the_first_and_finds_its_session() -> None:
    one, other = two_gateways()
    first = one.connect("c", **LASTING)
    first.subscribe("t", qos=1)
    second = other.open(5)
    second.send(Connect("c", **LASTING))
    settle(one, other)
    assert first.got() == [Disconnect(0x8E)]
    assert second.got_one(Connack).session_present
    one.produce("t", b"x", qos=1)
    settle(one, other)
    assert second.payloads() == [b"x"]
    assert (len(one.sessions), len(other.sessions)) == (0, 1)


def test_a_session_that_is_handed_over_leaves_no_doubt_of_what_was_sent() -> None:
    one, other = two_gateways()
    for gateway in (one, one, other):
        client = gateway.open(5)
        client.send(Connect("c", **LASTING))
        settle(one, other)
        client.got_one(Connack)
        client.subscribe("t", qos=1)
        assert entry_of(one).doubtful_ms == 0


def test_a_session_without_expiry_is_taken_over_too() -> None:
    one, other = two_gateways()
    first = one.connect("c", level=5)
    second = other.open(5)
    second.send(Connect("c", clean_start=False, level=5))
    settle(one, other)
    assert first.got() == [Disconnect(0x8E)]
    assert not second.got_one(Connack).session_present


def test_a_gateway_that_does_not_answer_loses_the_session_after_a_second() -> None:
    one, other = two_gateways()
    one.connect("c", **LASTING).subscribe("t", qos=1)
    second = other.open(5)
    second.send(Connect("c", **LASTING))
    assert second.got() == []  # the first gateway hangs: it has no rounds
    other.pass_time(1.5)
    assert second.got_one(Connack).session_present
    assert entry_of(other).doubtful_ms > 0


def test_an_earlier_connection_does_not_get_the_session_behind_a_later_one() -> None:
    one, other = two_gateways()
    first = one.connect("c", **LASTING)
    other.broker.holds_replies = True
    earlier, later = other.open(5), other.open(5)
    earlier.send(Connect("c", **LASTING))  # waits until the first gateway lets go
    first.cut()
    later.send(Connect("c", **LASTING))  # is given it, before the earlier one hears that it may ask again
    other.broker.holds_replies = False
    settle(one, other)
    assert earlier.got_one(Connack).reason_code >= 0x80
    assert later.got_one(Connack).session_present
    entry, session = entry_of(other), other.sessions["c"]
    assert (entry.owner, entry.state, entry.epoch) == ("other", CONNECTED, session.epoch)


@pytest.mark.parametrize(("level", "code"), [(4, 3), (5, 0x88)])
def test_without_its_home_no_session_is_given(level: int, code: int) -> None:
    gateway = Gateway()
    gateway.broker.refuses[OpenSession] = Unavailable("away")
    client = gateway.open(level)
    client.send(Connect("c", level=level))
    assert client.got_one(Connack).reason_code == code
    assert client.is_closed
    del gateway.broker.refuses[OpenSession]
    gateway.connect("c", level=level)


def test_where_another_node_may_lead_the_home_a_client_waits_for_its_session_as_long_as_it_may() -> None:
    gateway = Gateway(connect_wait_s=5.0)
    gateway.connect("first", level=5)
    home = gateway.home.broker
    assert home is not None
    home.has_copies = True
    gateway.broker.refuses[OpenSession] = NotLeader("node b leads")
    early, gone, later = gateway.open(5), gateway.open(5), gateway.open(5)
    early.send(Connect("c", **LASTING))
    gone.send(Connect("gone", level=5))
    gateway.pass_time(2)
    assert (early.got(), gone.got()) == ([], [])
    gone.cut()
    later.send(Connect("c", **LASTING))
    gateway.pass_time(1)
    assert early.got_one(Connack).reason_code >= 0x80
    asked = len(gateway.broker.made(OpenSession))
    del gateway.broker.refuses[OpenSession]
    gateway.pass_time(1)
    assert later.got_one(Connack).reason_code == 0
    assert {one.client for one in gateway.broker.made(OpenSession)[asked:]} == {"c"}
    gateway.broker.refuses[OpenSession] = NotLeader("nobody leads")
    late = gateway.open(5)
    late.send(Connect("d", level=5))
    gateway.pass_time(10)
    assert late.got_one(Connack).reason_code == 0x88


def test_a_client_whose_session_is_not_to_be_had_in_time_is_told_so() -> None:
    gateway = Gateway(has_brokers=False, connect_wait_s=3.0)
    client = gateway.open(5)
    client.send(Connect("c", level=5))
    gateway.pass_time(5)
    assert client.got_one(Connack).reason_code == 0x88
    assert gateway.connections.half_open == 0


# ---------------------------------------------------------------- a beginning that goes wrong


def test_no_session_is_asked_for_before_the_home_has_heard_of_the_fresh_start() -> None:
    gateway = Gateway()
    gateway.broker.refuses[KeepSessions] = Unavailable("away")
    gateway.pass_time(1)
    early = gateway.open(5)
    early.send(Connect("c", will=Will("w", b"dead", 1), **LASTING))
    gateway.pass_time(1)
    assert (early.got(), gateway.broker.made(OpenSession)) == ([], [])
    del gateway.broker.refuses[KeepSessions]
    gateway.pass_time(12)
    assert early.got_one(Connack).reason_code == 0
    early.subscribe("t", qos=1)  # its session is its own still
    assert gateway.broker.bodies() == []


def test_what_waits_for_the_home_is_one_opening_for_each_connection_that_is_there() -> None:
    gateway = Gateway(has_brokers=False)
    for number in range(20):
        gone = gateway.open()
        gone.send(Connect(f"gone {number}"))
        gone.cut()
    late = gateway.open(5)
    late.send(Connect("late", level=5))
    gateway.pass_time(8)
    earlier, later = gateway.open(5), gateway.open(5)
    for client in (earlier, later):
        client.send(Connect("c", level=5))
    assert earlier.got_one(Connack).reason_code == 0x88
    gateway.pass_time(4)
    assert late.got_one(Connack).reason_code == 0x88
    gateway.broker.has_brokers = True
    gateway.pass_time(1)
    assert later.got_one(Connack).reason_code == 0
    assert [asked.client for asked in gateway.broker.made(OpenSession)] == ["c"]


# ---------------------------------------------------------------- what the home did not hear

WILL = Will("w", b"dead", 1)
PASSING = {"level": 5}


def away(unknown: bool = False) -> Unavailable:
    error = Unavailable("away")
    error.unknown = unknown
    return error


def lose(gateway: Gateway, *kinds: type[Request]) -> None:
    """The home is away for requests of these kinds."""
    gateway.broker.refuses = dict.fromkeys(kinds, away())


def lose_opening(gateway: Gateway, **asked: Any) -> None:
    """A client's session is opened, but the link breaks before anybody hears of it."""
    gateway.broker.holds = (OpenSession,)
    client = gateway.open(5)
    client.send(Connect("c", will=WILL, **asked))
    gateway.broker.lose_kept_back(away(unknown=True))
    gateway.round()
    assert client.got_one(Connack).reason_code == 0x88


@pytest.mark.mqtt("3.1.2-10", old=("3.1.2-10",))
@pytest.mark.parametrize("returns_after_s", [0, 400])
@pytest.mark.parametrize(("asked", "kept"), [(LASTING, 1), (PASSING, 0)])
def test_a_client_that_takes_leave_while_the_home_is_away_has_left(
    asked: dict[str, Any], kept: int, returns_after_s: int
) -> None:
    gateway = Gateway()
    client = gateway.connect("c", will=WILL, **{**asked, "properties": Properties(session_expiry_interval=1000 * kept)})
    lose(gateway, SaveSessions, EndSession)
    client.send(Disconnect(0))
    gateway.pass_time(2)
    lose(gateway)
    gateway.pass_time(returns_after_s)
    if returns_after_s:
        assert len(gateway.broker.state.sessions) == kept
        assert gateway.broker.state.sessions.owners == []
    back = gateway.open(5)
    back.send(Connect("c", level=5, clean_start=False))
    assert back.got_one(Connack).session_present is bool(kept)
    assert gateway.broker.bodies() == []


def test_a_client_is_not_let_in_before_the_home_has_heard_that_it_left() -> None:
    gateway = Gateway()
    client = gateway.connect("c", will=WILL, **LASTING)
    lose(gateway, SaveSessions)
    client.send(Disconnect(0))
    early = gateway.open(5)
    early.send(Connect("c", **LASTING))
    assert early.got_one(Connack).reason_code == 0x88
    lose(gateway)
    gateway.connect("c", **LASTING)
    gateway.pass_time(5)
    assert entry_of(gateway).state == CONNECTED
    assert gateway.broker.bodies() == []


def test_what_was_not_heard_of_a_session_is_void_when_another_gateway_has_it() -> None:
    one, other = two_gateways()
    client = one.connect("c", **LASTING)
    lose(one, SaveSessions)
    client.send(Disconnect(0))
    lose(one)
    one.broker.leave_alone("one")
    second = other.connect("c", **LASTING)
    one.pass_time(5)
    second.subscribe("t", qos=1)
    assert second.got() == []
    saves = len(one.broker.made(SaveSessions))
    one.pass_time(5)
    assert len(one.broker.made(SaveSessions)) == saves


@pytest.mark.mqtt("3.1.2-8", old=("3.1.2-8",))
@pytest.mark.parametrize("returns_after_s", [0, 400])
@pytest.mark.parametrize("asked", [LASTING, PASSING])
def test_a_session_that_was_opened_without_anybodys_knowing_is_released(
    asked: dict[str, Any], returns_after_s: int
) -> None:
    gateway = Gateway()
    lose_opening(gateway, **asked)
    gateway.pass_time(returns_after_s)
    if returns_after_s:
        assert len(gateway.broker.state.sessions) == 0
    back = gateway.connect("c", **asked)
    gateway.pass_time(5)
    assert not back.is_closed
    assert entry_of(gateway).state == CONNECTED
    assert gateway.broker.bodies() == []


def test_an_opening_that_was_lost_on_its_way_does_not_take_the_will_of_the_session_with_it() -> None:
    gateway = Gateway()
    delayed = Will("w", b"gone", 1, properties=Properties(will_delay_interval=10))
    client = gateway.connect("c", will=delayed, **LASTING)
    lose(gateway, SaveSessions)
    client.cut()
    gateway.broker.refuses[OpenSession] = away(unknown=True)
    del gateway.broker.refuses[SaveSessions]
    gateway.open(5).send(Connect("c", **LASTING))
    lose(gateway)
    gateway.pass_time(20)
    assert gateway.broker.bodies() == [b"gone"]


# ---------------------------------------------------------------- what is too large


def save_all(gateway: Gateway, *saves: SessionSave) -> list[bool | PenstockError]:
    outcomes: list[bool | PenstockError] = []
    for save in saves:
        gateway.home.save(save, outcomes.append)
    gateway.rounds.begin()
    gateway.round()
    return outcomes


def test_large_saves_of_a_round_are_several_requests_that_the_wire_can_hold() -> None:
    gateway = Gateway()
    flow = bytes(SAVES_BYTES_MAX // 3)
    for number in range(5):
        gateway.connect(f"c{number}", **LASTING)
    before = len(gateway.broker.made(SaveSessions))
    assert save_all(gateway, *[save_of(gateway, f"c{number}", flow=flow) for number in range(5)]) == [True] * 5
    requests = gateway.broker.made(SaveSessions)[before:]
    assert [len(request.saves) for request in requests] == [2, 2, 1]
    for request in requests:
        encode_request(1, request)


def test_the_largest_session_that_is_kept_can_be_handed_out_again() -> None:
    gateway = Gateway()
    gateway.connect("c", **LASTING)
    part, will = bytes(PART_BYTES_MAX), bytes(gateway.settings.connect_packet_bytes_max)
    largest = save_of(gateway, "c", part, part)._replace(will=will)
    assert save_all(gateway, largest) == [True]
    encode_request(1, gateway.broker.made(SaveSessions)[-1])
    encode_reply(1, OpenedSession(1, 1, True, will=will, terms=part, flow=part))


@pytest.mark.parametrize("part", ["terms", "flow"])
def test_a_save_that_is_too_large_even_alone_is_refused_without_the_others(part: str) -> None:
    gateway = Gateway()
    for client in ("a", "b", "c"):
        gateway.connect(client, **LASTING)
    large = save_of(gateway, "b")._replace(**{part: bytes(PART_BYTES_MAX + 1)})
    outcomes = save_all(gateway, save_of(gateway, "a"), large, save_of(gateway, "c"))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["TooLarge", "bool", "bool"]
    assert gateway.home.unanswered == 0


def test_a_last_word_that_is_too_large_is_said_without_what_it_keeps() -> None:
    gateway = Gateway()
    gateway.connect("c", **LASTING)
    save_all(gateway, save_of(gateway, "c", b"terms", b"flow"))
    gateway.home.let_go(save_of(gateway, "c", b"new", bytes(PART_BYTES_MAX + 1))._replace(state=RELEASED))
    gateway.pass_time(1)
    entry = entry_of(gateway)
    assert (entry.state, entry.terms, entry.flow) == (RELEASED, b"terms", b"flow")


@pytest.mark.parametrize("is_missed_first", [False, True])
def test_a_last_word_that_the_home_refuses_for_good_is_said_once_more_without_what_it_keeps(
    is_missed_first: bool,
) -> None:
    gateway = Gateway()
    client = gateway.connect("c", **LASTING)
    client.subscribe("t", qos=1)
    before = len(gateway.broker.made(SaveSessions))
    gateway.broker.refuses[SaveSessions] = away() if is_missed_first else TooLarge("of an older home")
    client.send(Disconnect(0))
    gateway.broker.refuses[SaveSessions] = TooLarge("of an older home")
    gateway.pass_time(5)
    said = [request.saves for request in gateway.broker.made(SaveSessions)[before:]]
    assert [bool(word.flow) for [word] in said] == [True, *([True] if is_missed_first else []), False]


@pytest.mark.parametrize("is_missed_first", [False, True])
def test_a_last_word_for_which_the_home_has_no_room_is_said_without_what_it_keeps(is_missed_first: bool) -> None:
    gateway = Gateway()
    client = gateway.connect("c", will=Will("w", b"dead", 1), **LASTING)
    save_all(gateway, save_of(gateway, "c", b"terms", b"flow"))
    gateway.broker.limit_sessions(1)
    if is_missed_first:
        lose(gateway, SaveSessions)
    word = save_of(gateway, "c", flow=bytes(100))._replace(state=RELEASED, will=NO_WILL)
    gateway.home.let_go(word)
    gateway.home.flush()
    if is_missed_first:
        lose(gateway)
    gateway.pass_time(2)
    entry = entry_of(gateway)
    assert (entry.state, entry.will, entry.terms, entry.flow) == (RELEASED, NO_WILL, b"terms", b"flow")
    assert (gateway.home._unheard, gateway.home.refused, client.is_closed) == ({}, 1, False)


def test_a_client_is_let_in_at_once_behind_a_last_word_for_which_there_is_no_room() -> None:
    gateway = Gateway()
    client = gateway.connect("c", **LASTING)
    client.subscribe("t", qos=1)
    gateway.pass_time(1)
    gateway.broker.refuses[SaveSessions] = away()
    gateway.produce("t", b"x", qos=1)
    client.cut()
    gateway.broker.limit_sessions(1)
    del gateway.broker.refuses[SaveSessions]
    again = gateway.connect("c", **LASTING)
    gateway.round()
    assert again.payloads() == [b"x"]


def test_a_session_is_given_back_also_where_there_is_no_room_any_more_for_its_will() -> None:
    gateway = Gateway()
    gateway.connect("c", **LASTING)
    gateway.broker.limit_sessions(1)
    gateway.home.let_go(save_of(gateway, "c")._replace(state=GONE, will=b"will"))
    gateway.pass_time(1)
    entry = entry_of(gateway)
    assert (entry.state, entry.will) == (GONE, NO_WILL)


def test_what_was_not_heard_is_said_again_in_requests_that_the_wire_can_hold() -> None:
    gateway = Gateway()
    for number in range(5):
        gateway.connect(f"c{number}", **LASTING)
    lose(gateway, SaveSessions)
    for number in range(5):
        flow = bytes(SAVES_BYTES_MAX // 3)
        gateway.home.let_go(save_of(gateway, f"c{number}", flow=flow)._replace(state=RELEASED))
    gateway.rounds.begin()
    gateway.round()
    lose(gateway)
    before = len(gateway.broker.made(SaveSessions))
    gateway.pass_time(5)
    assert [len(request.saves) for request in gateway.broker.made(SaveSessions)[before:]] == [2, 2, 1]


def test_a_home_that_comes_back_at_another_address_opens_and_keeps_sessions_there() -> None:
    gateway = gateway_at_moving_broker()
    client = gateway.connect("c", **LASTING)
    client.subscribe("t", qos=2)
    client.cut()
    move(gateway)
    gateway.pass_time(1.0)
    waits = gateway.open(5)
    waits.send(Connect("d", **LASTING))
    tell(gateway)
    assert waits.got_one(Connack).reason_code == 0x88
    again = gateway.open(5)
    again.send(Connect("c", **LASTING))
    assert again.got_one(Connack).session_present
    gateway.produce("t", b"x", qos=2)
    gateway.pass_time(1.0)
    assert again.payloads() == [b"x"], "a QoS 2 message leaves when its session is saved"
    saved = len(gateway.broker.made(KeepSessions))
    gateway.pass_time(gateway.settings.session_lease_s)
    assert len(gateway.broker.made(KeepSessions)) > saved


def test_a_home_that_has_another_name_at_the_same_address_is_found() -> None:
    gateway = gateway_at_moving_broker()
    client = gateway.connect("c", **LASTING)
    gateway.broker.name = "renamed"
    tell(gateway)
    gateway.pass_time(5)
    gateway.connect("d", **LASTING)
    assert client.subscribe("t", qos=1).reason_codes == (1,)
    gateway.produce("t", b"x", qos=1)
    gateway.pass_time(1)
    assert client.payloads() == [b"x"]


def test_who_asks_and_gets_no_answer_asks_again() -> None:
    one, other = two_gateways()
    first = one.connect("c", level=5)
    other.pass_time(one.settings.session_lease_s + 2)
    other.connect("c", level=5)
    one.broker.refuses = {SaveSessions: Unavailable("away")}
    one.pass_time(1)
    assert not first.is_closed
    one.broker.refuses = {}
    one.pass_time(1)
    assert first.is_closed


def test_last_words_that_were_not_heard_are_said_again_in_their_order() -> None:
    gateway = Gateway()
    gateway.connect("c", **LASTING)
    epoch = entry_of(gateway).epoch
    lose(gateway, SaveSessions)
    for state in (GONE, RELEASED):
        gateway.home.let_go(SessionSave("c", epoch, state, 100))
        gateway.round()
    lose(gateway)
    gateway.pass_time(0.5)
    assert entry_of(gateway).state == GONE
    gateway.pass_time(0.5)
    assert entry_of(gateway).state == RELEASED


def test_nothing_of_an_opening_is_left_to_the_garbage_collector() -> None:
    gateway = Gateway()

    class Guest:
        def __call__(self, outcome: Any) -> None:
            """It may have megabytes of a packet by then."""

    gateway.pass_time(1)
    guest = Guest()
    there = weakref.ref(guest)
    gc.disable()
    try:
        gateway.home.open("c", "", True, 0, b"", guest)
        del guest
        gateway.round()
        gateway.broker.requests.clear()
        assert there() is None
    finally:
        gc.enable()
