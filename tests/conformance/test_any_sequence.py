"""Any packets of any clients at any time: each connection goes on or ends as the standard says, nothing is left of
those that have ended, and a bystander never notices."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from rig import Client, Gateway

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from tests.gateway.mqtt.packet_strategies import after_connect, connects

EXPIRY_S = 30
IDS = st.integers(1, 4)
LONG = ["a" * 255, "a" * 256, "ü" * 43 + "/x", "a/" * 127 + "a", "/" * 128, "a" * 1025]
NAMES = st.sampled_from(["t", "t/1", "t/1/2", "/", "$SYS/x", "u", *LONG])
FILTERS = st.sampled_from(
    [
        *("t", "t/#", "+/+", "#", "t/+", "$share/g/t", "$oshare/g/#", "a+", "#/a", "$SYS/#", *LONG),
        *("$share/g/$share/h", "$oshare/g/$share/h/x", "$share/" + "g" * 300 + "/t"),
    ]
)
QOS = st.integers(0, 2)
EXPIRIES = st.sampled_from([NO_PROPERTIES, Properties(session_expiry_interval=5)])
WILLS = st.none() | st.builds(
    Will,
    NAMES,
    st.binary(max_size=3),
    QOS,
    st.booleans(),
    st.sampled_from([NO_PROPERTIES, Properties(will_delay_interval=3)]),
)


@st.composite
def publications(draw: st.DrawFn) -> Publish:
    qos = draw(QOS)
    alias = draw(st.sampled_from([NO_PROPERTIES, Properties(topic_alias=1), Properties(message_expiry_interval=1)]))
    return Publish(
        draw(NAMES),
        draw(st.binary(max_size=5)),
        qos,
        draw(st.booleans()),
        bool(qos) and draw(st.booleans()),
        draw(IDS) if qos else 0,
        alias,
    )


def fitting(level: int) -> st.SearchStrategy[Packet]:
    """What clients do send, with few ids and names, so that they meet."""
    subscriptions = st.lists(st.builds(Subscription, FILTERS, QOS), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        publications(),
        st.builds(Puback, IDS),
        st.builds(Pubrec, IDS, st.sampled_from([0, 0x97] if level == 5 else [0])),
        st.builds(Pubrel, IDS),
        st.builds(Pubcomp, IDS),
        st.builds(Subscribe, IDS, subscriptions),
        st.builds(Unsubscribe, IDS, st.lists(FILTERS, min_size=1, max_size=3).map(tuple)),
        st.just(Pingreq()),
        st.builds(
            Disconnect,
            st.sampled_from([0, 4] if level == 5 else [0]),
            EXPIRIES if level == 5 else st.just(NO_PROPERTIES),
        ),
        st.just(Auth()) if level == 5 else st.just(Pingreq()),
    )


def greetings(level: int) -> st.SearchStrategy[Connect]:
    return st.builds(
        Connect,
        st.sampled_from(["a", "b", ""]),
        st.booleans(),
        st.sampled_from([0, 10]),
        will=WILLS,
        properties=EXPIRIES if level == 5 else st.just(NO_PROPERTIES),
        level=st.just(level),
    )


class Clients(RuleBasedStateMachine):
    """A gateway, a bystander, and hostile clients."""

    open = Bundle("open")

    @initialize()
    def start(self) -> None:
        self.gateway = Gateway(session_expiry_s_max=EXPIRY_S, receive_max=3, subscriptions_max=4, in_flight_max=3)
        self.clients: list[Client] = []
        self.bystander = self.gateway.connect("bystander", level=5)
        self.bystander.subscribe("bystander/only")
        self.number = 0

    @rule(target=open, level=st.sampled_from([3, 4, 5]))
    def connection(self, level: int) -> Client:
        client = self.gateway.open(level)
        self.clients.append(client)
        return client

    @rule(target=open, level=st.sampled_from([3, 4, 5]), data=st.data())
    def connection_with_a_greeting(self, level: int, data: st.DataObject) -> Client:
        client = self.connection(level)
        client.send(data.draw(greetings(level)))
        return client

    @rule(client=open, data=st.data())
    def fitting_packets(self, client: Client, data: st.DataObject) -> None:
        packets = data.draw(st.lists(fitting(client.level), min_size=1, max_size=5))
        client.send(*packets)

    @rule(client=open, data=st.data())
    def any_packets(self, client: Client, data: st.DataObject) -> None:
        level = client.level
        packets = data.draw(st.lists(after_connect(level) | connects(level) | greetings(level), min_size=1, max_size=3))
        whole = b"".join(encode(packet, level) for packet in packets)
        at = data.draw(st.integers(0, len(whole)))
        for piece in (whole[:at], whole[at:]):
            if piece:
                client.send_bytes(piece)

    @rule(client=open, data=st.binary(min_size=1, max_size=12))
    def any_bytes(self, client: Client, data: bytes) -> None:
        client.send_bytes(data)

    @rule(client=open, is_full=st.booleans())
    def output(self, client: Client, is_full: bool) -> None:
        client.is_full = is_full
        if not is_full and not client.is_closed:
            self.gateway.rounds.begin()
            client.device.writable()
            self.gateway.round()

    @rule(client=consumes(open))
    def cut(self, client: Client) -> None:
        client.cut()

    @rule(seconds=st.sampled_from([1.0, 4.0, 16.0]))
    def time(self, seconds: float) -> None:
        self.gateway.pass_time(seconds)

    @rule(holds=st.booleans())
    def the_broker_is_slow(self, holds: bool) -> None:
        self.gateway.broker.holds_replies = holds
        self.gateway.rounds.begin()
        self.gateway.round()

    @rule(qos=QOS, name=st.sampled_from(["t", "t/1"]))
    def messages_from_elsewhere(self, qos: int, name: str) -> None:
        self.gateway.produce(name, b"x")

    @invariant()
    def the_bystander_is_served(self) -> None:
        self.bystander.send(Pingreq())
        assert Pingresp() in self.bystander.got()
        if not self.gateway.broker.holds_replies:
            self.number += 1
            self.bystander.publish("bystander/only", b"%d" % self.number)
            assert self.bystander.payloads()[-1:] == [b"%d" % self.number]

    @invariant()
    def every_connection_gets_at_most_one_connack_and_no_disconnect_without(self) -> None:
        for client in self.clients:
            kinds = [type(packet) for packet in client._got]
            assert kinds.count(Connack) <= 1
            if Disconnect in kinds:
                assert client.level == 5
                assert client.is_closed
                assert kinds.index(Disconnect) == len(kinds) - 1

    @invariant()
    def no_session_has_more_on_its_way_than_its_window(self) -> None:
        for session in self.gateway.sessions.values():
            assert session.room() >= 0
            assert len(session.incoming) - session.inherited <= 3 or not (session.device and session.device.is_v5)

    def teardown(self) -> None:
        if not hasattr(self, "gateway"):
            return
        self.gateway.broker.holds_replies = False
        for client in self.clients:
            if not client.is_closed:
                client.cut()
        self.bystander.send(Disconnect())
        self.gateway.pass_time(EXPIRY_S + 70)
        gateway: Any = self.gateway
        assert (len(gateway.connections), gateway.connections.half_open, len(gateway.sessions)) == (0, 0, 0)
        assert self.gateway.broker.filters() == []
        assert not gateway.downstream._due
        assert [shelf for shelf in gateway.downstream._leases._shelves.values() if shelf.feeds] == []


EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_SEQUENCES", "30"))
Clients.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=25)
test_whatever_clients_send_and_when_the_gateway_and_its_neighbours_go_on = Clients.TestCase
