"""A gateway that stood still while others got its clients: nothing of theirs is stored late, all else goes on."""

from __future__ import annotations

from typing import Any

import pytest
from pairs import two_gateways
from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Pubrec, Will
from gateway.mqtt.properties import Properties
from gateway.sessions.session_state import Will as Left
from penstock.errors import Unavailable, UnknownRequest
from penstock.protocol.message import NEVER
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import QueryRoute
from penstock.protocol.requests.sessions import (
    ANY_EPOCH,
    GONE,
    EndGatewayEpochs,
    EndSession,
    KeepSessions,
    OpenSession,
    SaveSessions,
    SessionSave,
    WatchSessions,
)

LASTING: dict[str, Any] = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
BRIEF: dict[str, Any] = {"level": 5}


def two() -> tuple[Gateway, Gateway]:
    """The same; the first hears no calls: it stands still for as long as nobody gives it a round."""
    one, other = two_gateways()
    one.broker.ignore(WatchSessions)
    return one, other


def take_over(other: Gateway, client_id: str = "c", **asked: Any) -> Client:
    """The client comes to the other gateway, which gets its session when the first has not answered for a second."""
    again = other.open(5)
    again.send(Connect(client_id, **asked))
    other.pass_time(1.5)
    again.got_one(Connack)
    return again


def delayed(delay_s: int) -> Will:
    return Will("w", b"offline", 1, properties=Properties(will_delay_interval=delay_s))


def hold_calls(gateway: Gateway) -> list[Result]:
    """What a gateway is told by its watch does not reach it, but this list."""
    return gateway.broker.divert(gateway.watch.answered)


def published(gateway: Gateway) -> list[bytes]:
    """Bodies of what devices have published."""
    return gateway.broker.bodies()


@pytest.mark.parametrize("asked", [LASTING, BRIEF], ids=["lasting", "brief"])
@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_frozen_gateway_has_of_a_client_that_went_elsewhere_is_not_stored(
    asked: dict[str, Any], qos: int
) -> None:
    one, other = two()
    first = one.connect("c", **asked)
    take_over(other, **asked).publish("t", b"new", 1, retain=True, packet_id=1)
    first.publish("t", b"old", qos, retain=True, packet_id=qos)
    assert published(one) == [b"new"]
    assert first.got() == [Disconnect(0x8E)]
    assert one.upstream.unanswered == 0
    assert one.upstream.dropped == 1


def test_what_a_gateway_has_of_its_other_clients_is_stored_in_its_order_once_it_knows_that_they_are_its_own() -> None:
    one, other = two()
    first, staying = one.connect("c", **BRIEF), one.connect("d", **LASTING)
    take_over(other, **BRIEF)
    broker = one.broker
    broker.holds = (AppendRuns, KeepSessions)
    first.publish("t", b"late", 1, packet_id=1)
    staying.publish("t", b"1", 1, packet_id=1)
    staying.publish("t", b"2")
    broker.let_first_go()  # the first batch is refused, which is news; more comes meanwhile
    one.round()
    assert one.upstream.is_held
    staying.publish("t", b"3")
    staying.publish("t", b"4", 1, packet_id=2)
    one.upstream.retry()
    one.round()
    assert (published(one), staying.got()) == ([], [])
    broker.let_go()
    one.round()
    assert published(one) == [b"1", b"2", b"3", b"4"]
    assert len(broker.made(AppendRuns)) == 3 + 3, "what came meanwhile leaves together"
    assert staying.got() == [Puback(1), Puback(2)]
    assert first.is_closed
    staying.publish("t", b"5", 1, packet_id=3)
    assert staying.got() == [Puback(3)]


def test_a_batch_that_grows_too_large_meanwhile_waits_as_well_and_keeps_its_place() -> None:
    one, other = two()
    one.connect("c", **BRIEF)
    staying = one.connect("d", **BRIEF)
    take_over(other, **BRIEF)
    one.broker.holds = (KeepSessions,)
    one.upstream._append_bytes_max = 100
    for number in range(5):
        staying.publish("t", b"%d" % number)
    assert published(one) == []
    assert len(one.broker.made(AppendRuns)) == 1, "what is refused anyway is not sent"
    one.broker.let_go()
    one.round()
    assert published(one) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_gateway_that_publishes_nothing_hears_it_with_the_renewal_of_its_lease() -> None:
    one, other = two()
    first, staying = one.connect("c", **BRIEF), one.connect("d", **BRIEF)
    take_over(other, **BRIEF)
    one.pass_time(one.settings.session_lease_s / 3)
    assert first.got() == [Disconnect(0x8E)]
    assert staying.got() == []


def test_questions_whose_answers_are_lost_are_asked_again_and_nothing_leaves_before() -> None:
    one, other = two()
    first, staying = one.connect("c", **BRIEF), one.connect("d", **BRIEF)
    take_over(other, **BRIEF)
    one.broker.refuses = {SaveSessions: Unavailable("away")}
    staying.publish("t", b"x", 1, packet_id=1)
    one.pass_time(2)
    assert (published(one), first.is_closed) == ([], False)
    one.broker.refuses = {}
    one.pass_time(0.5)
    assert (published(one), first.is_closed) == ([b"x"], True)


def test_a_session_that_ends_while_it_is_asked_about_is_asked_about_no_more() -> None:
    one, other = two()
    one.connect("c", **BRIEF)
    leaving = one.connect("d", **LASTING, will=delayed(50))
    staying = one.connect("e", **BRIEF)
    take_over(other, **BRIEF)
    one.broker.refuses = {SaveSessions: Unavailable("away")}
    staying.publish("t", b"x", 1, packet_id=1)
    leaving.cut()
    one.broker.refuses = {}
    one.pass_time(1)
    assert published(one) == [b"x"]
    entry = one.broker.state.sessions.get("d")
    assert entry is not None
    assert (entry.owner, entry.state) == ("one", GONE)


def test_a_second_doubt_asks_anew_and_waits_for_its_own_answers() -> None:
    one, _ = two()
    staying = one.connect("d", **BRIEF)
    one.broker.holds = (SaveSessions,)
    one.lease_recovery.doubt()
    one.round()
    one.broker.holds = (KeepSessions,)
    one.lease_recovery.doubt()
    one.round()
    staying.publish("t", b"x", 1, packet_id=1)
    one.broker.let_first_go()
    one.round()
    assert (len(one.broker.kept_back), one.upstream.is_held, published(one)) == (1, True, [])
    one.broker.let_go()
    one.round()
    assert (published(one), staying.got()) == ([b"x"], [Puback(1)])


def test_answers_to_an_earlier_doubt_count_no_more() -> None:
    one, _ = two()
    one.connect("d", **BRIEF)
    one.broker.holds = (SaveSessions,)
    for _ in range(2):
        one.lease_recovery.doubt()
        one.round()
    one.broker.let_first_go()
    one.round()
    assert one.upstream.is_held
    one.broker.let_go()
    one.round()
    assert not one.upstream.is_held


def test_what_the_home_says_of_an_earlier_epoch_begins_none() -> None:
    one, _ = two()
    one.connect("d", **BRIEF)
    one.broker.holds = (KeepSessions,)
    one.pass_time(one.settings.session_lease_s / 3)
    one.lease_recovery.doubt()
    one.round()
    one.broker.let_first_go()
    one.round()
    assert one.upstream.is_held
    one.broker.let_go()
    one.round()
    assert not one.upstream.is_held


def test_an_epoch_of_which_the_home_has_not_heard_is_told_again_at_once() -> None:
    one, other = two()
    one.connect("c", **BRIEF)
    staying = one.connect("d", **BRIEF)
    take_over(other, **BRIEF)
    one.broker.refuses = {KeepSessions: Unavailable("away")}
    staying.publish("t", b"x", 1, packet_id=1)
    assert one.upstream.is_held
    one.broker.refuses = {}
    one.pass_time(0.5)
    assert published(one) == [b"x"]


def test_an_epoch_that_ends_as_it_begins_is_followed_by_another() -> None:
    one, other = two()
    first, second, staying = [one.connect(name, **BRIEF) for name in "cde"]
    take_over(other, "c", **BRIEF)
    one.broker.holds = (KeepSessions,)
    staying.publish("t", b"x", 1, packet_id=1)
    take_over(other, "d", **BRIEF)
    one.broker.lose_kept_back(Unavailable("away"))
    one.pass_time(1)
    assert published(one) == [b"x"]
    assert (first.is_closed, second.is_closed, staying.got()) == (True, True, [Puback(1)])


def test_a_session_that_is_lost_after_the_new_epoch_has_begun_ends_that_one() -> None:
    one, other = two()
    first, second, staying = [one.connect(name, **BRIEF) for name in "cde"]
    take_over(other, "c", **BRIEF)
    one.broker.holds = (SaveSessions,)
    staying.publish("t", b"x", 1, packet_id=1)
    take_over(other, "d", **BRIEF)
    one.broker.let_go()
    one.round()
    second.publish("t", b"late", 1, packet_id=1)
    assert published(one) == [b"x"]
    assert (first.is_closed, second.is_closed, staying.got()) == (True, True, [Puback(1)])


def test_a_batch_of_an_earlier_epoch_that_is_refused_late_still_goes_before_what_came_after_it() -> None:
    one, other = two()
    one.connect("c", **BRIEF)
    slow, quick = one.connect("d", **BRIEF), one.connect("e", **BRIEF)
    take_over(other, **BRIEF)
    one.broker.holds = (AppendRuns,)
    slow.publish("t", b"1", 1, packet_id=1)
    one.lease_recovery.doubt()
    one.round()
    assert not one.upstream.is_held
    slow.publish("t", b"2", 2, packet_id=2)
    quick.publish("t", b"other", 1, packet_id=1)
    assert len(one.broker.made(AppendRuns)) == 1, "what is behind it waits for its answer"
    one.broker.let_go()
    one.round()
    assert published(one) == [b"1", b"2", b"other"]
    assert (slow.got(), quick.got(), slow.is_closed) == ([Puback(1), Pubrec(2)], [Puback(1)], False)


def test_it_goes_on_however_the_last_doubt_came_to_its_end() -> None:
    one, _ = two()
    client = one.connect("c", **BRIEF)
    word = SessionSave("d", ANY_EPOCH, GONE, 0)
    one.home._unheard["d"] = {word: lambda: pytest.fail("nobody has said that it is another's")}
    one.lease_recovery.doubt()
    one.round()
    client.publish("t", b"x", 1, packet_id=1)
    assert (one.upstream.is_held, one.home.is_unsure) == (True, True)
    one.home._unheard.clear()  # an opening of the session does so, when its client is back
    one.pass_time(1)
    assert (one.upstream.is_held, client.got()) == (False, [Puback(1)])


def test_what_comes_of_a_lost_session_while_it_is_asked_about_is_not_stored_either() -> None:
    one, other = two()
    first, staying = one.connect("c", **BRIEF), one.connect("d", **BRIEF)
    take_over(other, **BRIEF)
    one.broker.holds = (KeepSessions,)
    staying.publish("t", b"1", 1, packet_id=1)
    first.publish("t", b"late")
    one.broker.holds = (KeepSessions, QueryRoute)
    first.publish("a-topic-that-is-looked-up", b"late")
    staying.publish("another", b"2")
    one.broker.let_first_go()
    one.round()
    assert (one.upstream.is_held, published(one)) == (False, [b"1"])
    one.broker.let_go()
    one.round()
    assert sorted(published(one)) == [b"1", b"2"]
    assert (one.upstream.dropped, first.is_closed) == (2, True)


@pytest.mark.parametrize("asked", [LASTING, BRIEF], ids=["lasting", "brief"])
def test_the_will_of_a_client_that_went_elsewhere_is_not_stored_late(asked: dict[str, Any]) -> None:
    one, other = two()
    will = Will("w", b"offline", 1, True)
    first, staying = one.connect("c", will=will, **asked), one.connect("d", will=Will("w", b"d", 1), **BRIEF)
    take_over(other, will=will, **asked).publish("w", b"online", 1, retain=True, packet_id=1)
    before = published(one)
    assert before[-1] == b"online"
    first.cut()
    staying.cut()
    one.pass_time(2)
    assert published(one) == [*before, b"d"]
    assert not one.wills._kept_bytes
    assert not one.wills._storing


@pytest.mark.parametrize("asked", [LASTING, BRIEF], ids=["lasting", "brief"])
def test_a_call_that_is_heard_too_late_brings_no_will(asked: dict[str, Any]) -> None:
    one, other = two_gateways()
    will = Will("w", b"offline", 1, True)
    first = one.connect("c", will=will, **asked)
    calls = hold_calls(one)
    take_over(other, will=will, **asked).publish("w", b"online", 1, retain=True, packet_id=1)
    before = published(one)
    assert before[-1] == b"online"
    assert not first.is_closed
    one.watch.answered(calls.pop())
    one.round()
    assert first.is_closed
    one.pass_time(2)
    assert first.got() == [Disconnect(0x8E)]
    assert published(one) == before
    assert not one.wills._kept_bytes


def test_the_will_of_a_session_that_was_ended_elsewhere_is_stored_once() -> None:
    one, other = two_gateways()
    one.connect("c", will=delayed(50), **LASTING).cut()
    calls = hold_calls(one)
    take_over(other, **LASTING | {"clean_start": True}).publish("w", b"online", 1, packet_id=1)
    one.watch.answered(calls.pop())
    one.round()
    one.pass_time(2)
    assert published(one) == [b"offline", b"online"]


def test_a_will_that_was_due_as_the_gateway_froze_is_not_stored_late() -> None:
    one, other = two()
    one.connect("c", will=delayed(2), **LASTING).cut()
    one.upstream.hold()
    one.pass_time(3)
    assert not one.wills._waiting
    take_over(other, **LASTING).publish("w", b"online", 1, packet_id=1)
    one.lease_recovery.doubt()
    one.pass_time(2)
    assert published(one) == [b"offline", b"online"], "the other gateway has published it, first"


def test_the_will_of_a_dead_gateways_client_is_not_stored_late_either() -> None:
    one, other = two_gateways()
    dead = Gateway(beside=one, name="dead")
    dead.pass_time(1)
    asked = LASTING | {"properties": Properties(session_expiry_interval=1)}
    dead.connect("c", will=delayed(50), **asked).cut()
    one.upstream.hold()
    one.lease_recovery._is_beginning = True  # or it would go on with the next tick
    one.broker.leave_alone("dead")
    one.pass_time(one.settings.session_lease_s / 3 + 1)
    assert one.wills._storing
    one.broker.silent.add(WatchSessions)
    hold_calls(one)
    take_over(other, **LASTING).publish("w", b"online", 1, packet_id=1)
    before = published(one)
    one.lease_recovery._is_beginning = False
    one.lease_recovery.doubt()
    one.pass_time(2)
    assert published(one) == before


def test_a_will_of_which_nobody_knows_whether_it_is_stored_is_given_up_with_its_session() -> None:
    one, other = two()
    first = one.connect("c", will=Will("w", b"offline", 1), **LASTING)
    lost = Unavailable("the connection was lost")
    lost.unknown = True
    one.broker.refuses = {AppendRuns: lost}
    first.cut()
    one.broker.refuses = {}
    take_over(other, **LASTING).publish("w", b"online", 1, packet_id=1)
    before = published(one)
    one.lease_recovery.doubt()
    one.round()
    one.pass_time(2)
    assert published(one) == before
    assert not one.wills._kept_bytes


def test_a_will_that_is_being_stored_as_its_gateway_is_taken_for_dead_is_stored_once() -> None:
    one, other = two_gateways()
    first = one.connect("c", will=Will("w", b"offline", 1), **LASTING)
    one.upstream.hold()
    first.cut()
    one.broker.leave_alone("one")
    one.broker.pass_time()
    one.lease_recovery.doubt()
    one.round()
    assert published(one) == [b"offline"]
    for gateway in (one, other):
        gateway.pass_time(gateway.settings.session_lease_s / 3 + 1)
    assert published(one) == [b"offline"]
    assert one.lease.epoch not in one.broker.state.gateway_epochs.over


def test_a_will_that_is_stored_after_all_is_counted_once() -> None:
    one, _ = two()
    one.broker.holds = (AppendRuns,)
    on_lost = one.wills.publish("c", Left("w", b"x", 1, False, 0, NEVER, b""))
    one.round()
    on_lost()
    one.broker.let_go()
    one.round()
    on_lost()
    assert one.wills._kept_bytes == 0


@pytest.mark.parametrize("asked", [LASTING, BRIEF], ids=["lasting", "brief"])
def test_a_will_whose_last_word_the_home_did_not_hear_is_not_stored_late(asked: dict[str, Any]) -> None:
    one, other = two()
    will = Will("w", b"offline", 1, True)
    one.connect("c", will=will, **asked)
    gone = Unavailable("away")
    one.broker.refuses = dict.fromkeys((SaveSessions, EndSession, OpenSession, AppendRuns), gone)
    one.open(5).send(Connect("c", will=will, **asked))
    one.broker.refuses = {}
    take_over(other, will=will, **asked).publish("w", b"online", 1, retain=True, packet_id=1)
    before = published(one)
    assert before == [b"offline", b"online"]
    one.broker.refuses = {SaveSessions: gone}
    one.pass_time(2)
    assert (published(one), one.upstream.is_held) == (before, True)
    one.broker.refuses = {}
    one.pass_time(2)
    assert published(one) == before
    assert not one.wills._kept_bytes
    assert not one.upstream.is_held


@pytest.mark.parametrize("asked", [LASTING, BRIEF], ids=["lasting", "brief"])
def test_a_will_is_stored_also_where_the_home_has_heard_the_last_word_and_its_answer_was_lost(
    asked: dict[str, Any],
) -> None:
    one, _ = two_gateways()
    one.connect("c", will=Will("w", b"offline", 1, True), **asked)
    one.broker.refuses = dict.fromkeys((OpenSession, AppendRuns), Unavailable("away"))
    one.broker.holds = (SaveSessions, EndSession)
    one.open(5).send(Connect("c", **asked))
    lost = Unavailable("the connection was lost")
    lost.unknown = True
    one.broker.lose_kept_back(lost)
    one.pass_time(1)
    assert published(one) == []
    one.broker.refuses = {}
    one.pass_time(1)
    assert published(one) == [b"offline"]
    assert not one.wills._kept_bytes


def test_a_call_that_is_heard_in_time_brings_the_will() -> None:
    one, other = two_gateways()
    one.connect("c", will=Will("w", b"offline", 1), **BRIEF)
    again = other.open(5)
    again.send(Connect("c", **BRIEF))
    for gateway in (one, other, one, other):
        gateway.rounds.begin()
        gateway.round()
    again.got_one(Connack)
    assert published(one) == [b"offline"]
    assert not one.broker.state.gateway_epochs.over


def test_whoever_is_on_its_way_to_a_session_meanwhile_is_turned_away() -> None:
    one, other = two()
    one.connect("c", **BRIEF)
    late = one.open(5)
    one.connect("d", **LASTING).send(Disconnect())
    take_over(other, **BRIEF)
    one.broker.holds = (OpenSession,)
    late.send(Connect("d", **LASTING))
    one.broker.holds = ()
    take_over(other, "d", **LASTING)  # which is open here, and not admitted yet
    one.lease_recovery.doubt()
    one.round()
    one.broker.let_go()
    one.round()
    assert [packet.reason_code for packet in late.got() if isinstance(packet, Connack)] == [0x80]
    entry = one.broker.state.sessions.get("d")
    assert entry is not None
    assert entry.owner == "other"


def test_whoever_comes_after_that_is_not_turned_away_for_one_that_came_before() -> None:
    one, _ = two()
    one.broker.holds = (OpenSession,)
    early, late = one.open(5), one.open(5)
    early.send(Connect("d", **LASTING))
    one.lease_recovery.doubt()
    one.round()
    late.send(Connect("d", **LASTING))
    one.broker.let_go()
    one.round()
    assert early.got_one(Connack).reason_code >= 0x80
    assert late.got_one(Connack).reason_code == 0


def test_brokers_are_told_which_epochs_are_over_before_anything_is_published_there() -> None:
    one, other = two()
    epoch = one.lease.epoch
    one.connect("c", **BRIEF)
    again = take_over(other, **BRIEF)
    again.send(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 1, packet_id=2))
    again.publish("t", b"3", 1, packet_id=3)
    told = [request for request in one.broker.requests if isinstance(request, EndGatewayEpochs | AppendRuns)]
    other.connect("d", **BRIEF)
    assert one.broker.made(OpenSession)[-1].heard == epoch
    assert told[0] == EndGatewayEpochs((epoch,))
    assert [type(request) for request in told[1:]] == [AppendRuns, AppendRuns]


def test_a_broker_that_may_not_have_heard_which_epochs_are_over_is_told_again() -> None:
    one, other = two()
    epoch = one.lease.epoch
    one.connect("c", **BRIEF)
    again = take_over(other, **BRIEF)
    one.broker.refuses = {EndGatewayEpochs: Unavailable("away"), AppendRuns: Unavailable("away")}
    again.publish("t", b"1", 1, packet_id=1)
    one.broker.refuses = {}
    other.pass_time(1)
    told = [request for request in one.broker.requests if isinstance(request, EndGatewayEpochs | AppendRuns)]
    assert [type(request) for request in told] == [EndGatewayEpochs, AppendRuns, EndGatewayEpochs, AppendRuns]
    assert one.broker.made(EndGatewayEpochs) == [EndGatewayEpochs((epoch,)), EndGatewayEpochs((epoch,))]


def test_an_older_broker_that_knows_of_no_epochs_is_told_once() -> None:
    one, other = two()
    one.connect("c", **BRIEF)
    again = take_over(other, **BRIEF)
    one.broker.refuses = {EndGatewayEpochs: UnknownRequest("of a newer version")}
    for number in range(1, 4):
        again.publish("t", b"x", 1, packet_id=number)
    assert again.got() == [Puback(1), Puback(2), Puback(3)]
    assert len(one.broker.made(EndGatewayEpochs)) == 1


def test_a_client_that_is_back_before_another_gateway_has_got_its_session_ends_no_epoch() -> None:
    one, other = two_gateways()
    first = one.connect("c", **LASTING)
    again = other.open(5)
    again.send(Connect("c", **LASTING))
    assert first.is_closed, "its gateway is called, and lets go"
    back = one.open(5)
    back.send(Connect("c", **LASTING))
    for gateway in (other, one, other):
        gateway.rounds.begin()
        gateway.round()
    again.got_one(Connack)
    assert [type(packet) for packet in back.got()] == [Connack, Disconnect]
    assert not one.broker.state.gateway_epochs.over
