"""Hypothesis strategies for legal MQTT packets of every kind and level."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import NO_PROPERTIES, TABLE, Properties
from gateway.mqtt.reason_codes import ALLOWED

_CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
TEXTS = st.text(_CHARACTERS, max_size=12)
NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0+#"), min_size=1, max_size=12)
FILTERS = st.one_of(NAMES, st.sampled_from(["#", "+", "a/+/b", "a/#", "/", "$share/g/a/#"]))
PACKET_IDS = st.integers(1, 65_535)
PAYLOADS = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(100), bytes(200), bytes(17_000)]))

_TEXT_LIKE = {"content_type", "assigned_client_identifier", "authentication_method", "response_information"}
_TEXT_LIKE |= {"server_reference", "reason_string"}
_WORDS = {"server_keep_alive", "topic_alias_maximum", "topic_alias"}
_SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "response_topic": NAMES,
    "correlation_data": st.binary(max_size=9),
    "authentication_data": st.binary(max_size=9),
    "subscription_identifiers": st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple),
    "user_properties": st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3).map(tuple),
    "receive_maximum": st.integers(1, 65_535),
    "maximum_packet_size": st.integers(1, 2**32 - 1),
    "message_expiry_interval": st.integers(0, 2**32 - 1),
    "session_expiry_interval": st.integers(0, 2**32 - 1),
    "will_delay_interval": st.integers(0, 2**32 - 1),
}


def _values(name: str) -> st.SearchStrategy[Any]:
    if name in _SPECIAL:
        return _SPECIAL[name]
    if name in _TEXT_LIKE:
        return TEXTS
    return st.integers(0, 65_535) if name in _WORDS else st.integers(0, 1)


def properties(packet: int, level: int) -> st.SearchStrategy[Properties]:
    """Any property block that a packet type may carry at a level."""
    if level < 5:
        return st.just(NO_PROPERTIES)
    legal = [row.name for row in TABLE if packet in row.packets]
    if packet == 8:
        legal.remove("subscription_identifiers")  # at most one there
    made = st.fixed_dictionaries({}, optional={name: _values(name) for name in legal}).map(
        lambda given: Properties(**given)
    )
    return made.map(lambda one: NO_PROPERTIES if one == NO_PROPERTIES else one)


def reasons(packet: int, level: int) -> st.SearchStrategy[int]:
    """Any reason code that a packet type may carry at a level."""
    return st.sampled_from(sorted(ALLOWED[packet])) if level >= 5 else st.just(0)


@st.composite
def connects(draw: st.DrawFn, level: int) -> Connect:
    will = None
    if draw(st.booleans()):
        will = Will(
            draw(NAMES),
            draw(st.binary(max_size=9)),
            draw(st.integers(0, 2)),
            draw(st.booleans()),
            draw(properties(0, level)),
        )
    user_name = draw(st.none() | TEXTS)
    password = draw(st.none() | st.binary(max_size=9)) if level >= 5 or user_name is not None else None
    given = draw(properties(1, level))
    if given.authentication_method is None and given.authentication_data is not None:
        given = NO_PROPERTIES
    keep_alive_s = draw(st.integers(0, 65_535))
    return Connect(draw(TEXTS), draw(st.booleans()), keep_alive_s, user_name, password, will, given, level)


@st.composite
def publishes(draw: st.DrawFn, level: int) -> Publish:
    qos = draw(st.integers(0, 2))
    given = draw(properties(3, level))
    name = draw(st.just("") | NAMES) if given.topic_alias is not None else draw(NAMES)
    dup = draw(st.booleans()) if qos else False
    packet_id = draw(PACKET_IDS) if qos else 0
    return Publish(name, draw(PAYLOADS), qos, draw(st.booleans()), dup, packet_id, given)


@st.composite
def subscribes(draw: st.DrawFn, level: int) -> Subscribe:
    made = []
    for topic_filter in draw(st.lists(FILTERS, min_size=1, max_size=4)):
        options = [draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 2))] if level >= 5 else []
        if topic_filter.startswith("$share/"):
            options[:1] = [False] if options else []
        made.append(Subscription(topic_filter, draw(st.integers(0, 2)), *options))
    return Subscribe(draw(PACKET_IDS), tuple(made), draw(properties(8, level)))


def _answers(make: Any, packet: int, level: int) -> st.SearchStrategy[Any]:
    return st.builds(make, PACKET_IDS, reasons(packet, level), properties(packet, level))


def _lists(packet: int, level: int) -> st.SearchStrategy[Any]:
    old = st.sampled_from([0, 1, 2, 0x80])
    return st.lists(reasons(packet, level) if level >= 5 else old, min_size=1, max_size=4).map(tuple)


@st.composite
def _connacks(draw: st.DrawFn, level: int) -> Connack:
    code = draw(reasons(2, level) if level >= 5 else st.integers(0, 5))
    return Connack(draw(st.booleans()) if not code else False, code, draw(properties(2, level)))


def after_connect(level: int) -> st.SearchStrategy[Packet]:
    """Any legal packet of a level but CONNECT."""
    every = [
        _connacks(level),
        publishes(level),
        _answers(Puback, 4, level),
        _answers(Pubrec, 5, level),
        _answers(Pubrel, 6, level),
        _answers(Pubcomp, 7, level),
        subscribes(level),
        st.builds(Suback, PACKET_IDS, _lists(9, level), properties(9, level)),
        st.builds(Unsubscribe, PACKET_IDS, st.lists(FILTERS, min_size=1, max_size=4).map(tuple), properties(10, level)),
        st.builds(Unsuback, PACKET_IDS, _lists(11, level) if level >= 5 else st.just(()), properties(11, level)),
        st.just(Pingreq()),
        st.just(Pingresp()),
        st.builds(Disconnect, reasons(14, level), properties(14, level)),
    ]
    if level >= 5:
        with_method = properties(15, level).filter(lambda one: one.authentication_method is not None)
        every += [st.just(Auth()), st.builds(Auth, reasons(15, level), with_method)]
    return st.one_of(every)


def streams(level: int) -> st.SearchStrategy[list[Packet]]:
    """A CONNECT and some packets after it."""
    return st.tuples(connects(level), st.lists(after_connect(level), max_size=6)).map(lambda both: [both[0], *both[1]])
