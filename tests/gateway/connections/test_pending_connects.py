"""A client that is not admitted leaves what was there before as it was, and its own will is none."""

from __future__ import annotations

from rig import Client, Gateway

from gateway.mqtt.packets import Connack, Connect, Will
from gateway.mqtt.properties import Properties
from penstock.errors import Unavailable
from penstock.protocol.requests.sessions import FetchExchanges, OpenSession, WatchSessions

LASTING = Properties(session_expiry_interval=1000)


def delayed(delay_s: int, payload: bytes = b"gone") -> Will:
    return Will("w", payload, properties=Properties(will_delay_interval=delay_s))


def published(gateway: Gateway) -> list[bytes]:
    return [message.body for message in gateway.broker.messages()]


def asks(gateway: Gateway, *, clean_start: bool = False, lasts: bool = True, will: Will | None = None) -> Client:
    """A client that has sent its CONNECT."""
    client = gateway.open(5)
    properties = LASTING if lasts else Properties()
    client.send(Connect("c", level=5, clean_start=clean_start, properties=properties, will=will))
    return client


def is_refused(gateway: Gateway, *, lasts: bool = True, will: Will | None = None) -> None:
    """A broker that does not tell the session's exchanges has a CONNECT refused."""
    gateway.broker.refuses[FetchExchanges] = Unavailable("restarting")
    assert asks(gateway, lasts=lasts, will=will).got_one(Connack).reason_code >= 0x80
    del gateway.broker.refuses[FetchExchanges]


def test_a_refused_connect_ends_no_session_though_it_asks_for_one_without_expiry() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, clean_start=False, properties=LASTING)
    client.subscribe("t", qos=1)
    client.cut()
    gateway.produce("t", b"waits")
    is_refused(gateway, lasts=False)
    gateway.pass_time(900)
    back = asks(gateway)
    connack, *_ = back._got
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert back.payloads() == [b"waits"]


def test_a_will_waits_on_as_long_as_before_where_its_client_is_refused() -> None:
    gateway = Gateway()
    asks(gateway, will=delayed(10)).cut()
    gateway.pass_time(4)
    is_refused(gateway, will=delayed(0, b"never"))
    gateway.pass_time(4)
    is_refused(gateway)
    assert published(gateway) == []
    gateway.pass_time(3)
    assert published(gateway) == [b"gone"]
    gateway.pass_time(20)
    assert published(gateway) == [b"gone"]


def test_a_dead_gateways_will_waits_on_as_long_as_before_where_its_client_is_refused() -> None:
    one = Gateway(name="one")
    other = Gateway(beside=one, name="other")
    one.pass_time(1)
    asks(one, will=delayed(10)).cut()
    other.broker.leave_alone("one")
    other.clock.now_s += 6
    for _ in range(2):
        is_refused(other, will=delayed(0, b"never"))
    other.pass_time(3)
    assert published(other) == []
    other.pass_time(2)
    assert published(other) == [b"gone"]
    other.pass_time(60)
    assert published(other) == [b"gone"]


def test_a_will_that_waits_on_is_void_when_its_client_is_admitted() -> None:
    gateway = Gateway()
    asks(gateway, will=delayed(10)).cut()
    is_refused(gateway)
    assert asks(gateway).got_one(Connack).session_present
    gateway.pass_time(30)
    assert published(gateway) == []


def test_another_gateway_has_the_will_that_waits_on_if_this_one_dies() -> None:
    gateway = Gateway(name="one")
    other = Gateway(beside=gateway, name="other")
    gateway.pass_time(1)
    other.pass_time(1)
    asks(gateway, will=delayed(10)).cut()
    is_refused(gateway)
    other.pass_time(60)
    assert published(other) == [b"gone"]


def test_the_will_of_a_connection_that_never_was_admitted_is_never_published() -> None:
    gateway = Gateway()
    gateway.broker.holds = (OpenSession,)
    first = asks(gateway, clean_start=True, will=delayed(0, b"never"))
    second = asks(gateway, clean_start=True, will=delayed(0))
    gateway.broker.let_go()
    gateway.round()
    assert first.got_one(Connack).reason_code >= 0x80
    assert second.got_one(Connack).reason_code == 0
    gateway.pass_time(5)
    assert published(gateway) == []
    second.cut()
    assert published(gateway) == [b"gone"]


def test_the_same_will_of_a_connection_that_was_admitted_is_published() -> None:
    one = Gateway(name="one")
    one.broker.silent.add(WatchSessions)  # it hears nothing of the other one: nobody lets go
    other = Gateway(beside=one, name="other")
    one.pass_time(1)
    other.pass_time(1)
    asks(one, will=delayed(0))
    one.broker.holds = (OpenSession,)
    asks(other, will=delayed(0))
    asks(other, will=delayed(0))
    other.pass_time(2)
    one.broker.let_go()
    other.round()
    assert published(other) == [b"gone"]


def test_a_will_waits_on_where_one_connection_takes_the_place_of_another_and_is_refused() -> None:
    gateway = Gateway()
    asks(gateway, will=delayed(10)).cut()
    gateway.pass_time(4)
    gateway.broker.holds = (OpenSession,)
    asks(gateway, will=delayed(0, b"never"))
    gateway.broker.refuses[FetchExchanges] = Unavailable("restarting")
    asks(gateway, will=delayed(0, b"never"))
    gateway.broker.let_go()
    gateway.round()
    del gateway.broker.refuses[FetchExchanges]
    gateway.pass_time(5)
    assert published(gateway) == []
    gateway.pass_time(2)
    assert published(gateway) == [b"gone"]
