"""Subscriptions that are judged anew, a few at a time."""

from __future__ import annotations

from rig import Gateway, HandClock

from gateway.connections.rejudging import PER_TURN
from gateway.login.access import Access
from gateway.mqtt.packets import Disconnect, Will
from penstock.access.acl import parse_acl

FILTERS = [f"a/{number}" for number in range(3 * PER_TURN)]


def house() -> tuple[Gateway, Access]:
    access = Access("everyone", 1, 0, b"key", lambda: None, HandClock().monotonic)
    access.set_acl(parse_acl("allow all all #"))
    gateway = Gateway(access)
    return gateway, access


def left(gateway: Gateway, *clients: str) -> list[int]:
    return [len(gateway.sessions[one].subscriptions) for one in clients]


def test_no_turn_judges_more_than_a_few_and_in_the_end_all_are_judged() -> None:
    gateway, access = house()
    gateway.connect("c", level=5).subscribe(*FILTERS, "b")
    gateway.connect("d", level=5).subscribe(*FILTERS, "b")
    access.set_acl(parse_acl("allow all all b"))
    gateway.judge_again()
    assert left(gateway, "c", "d") == [len(FILTERS) + 1] * 2
    gateway.rejudging.flush()
    assert left(gateway, "c", "d") == [len(FILTERS) + 1 - PER_TURN, len(FILTERS) + 1]
    gateway.round()
    assert left(gateway, "c", "d") == [1, 1]


def test_a_client_whose_id_the_rules_give_to_others_now_is_cut_off_and_its_will_published() -> None:
    gateway, access = house()
    kept, lost = gateway.connect("c", level=5), gateway.connect("d", level=5, will=Will("w", b"gone", 1))
    lost.subscribe("a")
    access.set_acl(parse_acl("allow anonymous client c\nallow all all #"))
    gateway.judge_again()
    gateway.round()
    assert (kept.is_closed, lost.is_closed) == (False, True)
    assert [one.reason_code for one in lost.got() if isinstance(one, Disconnect)] == [0x87]
    assert gateway.broker.bodies() == [b"gone"]


def test_no_turn_looks_at_more_than_a_few_clients_that_have_subscribed_to_nothing() -> None:
    gateway, access = house()
    clients = [gateway.connect(f"c{number}", level=5) for number in range(2 * PER_TURN)]
    access.set_acl(parse_acl("deny all client *"))
    gateway.judge_again()
    gateway.rejudging.flush()
    assert sum(one.is_closed for one in clients) == PER_TURN
    gateway.round()
    assert all(one.is_closed for one in clients)


def test_rules_that_change_again_meanwhile_count_for_all() -> None:
    gateway, access = house()
    gateway.connect("c", level=5).subscribe(*FILTERS)
    access.set_acl(parse_acl("allow all all a/#"))
    gateway.judge_again()
    gateway.rejudging.flush()
    access.set_acl(parse_acl("allow all all a/1"))
    gateway.judge_again()
    gateway.round()
    assert left(gateway, "c") == [1]


def test_who_has_gone_or_has_unsubscribed_meanwhile_is_passed_over() -> None:
    gateway, access = house()
    client, other = gateway.connect("c", level=5), gateway.connect("d", level=5)
    client.subscribe(*FILTERS)
    other.subscribe(*FILTERS)
    access.set_acl(parse_acl(""))
    gateway.judge_again()
    gateway.rejudging.flush()
    gateway.downstream.unsubscribe(gateway.sessions["c"], FILTERS[PER_TURN])
    client.cut()
    gateway.round()
    assert left(gateway, "d") == [0]
