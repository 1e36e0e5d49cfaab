from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.kernel.deadlines import SPARE
from broker.messages import retained as module
from broker.messages.retained import Retained
from broker.store.records import Change
from broker.topics.fold import TopicGone
from penstock.protocol.message import FRAME_HEAD_BYTES, NEVER, encode_record
from topicmap.names import matches

NAMES = ["a", "a/b", "a/b/c", "a!", "a!/b", "a-b", "a0/b", "b", "b/c", "b/c/b", "$sys/a", "/", "a/"]
FILTERS = ["#", "+", "a/#", "a/+", "+/b", "a", "a/+/c", "/", "$sys/#", "+/+/#", "+/c/b", "+/b/#"]
names = st.sampled_from(NAMES)


def found(retained: Retained, filter: str, looked_at_max: int) -> list[tuple[str, bytes]]:
    """All pages."""
    rows: list[tuple[str, bytes]] = []
    after = ""
    while True:
        stopped = False
        for name, frame in retained.matching(filter, after, looked_at_max):
            if frame is None:
                assert name > after, "each page comes further"
                after, stopped = name, True
            else:
                rows.append((name, frame))
        if not stopped:
            return rows


@given(st.lists(st.tuples(names, st.booleans(), st.sampled_from(FILTERS)), max_size=40), st.integers(1, 4))
def test_pages_hold_what_a_plain_dictionary_would(changes: list[tuple[str, bool, str]], looked_at_max: int) -> None:
    retained, plain = Retained(), dict[str, bytes]()
    for position, (name, puts, filter) in enumerate(changes):
        frame = str(position).encode()
        if puts:
            retained.put(name, frame, position)
            plain[name] = frame
        else:
            retained.remove(name, position)
            plain.pop(name, None)
        expected = [(one, plain[one]) for one in sorted(plain) if matches(filter, one)]
        assert found(retained, filter, looked_at_max) == expected
        assert (len(retained), retained.bytes) == (len(plain), sum(map(len, plain.values())))


def test_what_cannot_match_is_passed_over_a_subtree_at_a_time() -> None:
    retained = Retained()
    every = [f"site/{site}/{device}/{kind:03d}" for site in "abc" for device in "xyz" for kind in range(200)]
    for name in every:
        retained.put(name, b"x", 1)

    def pages(filter: str) -> int:
        """So many of ten names looked at."""
        after, count = "", 1
        while True:
            rows = list(retained.matching(filter, after, 10))
            if not rows or rows[-1][1] is not None:
                return count
            after, count = rows[-1][0], count + 1

    assert found(retained, "site/+/+/150", 10) == [(name, b"x") for name in every if name.endswith("150")]
    assert pages("site/+/+/150") <= 4, "three looks for each of nine devices"
    assert pages("site/b/+/none") == 1
    assert pages("+/+/x") == 1
    assert pages("other/+") == 1
    assert pages("site/+/+/+") == len(every) // 10


@given(st.lists(st.tuples(names, st.booleans()), max_size=40))
def test_a_restored_snapshot_is_the_replay(changes: list[tuple[str, bool]]) -> None:
    retained, copy = Retained(), Retained()
    for position, (name, puts) in enumerate(changes):
        if puts:
            retained.put(name, b"x" * position, position)
        else:
            retained.remove(name, position)
    copy.restore(retained.snapshot())
    assert (copy.snapshot(), copy.bytes) == (retained.snapshot(), retained.bytes)
    assert found(copy, "#", 3) == found(retained, "#", 3)


def test_many_names_are_found_in_order_whatever_the_order_they_came_and_went_in() -> None:
    retained = Retained()
    for number in range(700):
        retained.put(f"n/{number * 271 % 700:04d}", b"x", number)
    assert [name for name, _ in found(retained, "n/+", 7)] == [f"n/{number:04d}" for number in range(700)]
    for number in range(690):
        retained.remove(f"n/{number * 37 % 690:04d}", number)
    assert [name for name, _ in found(retained, "#", 3)] == [f"n/{number:04d}" for number in range(690, 700)]


def test_only_a_change_moves_the_position_of_the_last_change() -> None:
    retained = Retained()
    retained.remove("a", 5)
    assert retained.changed_at == 0
    retained.put("a", b"x", 7)
    retained.remove("a", 9)
    assert retained.changed_at == 9


def test_what_has_expired_goes_when_it_is_time_and_nothing_else_does() -> None:
    retained = Retained()
    retained.put("soon", b"1", 1, 10)
    retained.put("later", b"22", 2, 20)
    retained.put("never", b"333", 3)
    retained.put("replaced", b"4", 4, 10)
    retained.put("replaced", b"55", 5)
    retained.put("removed", b"6", 6, 10)
    retained.remove("removed", 7)
    retained.put("longer", b"7", 8, 10)
    retained.put("longer", b"8", 9, 30)
    assert retained.expired_by(9) == {}
    assert retained.expired_by(10) == {"soon": 1}
    assert retained.expired_by(20) == {"soon": 1, "later": 2}
    retained.expire(9, 10)
    assert len(retained) == 5
    retained.expire(20, 11)
    assert [name for name, _ in found(retained, "#", 100)] == ["longer", "never", "replaced"]
    assert (retained.bytes, retained.changed_at) == (6, 11)


def test_values_that_are_told_again_and_again_do_not_pile_up() -> None:
    retained = Retained()
    for number in range(10_000):
        retained.put(f"value/{number % 10}", b"x", number, 1_000_000 + number)
    assert len(retained._expires._heap._heap) < 2 * SPARE


def test_who_says_when_a_message_expires_says_it_in_few_digits() -> None:
    for said, expires_ms in (
        (b"", NEVER),
        (b"MQTT_PROPS\x01:", NEVER),
        (b"MQTT_PROPS\x01:AAAA", NEVER),
        (b"KEYS\x01k\x02MQTT_PROPS\x01" + b"0:", 1000),
        (b"MQTT_PROPS\x0160:AAAA", 61_000),
        (b"MQTT_PROPS\x01-1:", NEVER),
        (b"MQTT_PROPS\x01" + b"9" * 11 + b":", NEVER),
        (b"MQTT_PROPS\x014294967296:", NEVER),
        (b"MQTT_PROPS\x014294967295:", 1000 + 0xFFFF_FFFF * 1000),
    ):
        assert module.expires_ms(said, 1000) == expires_ms, said


def frame_of(topic: str, body: bytes) -> bytes:
    return bytes(FRAME_HEAD_BYTES) + encode_record(topic.encode(), body, b"")


def test_what_a_topic_has_retained_goes_with_it_under_whatever_name() -> None:
    retained = Retained()
    retained.put("a/x", frame_of("a", b"1"), 1)
    retained.put("b/x", frame_of("a", b"2"), 2)  # a rule of the topic map, or a native producer
    retained.put("b", frame_of("b", b"3"), 3)
    copy = Retained()
    copy.restore(retained.snapshot())
    for one in (retained, copy):
        assert (one.holds("a"), one.holds("b"), one.holds("c")) == (True, True, False)
        one.follow(Change(events=(TopicGone("c", (), 8),)))
        one.follow(Change(events=(TopicGone("a", (), 9),)))
        assert [name for name, _ in found(one, "#", 10)] == ["b"]
        assert (one.holds("a"), one.changed_at, one.bytes) == (False, 9, len(frame_of("b", b"3")))


def test_a_topic_holds_a_name_until_another_topic_or_nothing_does() -> None:
    retained = Retained()
    retained.put("x", frame_of("a", b"1"), 1)
    retained.put("x", frame_of("a", b"22"), 2)
    retained.put("x", frame_of("b", b"3"), 3)
    assert (retained.holds("a"), retained.holds("b")) == (False, True)
    retained.remove("x", 4)
    assert not retained.holds("b")
