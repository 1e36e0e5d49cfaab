"""Bad inputs that have brought down other brokers, numbered; each on a whole gateway with a bystander beside it.

An attack is a function that is given the siege, attacks, and says what must be so. Afterwards the bystander is served
and nothing of the attackers is left. Where an attack needs sockets or another part, ``ELSEWHERE`` names its test.
"""

from __future__ import annotations

import gc
import logging
import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig import Client, Gateway

from gateway.login.auth import Anonymous, Credentials, Identity, Peer
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Subscribe,
    Subscription,
    Will,
)
from gateway.mqtt.properties import Properties
from gateway.settings import GatewaySettings
from penstock.errors import Busy, InvalidConfig
from penstock.protocol.requests.filters import FetchRetained
from tests.conformance.wire_cases import block, connect, number, packet, text
from tests.gateway.mqtt.mutation import mutated

ROOT = Path(__file__).parents[2]


class Siege:
    """A gateway, a bystander, and as many hostile connections as wanted."""

    def __init__(self, authenticator: Any = None, **settings: Any) -> None:
        self.gateway = Gateway(authenticator, **settings)
        self.bystander = self.gateway.connect("bystander", level=5)
        self.bystander.subscribe("bystander/#")
        self.number = 0
        self.opened: list[Client] = []

    def open(self, level: int = 5) -> Client:
        self.opened.append(self.gateway.open(level))
        return self.opened[-1]

    def connect(self, client_id: str = "hostile", *, level: int = 5, **asked: Any) -> Client:
        client = self.open(level)
        client.send(Connect(client_id, level=level, **asked))
        assert client.got_one(Connack).reason_code == 0
        return client

    def bystander_is_served(self) -> None:
        self.number += 1
        self.bystander.publish("bystander/x", b"%d" % self.number)
        assert self.bystander.payloads() == [b"%d" % self.number]

    def end(self) -> None:
        """Everybody hostile leaves; nothing of them is left but what the bystander has."""
        self.bystander_is_served()
        for client in self.opened:
            if not client.is_closed:
                client.cut()
        self.gateway.pass_time(1)
        connections = self.gateway.connections
        assert (len(connections), connections.half_open) == (1, 0)


def told(client: Client) -> int | None:
    """The reason of the DISCONNECT with which a connection was closed."""
    assert client.is_closed
    return next((one.reason_code for one in client.got() if isinstance(one, Disconnect)), None)


def grown(what: Callable[[], object]) -> int:
    """Bytes that are in use after it and were not before; caches are warm already."""
    what()
    tracemalloc.start()
    try:
        what()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        what()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def calls(what: Callable[[], object]) -> int:
    """How many calls of functions it takes: work, measured without a clock."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        what()
    finally:
        sys.setprofile(None)
    return count


def attack_01_a_huge_length_before_connect_allocates_nothing() -> None:
    siege = Siege()
    lines = [siege.open() for _ in range(500)]
    tracemalloc.start()
    for line in lines[:250]:
        line.send_bytes(b"\x10\xff\xff\xff\x7f" + bytes(100))
    for line in lines[250:]:
        line.send_bytes(b"\x10\xff\xfe\x03" + bytes(100))  # just below 64 KiB: allowed, and not there yet
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 250 * 4096
    assert [line.is_closed for line in lines] == [True] * 250 + [False] * 250
    siege.end()


def attack_02_slow_loris_has_no_more_time_than_anybody() -> None:
    siege = Siege(connect_wait_s=5.0)
    line, silent = siege.open(), siege.open()
    for byte in connect(0x02, b"\x00", text("c" * 50), level=5)[:9]:
        line.send_bytes(bytes((byte,)))
        siege.gateway.pass_time(1)
    assert line.is_closed
    assert silent.is_closed
    assert line.got() == silent.got() == []
    siege.end()


def attack_02_what_a_connection_had_of_a_packet_goes_with_it() -> None:
    siege = Siege()

    def come_and_go() -> None:
        for at in range(20):
            line = siege.gateway.open(4)
            line.send_bytes(b"\x10\xf0\xff\x03" + bytes(60_000))  # of a CONNECT, for which there were 10 s more
            line.cut()
            line = siege.gateway.connect(f"c{at}", level=4, keep_alive_s=60)
            line.send_bytes(b"\x30" + number(200_000) + text("a") + bytes(150_000))  # and 60 s, of a PUBLISH
            line.cut()
        siege.gateway.round()
        siege.gateway.broker.requests.clear()

    assert grown(come_and_go) < 200_000
    siege.end()


def attack_03_integers_of_five_bytes_and_property_overruns_are_malformed() -> None:
    siege = Siege()
    for data in (
        b"\x30\x80\x80\x80\x80\x01",
        packet(0x30, text("a"), b"\xff\xff\xff\xff\x7f"),
        packet(0x30, text("a"), b"\x05\x26\x00\x01k\x00"),
        packet(0x82, b"\x00\x01", b"\x7f", text("a"), b"\x00"),
        packet(0xE0, b"\x00\xff\xff\xff\xff\x7f"),
    ):
        client = siege.connect()
        client.send_bytes(data)
        assert told(client) == 0x81
    siege.end()


def attack_04_a_packet_that_announces_more_than_ever_comes_waits_and_is_given_up() -> None:
    siege = Siege()
    client = siege.connect(keep_alive_s=10)
    client.send_bytes(b"\x30" + number(500_000) + text("a"))
    siege.gateway.pass_time(20)
    assert told(client) == 0x8D
    assert siege.gateway.broker.bodies() == []
    siege.end()


def attack_05_publish_with_an_empty_topic() -> None:
    siege = Siege()
    for level in (3, 4, 5):
        for flags in (0x30, 0x32):
            client = siege.connect(level=level)
            packet_id = b"\x00\x01" if flags == 0x32 else b""
            client.send_bytes(packet(flags, text(""), packet_id, b"\x00" if level == 5 else b""))
            assert told(client) == (0x82 if level == 5 else None)
    siege.end()


def attack_06_packets_that_only_a_server_sends() -> None:
    siege = Siege()
    for data in (b"\x20\x03\x00\x00\x00", b"\x90\x04\x00\x01\x00\x00", b"\xb0\x04\x00\x01\x00\x00", b"\xd0\x00"):
        client = siege.connect()
        client.send_bytes(data)
        assert told(client) == 0x82
    siege.end()


def attack_07_any_packet_before_connect() -> None:
    siege = Siege()
    for kind in [*range(1), *range(2, 16)]:
        for flags in (0, 2):
            client = siege.open()
            client.send_bytes(packet(kind << 4 | flags, b"\x00\x01\x00\x00"))
            assert client.is_closed
            assert client.got() == []
    siege.end()


def attack_08_connects_with_broken_will_properties_leak_nothing() -> None:
    siege = Siege()
    wills = (b"\x05\x18\x00\x00\x00", b"\x02\x23\x01", b"\x7f", block(b"\x01\x02"), block(b"\x26" + text("k")))

    def bad_connects() -> None:
        for at in range(200):
            line = siege.gateway.open(5)
            line.send_bytes(connect(0x06, b"\x00", text("c"), wills[at % 5], text("w"), text("x"), level=5))
            assert line.is_closed
        siege.gateway.pass_time(11)

    assert grown(bad_connects) < 20_000
    siege.end()


def attack_09_thousands_of_user_properties_cost_linear_work_and_are_refused() -> None:
    siege = Siege()

    def publication(count: int) -> bytes:
        return packet(0x32, text("a"), b"\x00\x01", block(b"\x26\x00\x01k\x00\x01v" * count))

    work = []
    for count in (1000, 2000, 4000):
        client = siege.connect()
        work.append(calls(lambda client=client, count=count: client.send_bytes(publication(count))))  # type: ignore[misc]
        assert client.got_one(Puback).reason_code == 0x97
    assert work[2] - work[1] < 2.5 * (work[1] - work[0])
    siege.end()


def attack_10_a_will_delay_beyond_the_session_expiry() -> None:
    siege = Siege()
    for delay, expiry in ((0xFFFF_FFFF, 5), (10, 0), (0xFFFF_FFFF, 0)):
        will = Will("w", b"gone", properties=Properties(will_delay_interval=delay))
        siege.connect(will=will, properties=Properties(session_expiry_interval=expiry)).cut()
        siege.gateway.pass_time(expiry + 2)
    assert siege.gateway.broker.bodies() == [b"gone"] * 3
    siege.end()


def attack_11_qos_2_exchanges_that_are_never_completed_are_bounded() -> None:
    siege = Siege(receive_max=50)
    client = siege.connect()
    client.send(*[Publish("t", b"", 2, packet_id=at) for at in range(1, 101)])
    got = client.got()
    assert [one for one in got if isinstance(one, Pubrec)] in ([], [Pubrec(at) for at in range(1, 51)])
    assert got[-1] == Disconnect(0x93) or (isinstance(got[-1], Disconnect) and got[-1].reason_code == 0x93)
    old = siege.connect("old", level=4)
    for at in range(200):
        old.publish("t", b"", 2, packet_id=1 + at % 50)
    assert old.device.session is not None
    assert len(old.device.session.incoming) == 50
    siege.end()


def attack_12_a_topic_of_65535_separators_is_refused_without_recursion() -> None:
    siege = Siege(connect_packet_bytes_max=200_000)
    deep = "/" * 65_535
    client = siege.connect()
    client.publish(deep, b"", 1, packet_id=1)
    assert client.got_one(Puback).reason_code == 0x90
    assert client.subscribe(deep, deep[:-1] + "#", "+/" * 30_000 + "#").reason_codes == (0x8F, 0x8F, 0x8F)
    refused = siege.open()
    refused.send(Connect("w", level=5, will=Will(deep, b"")))
    assert refused.got_one(Connack).reason_code == 0x90
    siege.end()


def attack_13_pathological_filters_cost_no_more_than_their_number() -> None:
    siege = Siege()
    client = siege.connect()
    filters = ["/".join(["+" if at >> bit & 1 else "a" for bit in range(6)] * 10) + "/#" for at in range(64)]
    assert client.subscribe(*filters, qos=0).reason_codes == (0,) * 64
    name = "/".join(["a"] * 60 + ["x"])
    siege.bystander.publish(name)
    one = calls(lambda: siege.bystander.publish(name))
    ten = calls(lambda: [siege.bystander.publish(name) for _ in range(10)])
    assert ten < 12 * one
    assert one < 64 * 1000
    siege.end()


def attack_14_a_wildcard_over_many_retained_messages_goes_page_by_page() -> None:
    siege = Siege()
    maker = siege.connect("maker")
    for at in range(3000):
        maker.publish(f"r/{at}", b"x", retain=True)
    client = siege.connect("greedy", properties=Properties(receive_maximum=5))
    asked = len(siege.gateway.broker.made(FetchRetained))
    client.subscribe("r/#", "#")
    siege.gateway.pass_time(5)
    pages = siege.gateway.broker.made(FetchRetained)[asked:]
    assert max(page.count_max for page in pages) <= 1000
    client.is_full = True
    siege.bystander_is_served()
    siege.end()


def attack_15_a_flood_of_retained_topics_meets_the_brokers_limit() -> None:
    siege = Siege()
    client = siege.connect()
    client.publish("r", b"warm")
    for at in range(3):
        siege.gateway.broker.refused_records = {0: Busy("retained_max is reached")}
        client.publish(f"r/{at}", b"x", 1, packet_id=1, retain=True)
        assert client.got_one(Puback).reason_code == 0x97
    assert siege.gateway.broker.retained() == []
    siege.end()


def attack_16_crafted_disconnects_and_short_packets() -> None:
    siege = Siege()
    for data in (
        b"\xe0\x01\xff",
        b"\xe0\x02\x00\x05",
        b"\xe0\x03\x00\x01\x1f",
        b"\xe0\x06\x00\x05\x11\x00\x00\x00",
        b"\xe2\x00",
        b"\x40\x00",
        b"\x62\x01\x00",
        b"\xf0\x01\x18",
    ):
        client = siege.connect()
        client.send_bytes(data)
        assert told(client) in (0x81, 0x82)
    rng = random.Random(16)
    legal = [encode(Disconnect(4, Properties(session_expiry_interval=1, reason_string="x")), 5)]
    for one in range(300):
        siege.connect(f"hostile{one}").send_bytes(mutated(rng, legal) or b"\xe0")
    siege.end()


def attack_17_a_storm_of_takeovers_leaves_one_owner() -> None:
    siege = Siege()
    beside = Gateway(beside=siege.gateway, name="gw2")
    rng = random.Random(17)
    clients: list[Client] = []
    for at in range(300):
        gateway = rng.choice([siege.gateway, beside])
        client = gateway.open(rng.choice((4, 5)))
        clients.append(client)
        clean = rng.random() < 0.2
        properties = Properties(session_expiry_interval=60) if client.level == 5 else Properties()
        client.send(
            Connect(
                "same",
                clean,
                level=client.level,
                will=Will("w", b"") if rng.random() < 0.3 else None,
                properties=properties,
            ),
            Subscribe(1, (Subscription("t", 1),)),
            Publish("t", b"%d" % at, 1, packet_id=1),
        )
        siege.gateway.round()
        beside.round()
        if rng.random() < 0.2 and not client.is_closed:
            client.cut()
        if at % 10 == 0:
            siege.gateway.pass_time(0.5)
            beside.pass_time(0.5)
            assert sum(not one.is_closed for one in clients) <= 1
    for one in clients:
        if not one.is_closed:
            one.cut()
    assert len(beside.connections) == 0
    siege.end()


def attack_18_keep_alive_of_0_or_18_hours_is_cut_where_the_operator_says_so() -> None:
    siege = Siege(keep_alive_s_max=60)
    siege.bystander.cut()
    siege.bystander = siege.gateway.connect("bystander", level=5)
    siege.bystander.subscribe("bystander/#")
    for asked in (0, 65_535):
        client = siege.open()
        client.send(Connect(f"k{asked}", level=5, keep_alive_s=asked))
        assert client.got_one(Connack).properties.server_keep_alive == 60
    for _ in range(10):
        siege.gateway.pass_time(10)
        siege.bystander.send(Pingreq())
        assert siege.bystander.got() == [Pingresp()]
    assert [client.is_closed for client in siege.opened] == [True, True]
    siege.end()


class Own:
    """Everybody has the topics below its own id; rights may be taken away, and an id belongs to one user."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    def connect(self, shown: Credentials, done: Callable[[Identity | int], None]) -> None:
        stolen = shown.client_id == "victim" and shown.password != b"right"
        done(0x86 if stolen else Identity(shown.client_id, shown.user_name or ""))

    def may_connect(self, identity: Identity, peer: Peer) -> bool:
        return True

    def may_stay(self, identity: Identity) -> bool:
        return True

    def takes_back(self, identity: Identity, user_name: str) -> bool:
        return False

    def may_publish(self, identity: Identity, name: str) -> bool:
        if identity.client_id == "bystander":
            return not name.startswith("$")
        return self.may_subscribe(identity, name)

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        return identity.client_id not in self.revoked and filter.startswith(identity.client_id + "/")

    def is_gone(self, identity: Identity) -> bool:
        return False

    def may_position(self, identity: Identity, name: str) -> bool:
        return not name.startswith("secret")


def attack_18_what_is_gone_is_forgotten_however_far_off_it_was_due() -> None:
    siege = Siege()
    log = siege.gateway.broker.rig.store
    ends: list[int] = []
    will = Will("w", bytes(5000), properties=Properties(will_delay_interval=0xFFFF_FFFF))

    def come_and_go() -> None:
        for _ in range(50):
            kept = Properties(session_expiry_interval=600_000)
            line = siege.gateway.connect(
                "same", level=5, clean_start=False, keep_alive_s=65_535, will=will, properties=kept
            )
            line.cut()
        siege.gateway.pass_time(70)
        siege.gateway.broker.requests.clear()
        ends.append(log.written)

    in_memory = grown(come_and_go)
    stored = ends[-1] - ends[-2]  # the simulated disk has it twice in memory: as written, and as synced
    assert in_memory - 2 * stored < 50_000
    siege.gateway.connect("same", level=5).send(Disconnect())
    siege.end()


def attack_19_a_client_id_with_wildcards_is_just_a_client_id() -> None:
    siege = Siege(Own())
    for client_id in ("+", "#", "+/+", "a/#", "$share"):
        client = siege.connect(client_id)
        assert client.subscribe("victim/x", "bystander/x").reason_codes == (0x87, 0x87)
        client.publish("victim/x", b"", 1, packet_id=1)
        assert client.got_one(Puback).reason_code == 0x87
        client.cut()
    siege.end()


def attack_20_rights_that_were_taken_away_do_not_come_back_with_the_session() -> None:
    rights = Own()
    siege = Siege(rights)
    kept = {"clean_start": False, "properties": Properties(session_expiry_interval=60)}
    client = siege.connect("c", **kept)
    assert client.subscribe("c/#", qos=1).reason_codes == (1,)
    client.cut()
    rights.revoked.add("c")
    siege.bystander.publish("c/x", b"secret", 1, packet_id=9)
    again = siege.connect("c", **kept)
    siege.bystander.publish("c/x", b"secret", 1, packet_id=9)
    siege.gateway.pass_time(2)
    assert siege.bystander.got() == [Puback(9), Puback(9)]
    assert again.payloads() == []
    again.publish("c/x", b"", 1, packet_id=1)
    assert again.got_one(Puback).reason_code == 0x87
    siege.end()


def attack_21_without_a_rule_nobody_comes_in() -> None:
    gateway = Gateway(Anonymous("nobody"))
    for asked in ({}, {"user_name": ""}, {"user_name": "u", "password": b""}):
        client = gateway.open(5)
        client.send(Connect("c", level=5, **asked))  # type: ignore[arg-type]
        assert client.got_one(Connack).reason_code in (0x86, 0x87)
    far = Gateway(Anonymous("loopback")).open(5, peer="192.0.2.1")
    far.send(Connect("c", level=5))
    assert far.got_one(Connack).reason_code == 0x87
    for who in ("", "all", "Everyone"):
        with pytest.raises(InvalidConfig):
            GatewaySettings(anonymous=who)


def attack_22_nobody_publishes_through_a_will_or_a_failed_login() -> None:
    siege = Siege(Own())
    victim = siege.connect("victim", password=b"right", user_name="v", will=Will("victim/w", b"mine"))
    for asked in (
        Connect("victim", level=5, will=Will("victim/w", b"forged")),
        Connect("other", level=5, will=Will("victim/w", b"forged")),
        Connect("other", level=5, will=Will("$CONTROL/x", b"forged")),
    ):
        client = siege.open()
        client.send(asked)
        assert client.got_one(Connack).reason_code in (0x86, 0x87)
    assert not victim.is_closed
    assert siege.gateway.broker.bodies() == []
    siege.end()


def attack_23_whoever_may_not_use_an_id_cannot_kick_its_owner() -> None:
    siege = Siege(Own(), connects_per_s_max=5)
    victim = siege.connect("victim", user_name="v", password=b"right")
    codes = []
    for _ in range(50):
        thief = siege.open()
        thief.send(Connect("victim", level=5, user_name="thief", password=b"wrong"))
        codes.append(thief.got_one(Connack).reason_code)
    assert set(codes) == {0x86, 0x9F}
    assert not victim.is_closed
    siege.end()
    siege = Siege(takeovers_per_min_max=5)  # who may use it cannot take it for ever either
    holders = [siege.connect("shared") for _ in range(6)]
    for _ in range(20):
        rival = siege.open()
        rival.send(Connect("shared", level=5))
        assert rival.got_one(Connack).reason_code == 0x9F
    assert [one.is_closed for one in holders] == [True] * 5 + [False]
    siege.end()


def attack_24_nobody_publishes_to_the_systems_topics() -> None:
    siege = Siege()
    client = siege.connect()
    for name in ("$SYS/x", "$CONTROL/dynamic-security/v1", "$share/g/t", "$", "$queue/t"):
        client.publish(name, b"", 1, packet_id=1, retain=True)
        assert client.got_one(Puback).reason_code in (0x87, 0x90)
    assert siege.gateway.broker.messages() == []
    siege.end()


def attack_25_subscription_bombs_meet_their_quotas() -> None:
    siege = Siege(subscriptions_max=20, filters_per_packet_max=50)
    client = siege.connect()
    codes = client.subscribe(*[f"f/{at}/#" for at in range(40)]).reason_codes
    assert codes == (2,) * 20 + (0x97,) * 20
    assert client.subscribe(*["#"] * 30).reason_codes == (0x97,) * 30
    client.send(Subscribe(2, tuple(Subscription(f"g/{at}") for at in range(60))))
    assert told(client) == 0x97
    siege.end()


def attack_25_overlapping_filters_cost_their_number_and_not_its_square() -> None:
    work = []
    for count in (30, 60):
        siege = Siege()
        client, publisher = siege.connect(), siege.connect("publisher")
        filters = ["/".join(["+" if at >> bit & 1 else "a" for bit in range(7)]) + "/#" for at in range(count)]
        client.subscribe(*filters, qos=0)
        names = ["/".join(["a"] * 7 + [str(at)]) for at in range(300)]
        publisher.publish(names[0])
        publications = [Publish(name, b"") for name in names]
        work.append(calls(lambda publisher=publisher, made=publications: publisher.send(*made)))  # type: ignore[misc]
        assert [one.topic for one in client.got() if isinstance(one, Publish)] == [names[0], *names]
        siege.end()
    assert work[1] < 3 * work[0]


def attack_26_a_client_that_never_reads_costs_a_bounded_amount() -> None:
    siege = Siege()
    slow = siege.connect("slow")
    slow.subscribe("t", qos=1)
    slow.is_full = True
    publisher = siege.connect("publisher")
    for at in range(500):
        publisher.publish("t", bytes(1000), 1, packet_id=1 + at)
    assert [one for one in slow.got() if isinstance(one, Publish)] == []
    assert slow.device.session is not None
    assert len(slow.device.session.in_flight) == 0
    siege.end()


def attack_27_a_flood_of_qos_0_is_read_no_faster_than_it_is_stored() -> None:
    siege = Siege(unstored_bytes_max=50_000)
    client = siege.connect()
    client.publish("t", b"warm")
    siege.gateway.broker.holds_replies = True
    sent = 0
    while client.is_read:
        client.publish("t", bytes(1000))
        sent += 1
        assert sent < 200
    siege.gateway.broker.holds_replies = False
    siege.gateway.round()
    assert client.is_read
    fast = Siege(messages_per_s_max=10, over_rate="close").connect()
    for _ in range(100):
        if not fast.is_closed:
            fast.publish("t")
    assert told(fast) == 0x96
    siege.end()


def attack_28_strings_that_are_no_utf8() -> None:
    siege = Siege()
    for raw in (b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff\xfe", b"a\x00", b"\xc0\x80"):
        for data in (
            packet(0x30, text(raw), b"\x00"),
            packet(0x82, b"\x00\x01\x00", text(raw), b"\x00"),
            packet(0x30, text("a"), block(b"\x26" + text("k") + text(raw))),
        ):
            client = siege.connect()
            client.send_bytes(data)
            assert told(client) == 0x81
    for name in ("\ufeffa", "a\U0001f321"):
        client = siege.connect()
        client.publish(name, b"", 1, packet_id=1)
        assert client.got_one(Puback).reason_code == 0
    siege.end()


def attack_32_a_clock_that_jumps_closes_nobody_and_ends_no_session() -> None:
    siege = Siege()
    clock: Any = siege.gateway.clock
    client = siege.connect("c", keep_alive_s=60, properties=Properties(session_expiry_interval=60))
    for jump_ms in (365 * 86_400_000, -365 * 86_400_000):
        wall = clock.wall_ms
        clock.wall_ms = lambda wall=wall, jump_ms=jump_ms: wall() + jump_ms
        siege.gateway.pass_time(5)
        assert not client.is_closed
        siege.bystander_is_served()
    siege.end()


def attack_34_neither_password_nor_payload_reaches_a_log(caplog: Any, capfd: Any) -> None:
    siege = Siege(Own())
    with caplog.at_level(logging.DEBUG):
        line = siege.open()
        line.send(Connect("victim", level=5, user_name="v", password=b"hunter2"))
        assert line.got_one(Connack).reason_code == 0x86
        client = siege.connect("c")
        client.publish("other/x", b"top-secret", 1, packet_id=1)
        client.send_bytes(packet(0x36, text("c/x"), b"top-secret"))
    said = caplog.text + "".join(capfd.readouterr()) + repr(Credentials("c", "u", b"hunter2", line.device.peer))
    assert "hunter2" not in said
    assert "top-secret" not in said
    siege.end()


def attack_35_names_that_look_like_queues_or_paths_stay_what_they_are() -> None:
    siege = Siege()
    client = siege.connect()
    names = [
        "a/b",
        "a%b",
        "a%2Fb",
        "a,b",
        "a/b/",
        "/a/b",
        "a//b",
        "../a",
        "~filter:a",
        "a:0",
        "%LMQ%a",
        "é",
        "e\u0301",
        "A/b",
    ]
    for name in names:
        client.subscribe(name, qos=0)
    for name in names:
        client.publish(name, name.encode())
    got = [(one.topic, one.payload.decode()) for one in client.got() if isinstance(one, Publish)]
    assert got == [(name, name) for name in names]
    stored = siege.gateway.broker.messages()
    assert [message.name for message in stored] == names
    siege.end()


ATTACKS = {name: one for name, one in sorted(globals().items()) if name.startswith("attack_")}

# Attacks that need sockets, files or another part of the system -> their tests, beside the one here where there is one.
ELSEWHERE = {
    19: "tests/gateway/login/test_access.py::test_an_id_with_a_wildcard_gains_nothing",
    20: "tests/gateway/login/test_access.py::test_a_resumed_session_keeps_only_what_it_may_still_have",
    21: "tests/penstock/access/test_acl.py::test_without_a_rule_the_answer_is_no",
    22: "tests/gateway/login/test_access.py::test_a_will_that_is_not_allowed_is_refused_at_connect_and_never_published",
    26: "tests/gateway/test_server.py::test_a_client_that_does_not_read_is_bounded_and_others_are_served",
    29: "tests/endtoend/test_attacks.py::test_29_websocket_frames_where_none_are_spoken",
    30: "tests/endtoend/test_attacks.py::test_30_tls_where_none_is_spoken",
    31: "tests/endtoend/test_attacks.py::test_31_a_proxy_header_is_believed_by_nobody",
    33: "tests/broker/store/test_recovery.py::test_harm_to_any_one_derived_file_changes_nothing",
    34: "tests/penstock/access/test_passwords.py::test_a_hash_is_not_shown",
}


@pytest.mark.mqtt("4.13.1-1", old=("4.8.0-1",))
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_gateway_survives(attack: str, request: pytest.FixtureRequest) -> None:
    run: Any = ATTACKS[attack]
    wanted = run.__code__.co_varnames[: run.__code__.co_argcount]
    run(*[request.getfixturevalue(name) for name in wanted])


def test_all_thirty_five_attacks_have_a_test() -> None:
    here = {int(name.split("_")[1]) for name in ATTACKS}
    assert here | set(ELSEWHERE) == set(range(1, 36))
    for place in ELSEWHERE.values():
        file, _, test = place.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text()
