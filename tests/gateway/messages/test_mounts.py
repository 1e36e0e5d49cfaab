"""Mount points: the same names at each of them, and nothing goes from one to another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import arrival
from rig import Client, Gateway

from gateway.messages.envelope import Arrival, read_heading, record_properties
from gateway.messages.mounts import is_mounted, mounted_filter, mounted_name, mounted_properties, seen_at
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Unsuback,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import Properties, encode_properties
from gateway.publishing.sys_topics import SysTopics
from penstock.protocol.message import NEVER, record_tail

MOUNTS = {"a": "t/a/", "b": "t/b/", "tcp": ""}
LASTING = Properties(session_expiry_interval=1000)


def mounted_gateway(**more: Any) -> Gateway:
    gateway = Gateway(**more)
    for listener, mount in MOUNTS.items():
        gateway.connections.counters.of(listener).mount = mount
    return gateway


def stored(gateway: Gateway) -> list[str | None]:
    """The full names of all messages."""
    return [message.mqtt_topic for message in gateway.broker.messages()]


def publishes(client: Client) -> list[Publish]:
    return [one for one in client.got() if isinstance(one, Publish)]


def named(name: str, application: bytes = b"") -> Arrival:
    """A message of this full name."""
    heading = read_heading(record_tail(b"t", record_properties(name, "k", "c", NEVER, application)))
    return arrival().with_heading(heading)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("filter", "full"),
    [
        ("x/+", "t/a/x/+"),
        ("#", "t/a/#"),
        ("/x", "t/a//x"),
        ("$share/g/x/#", "$share/g/t/a/x/#"),
        ("$oshare/g/#", "$oshare/g/t/a/#"),
        ("$SYS/#", "t/a/$SYS/#"),
        ("$queue/x", "t/a/$queue/x"),
        ("", ""),
        ("$share/g", "$share/g"),
        ("$share//x", "$share//x"),
        ("$share/g/", "$share/g/"),
        ("$share/+/x", "$share/+/x"),
        ("$share/g/$share/h/x", "$share/g/$share/h/x"),
    ],
)
def test_a_filter_is_below_the_mount_or_stays_what_is_refused(filter: str, full: str) -> None:
    assert mounted_filter("t/a/", filter) == full
    assert is_mounted("t/a/", full) == (full != filter)
    assert not is_mounted("t/b/", full)


def test_a_name_is_below_the_mount_unless_no_client_may_publish_it() -> None:
    assert mounted_name("t/a/", "x") == "t/a/x"
    assert mounted_name("t/a/", "/") == "t/a//"
    assert mounted_name("t/a/", "$SYS/x") == "$SYS/x"


def test_the_response_topic_is_full_inside_and_cut_outside_or_left_out() -> None:
    pair = ("k", "v")
    sent = encode_properties(Properties(content_type="t", response_topic="r/1", user_properties=(pair, pair)))
    full = mounted_properties("t/a/", sent)
    assert full == encode_properties(
        Properties(content_type="t", response_topic="t/a/r/1", user_properties=(pair, pair))
    )
    seen = seen_at("t/a/", named("t/a/x", full))
    assert seen is not None
    assert (seen.name_bytes, seen.application, seen.name) == (b"x", sent, "t/a/x")
    for outside in ("t/b/r", "t/a", "t/a/"):
        seen = seen_at("t/a/", named("t/a/x", encode_properties(Properties(content_type="t", response_topic=outside))))
        assert seen is not None
        assert seen.application == encode_properties(Properties(content_type="t"))


def test_what_is_too_long_below_the_mount_is_refused_or_left_out() -> None:
    long = "x" * 65_535
    assert mounted_properties("t/a/", encode_properties(Properties(response_topic=long))) == b""
    client = mounted_gateway(packet_bytes_max=1 << 20).connect("c", level=5, listener="a")
    client.publish(long, b"x", 1, packet_id=1)
    assert client.got_one(Puback).reason_code == 0x90
    assert not client.is_closed


@pytest.mark.parametrize("name", ["t/a", "t/a/", "t/b/x", "t/ab/x", "x", "$SYS/x"])
def test_what_is_not_below_the_mount_is_not_seen(name: str) -> None:
    assert seen_at("t/a/", named(name)) is None


# ---------------------------------------------------------------- clients


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_clients_of_a_mount_use_their_own_names_and_others_see_the_full_ones(level: int, qos: int) -> None:
    gateway = mounted_gateway()
    own, other = gateway.connect("own", level=level, listener="a"), gateway.connect("other", level=level, listener="b")
    whole = gateway.connect("whole", level=level)
    for client in (own, other, whole):
        client.subscribe("#", qos=qos)
    sender = gateway.connect("sender", level=level, listener="a")
    for _ in range(3):  # the second goes the straight way
        sender.publish("x/y", b"hello", qos, packet_id=1 if qos else 0)
        if qos == 2:
            sender.send(Pubrel(1))
        gateway.round()
    assert stored(gateway) == ["t/a/x/y"] * 3
    assert [one.topic for one in publishes(own)] == ["x/y"] * 3
    assert [one.topic for one in publishes(whole)] == ["t/a/x/y"] * 3
    assert other.got() == []
    whole.publish("t/b/z", b"down")
    assert other.got_one(Publish).topic == "z"


def test_aliases_stand_for_the_names_of_a_mount_both_ways() -> None:
    gateway = mounted_gateway(topic_alias_max=4)
    client = gateway.connect("c", level=5, listener="a", properties=Properties(topic_alias_maximum=4))
    client.subscribe("long/enough/#", qos=0)
    client.publish("long/enough/name", b"1", properties=Properties(topic_alias=1))
    client.publish("", b"2", properties=Properties(topic_alias=1))
    gateway.round()
    first, second = publishes(client)
    assert (first.topic, second.topic) == ("long/enough/name", "")
    assert first.properties.topic_alias == second.properties.topic_alias
    assert stored(gateway) == ["t/a/long/enough/name"] * 2


def test_wills_and_retained_messages_have_the_names_of_the_mount() -> None:
    gateway = mounted_gateway()
    will = Will("w", b"gone", 1, retain=True, properties=Properties(response_topic="back"))
    gateway.connect("gone", level=5, listener="a", will=will).cut()
    gateway.round()
    assert stored(gateway) == ["t/a/w"]
    for listener, name, response in (("a", "w", "back"), ("tcp", "t/a/w", "t/a/back")):
        late = gateway.connect(f"late-{listener}", level=5, listener=listener)
        late.subscribe("#")
        got = late.got_one(Publish)
        assert (got.topic, got.retain, got.properties.response_topic) == (name, True, response)
    late = gateway.connect("late-b", level=5, listener="b")
    late.subscribe("#")
    assert late.got() == []


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("name", ["$SYS/x", "$x"])
def test_a_client_of_a_mount_publishes_nothing_under_dollar_names(level: int, name: str) -> None:
    gateway = mounted_gateway()
    client = gateway.connect("c", level=level, listener="a")
    client.publish(name, b"x", 1, packet_id=1)
    assert client.got_one(Puback).reason_code == (0x87 if level == 5 else 0)
    late = gateway.open(level, listener="a")
    late.send(Connect("w", level=level, will=Will(name, b"x", 0, retain=False)))
    assert late.got_one(Connack).reason_code == (0x87 if level == 5 else 5)
    assert gateway.broker.messages() == []


def test_the_figures_of_the_system_are_below_no_mount() -> None:
    gateway = mounted_gateway()
    client = gateway.connect("c", level=5, listener="a")
    assert client.subscribe("$SYS/#", "$share/g/$SYS/#").reason_codes == (2, 2)
    SysTopics(gateway.upstream, "$SYS/brokers/x", "gw", 1.0, 0.0).tell({"process_uptime_s": 1.0}, 1.0)
    gateway.round()
    gateway.round()
    assert client.got() == []


def test_a_filter_is_ended_by_the_name_that_the_client_gave_it() -> None:
    gateway = mounted_gateway()
    client = gateway.connect("c", level=5, listener="a")
    client.subscribe("x", "$share/g/y")
    client.send(Unsubscribe(7, ("x", "$share/g/y", "t/a/x", "z")))
    gateway.round()
    assert client.got_one(Unsuback).reason_codes == (0, 0, 0x11, 0x11)


def test_a_filter_that_is_none_is_refused_at_a_mount_too() -> None:
    client = mounted_gateway().connect("c", level=5, listener="a")
    assert client.subscribe("a#", "$share/g/", "$share/+/x").reason_codes == (0x8F,) * 3


def test_groups_of_two_mounts_are_two_groups() -> None:
    gateway = mounted_gateway()
    members = {listener: gateway.connect(f"m-{listener}", level=5, listener=listener) for listener in ("a", "b")}
    for member in members.values():
        member.subscribe("$share/g/#", qos=0)
    for listener in ("a", "b"):
        gateway.connect(f"p-{listener}", listener=listener).publish("x", listener.encode())
    gateway.round()
    for listener, member in members.items():
        assert [(one.topic, one.payload) for one in publishes(member)] == [("x", listener.encode())]


def test_a_share_is_not_stopped_by_a_message_that_is_not_below_its_mount() -> None:
    gateway = mounted_gateway()
    member = gateway.connect("m", level=5, listener="a")
    member.subscribe("$share/g/#", qos=1)
    sender = gateway.connect("p")
    for name in ("t/a", "t/a/x"):  # both match t/a/#
        sender.publish(name, name.encode(), 1, packet_id=1)
    gateway.round()
    [got] = publishes(member)
    assert got.payload == b"t/a/x"
    member.send(Puback(got.packet_id))
    gateway.pass_time(1)
    assert gateway.broker.shares.unsettled == 0


@pytest.mark.parametrize("size", [10, 10_000])  # a large one is read again
def test_what_was_not_acknowledged_comes_again_under_the_name_of_the_mount(size: int) -> None:
    gateway = mounted_gateway()
    lasting: dict[str, Any] = {"level": 5, "clean_start": False, "properties": LASTING}
    client = gateway.connect("c", listener="a", **lasting)
    client.subscribe("x")
    gateway.connect("p", listener="a").publish("x", bytes(size), 1, packet_id=1)
    gateway.round()
    assert client.got_one(Publish).topic == "x"
    gateway.pass_time(1)
    client.cut()
    gateway.round()
    client = gateway.connect("c", listener="a", **lasting)
    gateway.round()
    again = client.got_one(Publish)
    assert (again.topic, again.dup, len(again.payload)) == ("x", True, size)


@pytest.mark.parametrize(
    ("first", "then", "seen"), [("a", "b", ""), ("tcp", "a", ""), ("a", "a", "secret"), ("a", "tcp", "t/a/secret")]
)
def test_a_session_is_not_taken_to_a_mount_that_its_messages_are_not_of(first: str, then: str, seen: str) -> None:
    gateway = mounted_gateway()
    lasting: dict[str, Any] = {"level": 5, "clean_start": False, "properties": LASTING}
    client = gateway.connect("c", listener=first, **lasting)
    client.subscribe("secret")
    client.send(Disconnect(0, LASTING))
    gateway.round()
    gateway.connect("p", listener=first).publish("secret", b"x", 1, packet_id=1)
    gateway.round()
    late = gateway.open(5, listener=then)
    late.send(Connect("c", **lasting))
    gateway.round()
    connack, *rest = late.got()
    assert isinstance(connack, Connack)
    assert connack.reason_code == (0 if seen else 0x87)
    assert [one.topic for one in rest if isinstance(one, Publish)] == ([seen] if seen else [])
    if not seen:
        gateway.connect("c", level=5, listener=then, clean_start=True)


# ---------------------------------------------------------------- a model

NAMES = st.sampled_from(["x", "x/y", "t/a/x", "t/b/x", "/", "t/a", "$SYS/x", "a" * 9])
FILTERS = st.sampled_from(
    ["#", "+", "+/+", "x/#", "t/#", "t/b/#", "$SYS/#", "$share/g/#", "$oshare/g/x", "$share/g/t/b/#", "/#"]
)
LISTENERS = st.sampled_from(["a", "b", "tcp"])
STEP = st.one_of(
    st.tuples(st.just("subscribe"), LISTENERS, FILTERS, st.integers(0, 2)),
    st.tuples(st.just("publish"), LISTENERS, NAMES, st.integers(0, 2)),
    st.tuples(st.just("retain"), LISTENERS, NAMES, st.integers(0, 1)),
    st.tuples(st.just("will"), LISTENERS, NAMES, st.integers(0, 1)),
    st.tuples(st.just("again"), LISTENERS, st.just(""), st.just(0)),
)


class Tenants:
    """A subscriber and publishers at each listener. A message says its full name as its payload."""

    def __init__(self) -> None:
        self.gateway = mounted_gateway()
        self.number = self.delivered = 0
        self.subscribers = {listener: self.subscriber(listener) for listener in MOUNTS}

    def subscriber(self, listener: str) -> Client:
        return self.gateway.connect(f"s-{listener}", level=5, listener=listener, clean_start=False, properties=LASTING)

    def take(self, step: tuple[str, str, str, int]) -> None:
        what, listener, name, qos = step
        full, self.number = (MOUNTS[listener] + name).encode(), self.number + 1
        said = Properties(response_topic=name)
        if what == "subscribe":
            self.subscribers[listener].subscribe(name, qos=qos)
        elif what == "again":
            self.subscribers[listener].cut()
            self.gateway.round()
            self.subscribers[listener] = self.subscriber(listener)
        elif what == "will":
            client = self.gateway.open(5, listener=listener)
            client.send(Connect(f"w{self.number}", level=5, will=Will(name, full, qos, retain=False, properties=said)))
            if not client.is_closed:
                client.cut()
        else:
            client = self.gateway.connect(f"p{self.number}", level=5, listener=listener)
            packet_id = 1 if qos else 0
            client.publish(name, full, qos, packet_id=packet_id, retain=what == "retain", properties=said)
        self.gateway.round()

    def check(self) -> None:
        for listener, client in self.subscribers.items():
            mount = MOUNTS[listener]
            for one in publishes(client):
                self.delivered += 1
                assert (mount + one.topic).encode() == one.payload
                response = one.properties.response_topic
                assert response is None or (mount + response).encode() == one.payload
                if one.qos:
                    client.send(Puback(one.packet_id) if one.qos == 1 else Pubrec(one.packet_id))
        self.gateway.round()


@settings(max_examples=30, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_whatever_clients_of_several_mounts_do_each_gets_its_own_messages_under_its_own_names(
    steps: list[tuple[str, str, str, int]],
) -> None:
    tenants = Tenants()
    for step in steps:
        tenants.take(step)
        tenants.check()
    assert [one for one in stored(tenants.gateway) if one is not None and one.startswith("$")] == []
