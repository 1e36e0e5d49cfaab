"""The end of a connection: its session, and its will."""

from __future__ import annotations

import pytest
from circles import leaves_none_of
from rig import Gateway

from gateway.connections.device import Device
from gateway.messages.outgoing import Blob, Several
from gateway.mqtt.packets import Disconnect, Publish, Subscribe, Subscription, Will
from gateway.mqtt.properties import Properties
from gateway.sessions.session import Cursor, Session
from penstock.errors import Unavailable
from penstock.protocol.requests.sessions import EndSession, SaveSessions

WILL = Will("will/topic", b"gone", 1)


def published(gateway: Gateway) -> list[tuple[str, bytes]]:
    return [(message.name, message.body) for message in gateway.broker.messages()]


@pytest.mark.mqtt("4.1.0-2", "3.1.2-23")
def test_a_session_ends_with_its_expiry_and_its_filters_close() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=60))
    client.subscribe("t")
    client.cut()
    gateway.pass_time(58)
    assert len(gateway.broker.state.sessions) == 1
    assert gateway.broker.filters() == ["t"]
    gateway.pass_time(4)
    assert len(gateway.broker.state.sessions) == 0
    assert gateway.broker.filters() == []


@pytest.mark.parametrize("expiry_s", [0, 60])
def test_a_session_goes_with_its_connection_and_waits_for_no_collector(expiry_s: int) -> None:
    """With all that was in flight to it: clients that come and go left that to the collector, which seldom looks."""
    gateway = Gateway()
    with leaves_none_of(Session, Cursor, Blob, Several):
        client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=expiry_s))
        client.subscribe("a/#", "a/b", qos=1)
        client.subscribe("n/#", qos=1, properties=Properties(user_properties=(("penstock-start", "named=p"),)))
        for topic in ("a/b", "n/c"):
            client.publish(topic, b"x", 1, packet_id=7)
        assert client.device.session is not None
        assert client.device.session.in_flight
        client.cut()
        del client.device


def test_a_connection_that_breaks_before_its_session_is_saved_waits_for_no_collector() -> None:
    """With what it had read of a packet, and what was to be sent to it."""
    gateway = Gateway()
    with leaves_none_of(Session, Device):
        client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=60))
        gateway.broker.holds = (SaveSessions,)
        for number in (1, 2):
            client.send(Subscribe(number, (Subscription(f"a/{number}", 1),)))
        client.cut()
        gateway.broker.let_go()
        gateway.round()
        assert client.got() == []
        del client.device


def test_disconnect_may_shorten_the_expiry() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, properties=Properties(session_expiry_interval=60))
    client.send(Disconnect(0, Properties(session_expiry_interval=0)))
    assert len(gateway.broker.state.sessions) == 0


@pytest.mark.mqtt("3.1.2-8", old=("3.1.2-8",))
def test_a_will_is_published_when_the_connection_breaks() -> None:
    gateway = Gateway()
    client = gateway.connect(will=WILL)
    client.cut()
    assert published(gateway) == [("will/topic", b"gone")]


@pytest.mark.mqtt("3.1.2-10", "3.14.4-3", old=("3.1.2-10", "3.14.4-3"))
def test_a_will_is_not_published_after_a_normal_disconnect() -> None:
    gateway = Gateway()
    gateway.connect("a", will=WILL).send(Disconnect())
    gateway.connect("b", level=5, will=WILL).send(Disconnect(0))
    assert published(gateway) == []


@pytest.mark.parametrize("reason", [0x04, *range(0x80, 0x84), 0x90, 0x93, 0x95, 0x97, 0x98, 0x99])
@pytest.mark.mqtt("3.1.2-8", "3.14.4-3")
def test_a_client_that_leaves_with_a_reason_other_than_0_leaves_its_will(reason: int) -> None:
    gateway = Gateway()
    gateway.connect(level=5, will=WILL).send(Disconnect(reason))
    assert published(gateway) == [("will/topic", b"gone")]


@pytest.mark.parametrize("end", ["garbage", "silence", "shutdown"])
@pytest.mark.mqtt("3.1.2.5")
def test_every_other_end_counts_as_abnormal(end: str) -> None:
    gateway = Gateway()
    client = gateway.connect(will=WILL, keep_alive_s=10)
    if end == "garbage":
        client.send_bytes(b"\x00\x00")
    elif end == "silence":
        gateway.pass_time(20)
    else:
        gateway.connections.close()
        gateway.round()
    assert client.is_closed
    assert published(gateway) == [("will/topic", b"gone")]


@pytest.mark.mqtt("3.1.3-9")
def test_a_will_waits_for_its_delay_and_is_cancelled_by_a_return() -> None:
    gateway = Gateway()
    asked = {"level": 5, "clean_start": False, "properties": Properties(session_expiry_interval=100)}
    delayed = Will("w", b"gone", 1, properties=Properties(will_delay_interval=10))
    gateway.connect("c", will=delayed, **asked).cut()
    gateway.pass_time(9)
    back = gateway.connect("c", will=delayed, **asked)
    gateway.pass_time(20)
    assert published(gateway) == []
    back.cut()
    gateway.pass_time(9)
    assert published(gateway) == []
    gateway.pass_time(3)
    assert published(gateway) == [("w", b"gone")]
    gateway.pass_time(200)
    assert published(gateway) == [("w", b"gone")]


@pytest.mark.mqtt("3.1.2-8")
def test_a_will_does_not_outwait_its_session() -> None:
    gateway = Gateway()
    delayed = Will("w", b"gone", properties=Properties(will_delay_interval=1000))
    gateway.connect("a", level=5, will=delayed).cut()
    assert published(gateway) == [("w", b"gone")]
    gateway.connect("b", level=5, will=delayed, properties=Properties(session_expiry_interval=10)).cut()
    gateway.pass_time(12)
    assert len(published(gateway)) == 2


@pytest.mark.mqtt("3.1.2-15", "3.1.3-10", "3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-20", old=("3.1.2-17",))
def test_a_will_carries_its_properties_and_retain() -> None:
    gateway = Gateway()
    watcher = gateway.connect("w", level=5)
    watcher.subscribe("will")
    sent = Properties(
        payload_format_indicator=1,
        message_expiry_interval=60,
        content_type="t",
        response_topic="r/t",
        correlation_data=b"\x00\xff",
        user_properties=(("b", "1"), ("a", "2"), ("b", "1")),
    )
    will = Will("will", b"x", 1, retain=True, properties=sent)
    gateway.connect("c", level=5, will=will).cut()
    [delivered] = [packet for packet in watcher.got() if isinstance(packet, Publish)]
    assert delivered.properties == sent
    assert "will" in gateway.broker.retained()


@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize(("will", "is_unsure"), [(None, False), (WILL, True)])
def test_only_a_last_word_on_which_a_will_depends_leaves_the_gateway_unsure(
    expiry_s: int, will: Will | None, is_unsure: bool
) -> None:
    """While it is unsure it publishes nothing, so a client that left nothing behind must not make it so."""
    gateway = Gateway()
    first = gateway.connect("c", level=5, will=will, properties=Properties(session_expiry_interval=expiry_s))
    gateway.broker.refuses = dict.fromkeys((EndSession, SaveSessions), Unavailable("away"))
    gateway.services.disconnecting.left(first.device, "test", is_taken=True)
    gateway.round()
    assert gateway.home._unheard
    assert gateway.home.is_unsure is is_unsure
