"""Users who are removed while they are connected."""

from __future__ import annotations

from proving import PASSWORDS, USERS, logged_in, proving_gateway
from rig import Client, Gateway

from gateway.connections.removals import SETTLED_S
from gateway.login.access import Access
from gateway.mqtt.packets import Connack, Connect, Disconnect
from gateway.mqtt.properties import Properties
from penstock.access.passwords import Users
from tests.cheap_passwords import cheap_hash

REMOVED = Disconnect(0x87, Properties(reason_string="the user was removed"))
WITHOUT_ALICE = Users({name: one for name, one in USERS.by_name.items() if name != "alice"}, USERS.secret)


def house() -> tuple[Gateway, Access]:
    gateway, access = proving_gateway()
    return gateway, access


def with_password(gateway: Gateway, access: Access, user: str) -> Client:
    client = gateway.open(5)
    client.send(Connect(user, level=5, user_name=user, password=PASSWORDS[user]))
    check = access.take()
    assert check is not None
    gateway.rounds.begin()
    access.checked_as(check, True)
    gateway.round()
    assert isinstance(client.got().pop(), Connack)
    return client


def test_the_connections_of_a_removed_user_end_however_it_has_logged_in() -> None:
    gateway, access = house()
    gone = with_password(gateway, access, "alice"), logged_in(gateway, "alice", "proven")
    stays = with_password(gateway, access, "mallory"), logged_in(gateway, "mallory", "proven too")
    access.set_users(WITHOUT_ALICE)
    gateway.users_changed()
    gateway.pass_time(SETTLED_S + 1)
    assert [one.got() for one in gone] == [[REMOVED]] * 2
    assert [one.is_closed for one in (*gone, *stays)] == [True, True, False, False]
    assert gateway.removals.count == 2


def test_a_file_that_is_half_written_ends_nothing() -> None:
    gateway, access = house()
    client = with_password(gateway, access, "alice")
    access.set_users(Users({}))
    gateway.users_changed()
    gateway.pass_time(SETTLED_S - 1)
    access.set_users(USERS)
    gateway.users_changed()
    gateway.pass_time(2 * SETTLED_S)
    assert not client.is_closed


def test_a_user_whose_password_has_changed_stays_connected() -> None:
    gateway, access = house()
    client = with_password(gateway, access, "alice")
    access.set_users(Users({**USERS.by_name, "alice": cheap_hash(b"another")}, USERS.secret))
    gateway.users_changed()
    gateway.pass_time(2 * SETTLED_S)
    assert not client.is_closed


def test_who_has_not_logged_in_by_the_file_is_no_user_of_it() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    gateway.removals.users_changed(gateway.clock.now_s)
    gateway.pass_time(2 * SETTLED_S)
    assert not client.is_closed
