"""Topic aliases that the gateway makes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from making import arrival, pulled
from rig import Client, Gateway

from gateway.messages.aliases import NAME_BYTES_MIN, SentAliases, number_for, rewritten
from gateway.messages.outgoing import PacketRun, Variant, blob
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Connack, Connect, Packet, Publish
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import PacketReader

NAMED = "plant/hall-7/machine-{}/temperature"
LONG = NAMED.format(0)


class Reader:
    """What a client makes of PUBLISH packets with aliases."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.names: dict[int, str] = {}
        self.full = 0

    def name_of(self, packet: Packet) -> str:
        assert isinstance(packet, Publish)
        alias = packet.properties.topic_alias
        self.full += bool(packet.topic)
        if alias is None:
            return packet.topic
        assert 1 <= alias <= self.limit
        if packet.topic:
            self.names[alias] = packet.topic
        return self.names[alias]


def decoded(data: bytes) -> list[Packet]:
    reader = PacketReader(1 << 28)
    reader.level = 5
    return reader.receive(data)


def connect(gateway: Gateway, aliases: int, client_id: str = "c", **properties: int) -> tuple[Client, Reader]:
    asked = Properties(topic_alias_maximum=aliases or None, **properties)
    return gateway.connect(client_id, level=5, properties=asked), Reader(aliases)


def names(client: Client, reader: Reader) -> list[str]:
    return [reader.name_of(packet) for packet in client.got()]


@given(
    name=st.text("ab/\u00e9\u4e2d", min_size=1, max_size=300),
    payload=st.binary(max_size=200),
    qos=st.integers(0, 2),
    number=st.integers(1, 65_535),
    is_named=st.booleans(),
    identifier=st.integers(0, 268_435_455),
)
@example(name="a" * 300, payload=b"", qos=0, number=1, is_named=True, identifier=0)
@example(name="a" * 300, payload=b"x" * 200, qos=1, number=1, is_named=False, identifier=7)
@example(name="a" * 16_500, payload=b"x", qos=1, number=1, is_named=False, identifier=0)
def test_only_name_and_alias_of_a_packet_are_changed(
    name: str, payload: bytes, qos: int, number: int, is_named: bool, identifier: int
) -> None:
    application = b"\x26\x00\x01k" + len(name.encode()).to_bytes(2, "big") + name.encode()
    message = arrival(name=name, payload=payload, qos=qos, application=application)
    packet = blob(message, Variant(True, qos, False, (identifier,) if identifier else ()), 0).packet(7)
    [plain] = decoded(packet)
    [changed] = decoded(rewritten(packet, name.encode(), number, is_named=is_named))
    assert isinstance(plain, Publish)
    assert isinstance(changed, Publish)
    assert (changed.topic, changed.properties.topic_alias) == (name if is_named else "", number)
    assert (changed.payload, changed.qos, changed.packet_id) == (plain.payload, plain.qos, plain.packet_id)
    assert changed.properties.user_properties == plain.properties.user_properties
    assert changed.properties.subscription_identifiers == plain.properties.subscription_identifiers


@pytest.mark.mqtt("3.1.2-26", "3.3.2-11")
@given(st.data())
def test_whatever_a_client_is_sent_means_the_names_that_were_published(data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 4))
    aliases, reader = SentAliases(limit, 1 << 28), Reader(limit)
    feeds: list[dict[bytes, int]] = [{}, {}]
    batches = st.lists(st.integers(0, 6).map(NAMED.format) | st.just("short"), min_size=1, max_size=6)
    for batch in data.draw(st.lists(st.tuples(st.integers(0, 2), batches), max_size=20)):
        way, published = batch
        messages = [arrival(at, name=name, qos=at % 3) for at, name in enumerate(published)]
        if way < 2:
            run = PacketRun(pulled(*messages), True, 2, False, 0)
            got = decoded(aliases.run(run, feeds[way]))
        else:
            packets = [blob(one, Variant(True, one.qos, False), 0).packet(1) for one in messages]
            got = decoded(
                b"".join([aliases.shorten(one, it.name_bytes) for one, it in zip(packets, messages, strict=True)])
            )
        assert [reader.name_of(packet) for packet in got] == published


@pytest.mark.mqtt("3.1.2-27")
@pytest.mark.parametrize("level", [4, 5])
def test_a_client_that_says_nothing_gets_no_alias(level: int) -> None:
    gateway = Gateway()
    client = gateway.connect(level=level)
    client.subscribe("#")
    for _ in range(3):
        gateway.connect("p").publish(LONG, b"x")
    assert [(one.topic, one.properties.topic_alias) for one in client.got() if isinstance(one, Publish)] == [
        (LONG, None)
    ] * 3


@pytest.mark.mqtt("3.1.2-26", "3.3.2-7", "3.3.2-11")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("filters", [("#",), ("#", "plant/#")])
def test_a_long_name_is_sent_once_and_then_its_alias(qos: int, filters: tuple[str, ...]) -> None:
    gateway = Gateway()
    client, reader = connect(gateway, 2)
    client.subscribe(*filters)
    publisher = gateway.connect("p")
    published = [NAMED.format(one) for one in (1, 2, 1, 3, 2, 3, 1)]
    for at, name in enumerate(published):
        publisher.publish(name, b"x", qos, packet_id=at + 1 if qos else 0)
    assert names(client, reader) == published
    assert reader.full == 2 + 2  # two with an alias, and the one that came too late for one, twice


def test_a_short_name_has_no_alias() -> None:
    numbers: dict[bytes, int] = {}
    assert number_for(numbers, b"x" * (NAME_BYTES_MIN - 1), 10) == 0
    assert number_for(numbers, b"x" * NAME_BYTES_MIN, 10) == 1
    assert number_for(numbers, b"x" * 1025, 10) == 0
    assert number_for(numbers, b"x" * 1024, 10) == 2


def test_the_operator_bounds_the_aliases_that_are_made() -> None:
    gateway = Gateway(topic_alias_sent_max=0)
    client, reader = connect(gateway, 10)
    client.subscribe("#")
    gateway.connect("p").publish(LONG)
    assert client.device.aliases is None
    assert names(client, reader) == [LONG]


@pytest.mark.mqtt("3.3.2-7")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_resend_on_a_new_connection_has_the_full_name(qos: int) -> None:
    gateway = Gateway()
    client, reader = connect(gateway, 5, session_expiry_interval=60)
    client.subscribe("#", qos=2)
    publisher = gateway.connect("p")
    for packet_id in (1, 2):
        publisher.publish(LONG, b"x", qos, packet_id=packet_id)
    assert names(client, reader) == [LONG, LONG]
    client.cut()
    again = gateway.open(5)
    properties = Properties(topic_alias_maximum=5, session_expiry_interval=60)
    again.send(Connect("c", False, properties=properties, level=5))
    connack, *resent = again.got()
    assert isinstance(connack, Connack)
    assert [(one.topic, one.dup, one.properties.topic_alias) for one in resent if isinstance(one, Publish)] == [
        (LONG, True, None)
    ] * 2
    publisher.publish(LONG, b"new", qos, packet_id=3)
    [new] = again.got()
    assert isinstance(new, Publish)
    assert (new.topic, new.properties.topic_alias) == (LONG, 1 if qos == 1 else None)


@pytest.mark.mqtt("3.1.2-24")
@pytest.mark.parametrize("filters", [("#",), ("#", "plant/#")])
def test_an_alias_never_makes_a_packet_larger_than_the_client_takes(filters: tuple[str, ...]) -> None:
    gateway = Gateway()
    plain = len(encode(Publish(LONG, b"x" * 50, 1, packet_id=1), 5))
    client, reader = connect(gateway, 5, maximum_packet_size=plain)
    client.subscribe(*filters)
    gateway.connect("p").publish(LONG, b"x" * 50, 1, packet_id=1)
    assert names(client, reader) == [LONG]
    assert reader.full == 1
    assert reader.names == {}


def test_a_fan_out_to_clients_with_aliases_is_shared_too() -> None:
    gateway = Gateway()
    clients = [connect(gateway, 5, f"c{one}") for one in range(20)]
    for client, _ in clients:
        client.subscribe("plant/#", qos=0)
    publisher = gateway.connect("p")
    written: dict[int, int] = {}

    def count(client: Client) -> None:
        taken = client.write

        def write(data: bytes) -> None:
            written[id(data)] = written.get(id(data), 0) + 1
            kept.append(data)
            taken(data)

        client.write = write  # type: ignore[method-assign]

    kept: list[bytes] = []
    for client, _ in clients:
        count(client)
    publisher.publish(LONG)
    publisher.publish(LONG)
    assert sorted(written.values()) == [20, 20]
    assert all(names(client, reader) == [LONG, LONG] and reader.full == 1 for client, reader in clients)


def test_retained_messages_use_the_aliases_too() -> None:
    gateway = Gateway()
    publisher = gateway.connect("p")
    publisher.publish(LONG, b"kept", retain=True)
    client, reader = connect(gateway, 5)
    client.subscribe("plant/#")
    publisher.publish(LONG, b"live")
    assert names(client, reader) == [LONG, LONG]
    assert set(reader.names.values()) == {LONG}
