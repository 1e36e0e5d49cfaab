from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from broker.messages.whole_records import in_places, runs_of
from broker.store.level import Level
from gateway.messages.envelope import record_properties
from penstock import errors
from penstock.errors import InvalidMessage, InvalidRequest, ReservedName
from penstock.protocol.message import (
    BODY_AT,
    BODY_BYTES_MAX,
    FLAG_RETAIN,
    IF_RETAINED,
    KEYS,
    MQTT_TOPIC,
    UNIQUE_KEY,
    Message,
    check_record,
    encode_message,
    encode_properties,
    encode_record,
    record_tail,
)
from penstock.protocol.requests.messages import Append, Refused
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import DIGITS, Run
from tests.broker.broker_rig import Rig, append
from topicmap.queues import queue_for_key


def made(**settings: Any) -> Rig:
    rig = Rig(**settings)
    rig.ask(CreateTopic("t", 4))
    return rig


class One(NamedTuple):
    topic: str
    queue_id: int
    level: Level


class Accepted(NamedTuple):
    batch: list[One]
    refused: list[Refused]


def take(rig: Rig, *records: bytes, count: int | None = None) -> Accepted:
    """What becomes of whole records."""
    runs, places, bad = runs_of(b"".join(records), len(records) if count is None else count)
    taken, destinations, refused, *_ = rig.service._acceptance.take(runs, 0)
    batch = [One(to.topic, run.queue_id, to.level) for run, to in zip(taken, destinations, strict=True)]
    return Accepted(batch, sorted([*bad, *in_places(places, refused)]))


def codes(accepted: Accepted) -> list[tuple[int, int]]:
    return [(one.at, one.code) for one in accepted.refused]


def test_a_key_decides_the_queue_and_the_same_key_always_the_same_one() -> None:
    rig = made()
    accepted = take(rig, *[encode_message(Message("t", b"x", key=f"k{n}")) for n in (1, 2, 3, 1, 2, 3)])
    assert [one.queue_id for one in accepted.batch] == [queue_for_key(f"k{n}", 4) for n in (1, 2, 3, 1, 2, 3)]


@pytest.mark.parametrize("key", [b"\xff\xfe", b"d\x017", b"d7"])
def test_a_key_of_bytes_decides_the_queue(key: bytes) -> None:
    rig = made()
    accepted = take(rig, *[encode_message(Message("t", b"x", key=key)) for _ in range(8)])
    assert {one.queue_id for one in accepted.batch} == {queue_for_key(key, 4)}


def test_messages_without_a_key_go_round() -> None:
    rig = made()
    accepted = take(rig, *[encode_message(Message("t", b"x"))] * 8)
    assert [one.queue_id for one in accepted.batch] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_queue_that_the_sender_chose_is_kept_and_must_exist() -> None:
    rig = made()
    accepted = take(rig, *[encode_message(Message("t", b"x"), queue_id=queue) for queue in (3, 4)])
    assert [one.queue_id for one in accepted.batch] == [3]
    assert codes(accepted) == [(1, InvalidRequest.code)]


def test_every_flipped_bit_of_head_lengths_and_body_is_refused_or_harmless() -> None:
    rig = made()
    good = encode_message(Message("t", b"body", key="k", mqtt_topic="a/b"))
    assert not take(rig, good).refused, "its tail is remembered now"
    broken = 0
    for place in range(4, len(good)):  # the size itself decides where the next record begins
        for bit in range(8):
            bad = bytearray(good)
            bad[place] ^= 1 << bit
            try:
                check_record(bytes(bad))
            except InvalidMessage:
                broken += 1
                assert codes(take(rig, bytes(bad), good)) == [(0, InvalidMessage.code)]
    assert broken > 8 * (4 + 4 + 4 + 4)


def test_a_batch_that_cannot_be_cut_into_its_records_is_refused_whole() -> None:
    rig = made()
    good = encode_message(Message("t", b"x"))
    for records, count in [((good,), 2), ((good, good), 1), ((good, good[:-1]), 2), ((good, b"\0" * 50), 2)]:
        with pytest.raises(InvalidRequest, match="nothing was stored"):
            take(rig, *records, count=count)


def test_a_body_over_the_limit_is_refused_even_behind_a_remembered_tail() -> None:
    rig = made()
    small = encode_message(Message("t", b"x"))
    large = encode_record(b"t", bytes(BODY_BYTES_MAX + 1), b"")
    assert small[BODY_AT + 1 :] == large[BODY_AT + BODY_BYTES_MAX + 1 :], "the same tail"
    assert codes(take(rig, small, large)) == [(1, errors.TooLarge.code)]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (encode_record(b"%sys%topics", b"x", b""), errors.ReservedName),
        (encode_record(b"a/b", b"x", b""), errors.InvalidTopic),
        (encode_record(b"\xff", b"x", b""), errors.InvalidMessage),
        (encode_record(b"t", b"x", b"\xff\x01a"), errors.InvalidMessage),
        (encode_record(b"t", b"x", b"no separator"), errors.InvalidMessage),
        (encode_record(b"t", b"x", encode_properties({MQTT_TOPIC: "a/+"})), errors.InvalidTopic),
        (encode_record(b"t", b"x", encode_properties({MQTT_TOPIC: "a\0b"})), errors.InvalidTopic),
        (encode_record(b"t", b"x", encode_properties({KEYS: "k", MQTT_TOPIC: "a"})), errors.InvalidMessage),
    ],
)
def test_what_no_reader_could_use_is_refused(record: bytes, error: type[errors.PenstockError]) -> None:
    rig = made()
    good = encode_message(Message("t", b"x"))
    for _ in range(2):
        accepted = take(rig, record, good)
        assert codes(accepted) == [(0, error.code)]
        assert len(accepted.batch) == 1


def test_a_tail_is_worked_out_anew_when_topics_change() -> None:
    rig = made(auto_create_topics=False)
    record = encode_message(Message("later", b"x"))
    assert codes(take(rig, record)) == [(0, errors.TopicNotFound.code)]
    rig.ask(CreateTopic("later", 2, "cache"))
    assert [one.level for one in take(rig, record).batch] == [Level.CACHE]


def retained(name: str, body: bytes) -> Message:
    return Message("t", body, mqtt_topic=name, retain=True)


def test_the_limit_of_retained_messages_counts_what_the_batch_itself_adds_and_removes() -> None:
    rig = made(retained_max=2)
    refused = rig.ask(
        append(retained("a", b"1"), retained("b", b"1"), retained("c", b"1"), retained("a", b"2"))
    ).refused
    assert [(one.at, one.code) for one in refused] == [(2, errors.Busy.code)]
    refused = rig.ask(append(retained("d", b"1"), retained("a", b""), retained("e", b"1"), retained("f", b"1"))).refused
    assert [one.at for one in refused] == [0, 3]
    assert sorted(name for name, _ in rig.state.retained.snapshot()) == ["b", "e"]


def test_replacing_a_retained_message_by_a_larger_one_counts_its_bytes() -> None:
    rig = made(retained_bytes_max=2000)
    assert not rig.ask(append(retained("a", bytes(1000)))).refused
    assert [one.at for one in rig.ask(append(retained("a", bytes(3000)), retained("a", bytes(900)))).refused] == [0]
    assert rig.state.retained.bytes <= 2000


def expiring(name: str, body: bytes, expiry_s: int) -> Append:
    properties = record_properties(name, "k", "c", expiry_s)
    return Append(1, False, encode_record(b"t", body, properties, flag=FLAG_RETAIN))


def test_a_retained_message_that_has_expired_takes_nobodys_room() -> None:
    for restarts in (False, True):
        rig = made(retained_max=2)
        for name, expiry_s in (("a", 10), ("b", 20)):
            assert not rig.ask(expiring(name, b"1", expiry_s)).refused
        rig.clock.now += 8
        if restarts:
            rig = rig.restarted()
        assert [one.code for one in rig.ask(append(retained("c", b"1"))).refused] == [errors.Busy.code]
        rig.clock.now += 2
        assert not rig.ask(append(retained("c", b"1"))).refused
        assert sorted(name for name, _ in rig.state.retained.snapshot()) == ["b", "c"]
        assert [one.code for one in rig.ask(append(retained("d", b"1"))).refused] == [errors.Busy.code]
        rig.clock.now += 10
        assert not rig.ask(append(retained("b", b"2"), retained("c", b"2"))).refused


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"x", mqtt_topic="$SYS/brokers/gw/version"),
        Message("t", b"", mqtt_topic="$SYS/brokers/gw/version", retain=True),
        Message("%24SYS", b"x"),
        Message("%24SYS", b"x", mqtt_topic="a/b"),
        Message("t", b"x", mqtt_topic="$SYS"),
        Message("mqtt|sessions", b"x"),
        Message("mqtt|sessions", b"x", mqtt_topic="a/b"),
    ],
)
def test_a_native_producer_never_tells_what_only_gateways_tell(message: Message) -> None:
    rig = made()
    accepted = take(rig, encode_message(message), encode_message(Message("t", b"good")))
    assert codes(accepted) == [(0, ReservedName.code)]
    assert "gateways" in accepted.refused[0].message
    assert [one.topic for one in accepted.batch] == ["t"]


def test_what_a_gateway_tells_is_taken_and_names_that_only_look_like_it_are_everybodys() -> None:
    rig = made()
    told = encode_record(b"%24SYS", b"1", record_properties("$SYS/a", "$SYS/a", "gw", 30), flag=FLAG_RETAIN)
    near = [encode_message(Message("t", b"x", mqtt_topic=name)) for name in ("$SYSTEM/a", "a/$SYS")]
    accepted = take(rig, told, *near)
    assert codes(accepted) == []
    assert len(accepted.batch) == 3


@pytest.mark.parametrize("topic", ["%sys%sessions", "%sys%offsets", "%sys%", "%sys%new"])
@pytest.mark.parametrize("name", ["", "a/b"])
def test_the_brokers_own_facts_are_nobody_elses_to_write(topic: str, name: str) -> None:
    rig = made()
    accepted = take(rig, encode_message(Message(topic, b"x", mqtt_topic=name)), encode_message(Message("t", b"good")))
    assert codes(accepted) == [(0, ReservedName.code)]
    assert [one.topic for one in accepted.batch] == ["t"]


def counting(first_id: str, count: int, **before: str) -> Run:
    """A run of the topic ``t`` whose unique ids count."""
    tail = record_tail(b"t", encode_properties({**before, UNIQUE_KEY: first_id}))
    return Run(tail, 0, 0, [b"x"] * count, counts=True)


def test_what_a_tail_means_whose_id_counts_is_worked_out_once() -> None:
    rig = made()
    acceptance = rig.service._acceptance
    runs = [counting(f"p-{number:0{DIGITS}x}", 3, KEYS="k", TAGS="red") for number in (0, 3, 0xFFFE)]
    taken, destinations, refused, stored, *_ = acceptance.take(runs, 0)
    assert (taken, refused, stored) == (runs, [], 9)
    assert len(set(map(id, destinations))) == 1
    assert {run.queue_id for run in runs} == {queue_for_key("k", 4)}


@pytest.mark.parametrize(
    "bad",
    [
        counting("p-00000000000G", 2),
        counting("p-0000000000 1", 2),
        counting("p q-000000000001", 2),
        counting("p-ffffffffffff", 2),
        counting("short", 2),
        Run(record_tail(b"t", b""), 0, 0, [b"x"], counts=True),
        Run(record_tail(b"t", encode_properties({KEYS: "k-000000000001"})), 0, 0, [b"x"], counts=True),
        Run(record_tail(b"t", b"UNIQ_KEY\x01p-000000000001\x02a\x01000000000001"), 0, 0, [b"x"], counts=True),
        Run(record_tail(b"t", b"UNIQ_KEY\x01p\x02UNIQ_KEY\x01p-000000000001"), 0, 0, [b"x"], counts=True),
        Run(b"\x00", 0, 0, [b"x"], counts=True),
        Run(record_tail(b"t", b"UNIQ_KEY\x01p-000000000001")[:-1], 0, 0, [b"x"], counts=True),
    ],
)
def test_ids_that_cannot_count_are_refused_with_all_messages_of_their_run(bad: Run) -> None:
    rig = made()
    good = counting("p-000000000007", 2)
    for _ in range(2):
        taken, _, refused, *_ = rig.service._acceptance.take([good, bad, good.of([b"y"])], 0)
        assert [(one.at, one.code) for one in refused] == [
            (2 + at, InvalidMessage.code) for at in range(len(bad.bodies))
        ]
        assert len(taken) == 2


def test_a_tail_that_counts_vouches_for_no_other() -> None:
    """What stands before its digits is a tail with wrong lengths, and a whole one may stand before digits."""
    rig = made()
    acceptance = rig.service._acceptance
    good, plain = counting("p-000000000007", 2), record_tail(b"t", b"")
    acceptance.take([good, Run(plain, 0, 0, [b"x"])], 0)
    bad = [Run(good.tail[:-DIGITS], 0, 0, [b"x"]), Run(plain + b"0" * DIGITS, 0, 0, [b"x"], counts=True)]
    taken, _, refused, *_ = acceptance.take(bad, 0)
    assert (taken, [one.at for one in refused]) == ([], [0, 1])


def test_a_retained_message_that_names_what_it_replaces_replaces_nothing_else() -> None:
    rig = made()

    def conditional(position: str, body: bytes = b"x") -> bytes:
        properties = encode_properties({MQTT_TOPIC: "t/a", IF_RETAINED: position})
        return encode_record(b"t", body, properties, flag=FLAG_RETAIN)

    def stored(*records: bytes) -> Any:
        return rig.ask(Append(len(records), True, b"".join(records)))

    first = stored(conditional("0"), conditional("0"))
    assert [(one.at, one.code) for one in first.refused] == [(1, errors.RetainedChanged.code)]
    position = first.placed[0].position
    assert stored(conditional("0")).refused
    assert stored(conditional(str(position + 1))).refused
    assert stored(conditional("soon")).refused[0].code == errors.InvalidMessage.code
    assert not stored(conditional(str(position), b"")).refused
    assert stored(conditional(str(position))).refused
    assert not stored(conditional("0")).refused
