from __future__ import annotations

from broker.messages.dead_letters import REASON_BYTES_MAX, DeadLetters, attempts_of
from penstock.protocol import runs
from penstock.protocol.compression import COMPRESSED, ZSTD, compress
from penstock.protocol.message import Message, decode_message, encode_message
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig, append
from tests.broker.store.store_rig import record_of


def test_a_dead_letter_is_the_message_with_its_origin_and_the_reason() -> None:
    rig = Rig(auto_create_topics=False)
    record = encode_message(
        Message("orders", b"b", key="k", tag="g", properties={"p": "v"}, mqtt_topic="orders/1", retain=True), born_ms=5
    )
    letter = DeadLetters(rig.service.topics).letter("billing", record, "no\x01\x02way", 7, 3, ORIGIN_OFFSET="9")
    found = decode_message(record_of(letter))
    assert (found.topic, found.body, found.key, found.tag, found.born_ms) == ("%DLQ%billing", b"b", "k", "g", 5)
    origin = {"ORIGIN_TOPIC": "orders", "ORIGIN_NAME": "orders/1", "ORIGIN_OFFSET": "9"}
    assert dict(found.properties) == {"p": "v", "REASON": "no  way"} | origin
    assert (found.mqtt_topic, found.retain) == ("", False)
    assert rig.service.topics.queue_count("%DLQ%billing") == 1


def test_a_dead_letter_that_dies_again_keeps_its_first_origin_and_a_reason_is_bounded() -> None:
    rig = Rig()
    letters = DeadLetters(rig.service.topics)
    first = letters.letter("g", encode_message(Message("orders", b"b")), "first", 1, 0)
    second = decode_message(record_of(letters.letter("h", record_of(first), "é" * 5_000, 1, 0)))
    assert second.properties["ORIGIN_TOPIC"] == "orders"
    assert len(second.properties["REASON"].encode()) == REASON_BYTES_MAX


def test_no_client_makes_or_fills_a_topic_of_the_brokers_own() -> None:
    rig = Rig()
    refused = rig.ask(CreateTopic("%DLQ%billing", 1, "disk"))
    assert "the broker makes" in str(refused)


def test_devices_see_neither_retries_nor_dead_letters() -> None:
    rig = Rig()
    rig.ask(OpenFilters("gateway", ("#",)))
    letters = DeadLetters(rig.service.topics)
    record = encode_message(Message("orders", b"b", mqtt_topic="orders/1"))
    at = rig.store.bounds("~filter:#").min
    rig.store.append([letters.letter("g", record, "", 1, 0), letters.retry("g", record, "", 1, 1)], 1)
    rig.ask(append(Message("orders", b"seen", mqtt_topic="orders/1")))
    assert rig.bodies("~filter:#", at) == [b"seen"]


def test_a_retry_says_how_often_it_was_tried_and_is_stored_as_it_was_made() -> None:
    letters = DeadLetters(Rig().service.topics)
    first = letters.retry("g", encode_message(Message("orders", b"b")), "why", 1, 1)
    second = letters.retry("g", record_of(first), "why", 1, 2)
    assert [attempts_of(record_of(one)) for one in (first, second)] == [1, 2]
    again = letters.as_stored(record_of(second), 1)
    assert again is not None
    assert record_of(again) == record_of(second)
    assert letters.as_stored(encode_message(Message("orders", b"b")), 1) is None


def test_a_body_stays_compressed_and_says_so() -> None:
    flag = COMPRESSED | ZSTD
    run = runs.run_of(encode_message(Message("orders", compress(b"long " * 2000, flag))))
    run.unusual = runs.flagged(flag)
    letters = DeadLetters(Rig().service.topics)
    for made in (
        letters.retry("g", runs.record_of(run), "why", 1, 1),
        letters.letter("g", runs.record_of(run), "why", 1, 0),
    ):
        assert decode_message(record_of(made)).body == b"long " * 2000
