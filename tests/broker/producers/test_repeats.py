from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.producers import repeats
from broker.producers.window import WINDOW
from broker.store import reading
from broker.store.recovery import open_store
from penstock.errors import Busy, InvalidMessage, MessageForgotten, NumberTaken
from penstock.protocol.message import (
    FLAG_RETAIN,
    FLAG_SEQUENCED,
    KEYS,
    MQTT_TOPIC,
    UNIQUE_KEY,
    Message,
    encode_message,
    encode_properties,
    encode_record,
    record_tail,
)
from penstock.protocol.requests.messages import Append, Appended, AppendRuns, Placed
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import DIGITS, Run, checksum_of, encode_runs
from tests.broker import broker_rig
from tests.broker.broker_rig import Rig

PRODUCERS = ("0123456789abcdef-", "fedcba9876543210-")
Place = tuple[int, int]
Id = tuple[str, int]
UNKNOWN: Place = (-1, -1)
"""Stored, it is not known where."""


def run(first: int, count: int, producer: str = PRODUCERS[0], key: str = "k", flag: int = FLAG_SEQUENCED) -> Run:
    """Messages of a producer, which say in their bodies which they are."""
    named = {KEYS: key, UNIQUE_KEY: f"{producer}{first:0{DIGITS}x}"}
    bodies = [b"%s%06d" % (producer[:4].encode(), number) for number in range(first, first + count)]
    return Run(record_tail(b"t", encode_properties(named)), flag, 0, bodies, True)


def request(*runs: Run) -> AppendRuns:
    body = encode_runs(runs)
    return AppendRuns(sum(len(run.bodies) for run in runs), checksum_of(body), body, detail=True)


def ids(*runs: Run) -> list[Id]:
    """Producers and numbers of all messages."""
    return [
        (repeats.producer_of(run).decode(), repeats.number_of(run) + more)
        for run in runs
        for more in range(len(run.bodies))
    ]


def places(answer: Result, count: int) -> list[Place | int]:
    """Where each message of a request is, or the code that it was refused with."""
    assert isinstance(answer, Appended), answer
    found: list[Place | int] = []
    refused = {one.at: one.code for one in answer.refused}
    for at in range(count):
        row = [row for row in answer.runs if row.at <= at][-1:]
        if at in refused:
            found.append(refused[at])
        else:
            found.append((row[0].queue_id, row[0].offset + at - row[0].at) if row[0].offset >= 0 else UNKNOWN)
    return found


def made(**settings: object) -> Rig:
    rig = Rig(**settings)  # type: ignore[arg-type]
    rig.ask(CreateTopic("t", 3))
    return rig


def stored(rig: Rig) -> list[bytes]:
    """The bodies of all messages."""
    found: list[bytes] = []
    for queue in (f"t:{number}" for number in range(3)):
        offset = 0
        while some := rig.bodies(queue, offset):
            offset += len(some)
            found += some
    return found


def send(rig: Rig, *runs: Run) -> list[Place | int]:
    return places(rig.ask(request(*runs)), sum(len(run.bodies) for run in runs))


# ------------------------------------------------------------ each case


def test_what_is_sent_again_is_stored_once_and_has_the_first_receipt() -> None:
    rig = made()
    first = send(rig, run(1, 5), run(6, 1, key="l"))
    assert send(rig, run(1, 5), run(6, 1, key="l")) == first
    assert len(stored(rig)) == 6


def test_of_a_run_that_is_stored_in_part_only_the_rest_is_stored() -> None:
    rig = made()
    before = send(rig, run(3, 4)) + send(rig, run(9, 1))
    found = send(rig, run(1, 12))
    assert [found[at] for at in (2, 3, 4, 5, 8)] == before
    assert len(set(found)) == len(stored(rig)) == 12


def test_a_producer_without_the_flag_is_taken_at_its_word() -> None:
    rig = made()
    send(rig, run(1, 2, flag=0))
    send(rig, run(1, 2, flag=0))
    assert len(stored(rig)) == 4


def test_two_producers_have_numbers_of_their_own() -> None:
    rig = made()
    send(rig, run(1, 2), run(1, 2, PRODUCERS[1]))
    assert len(stored(rig)) == 4


def test_an_id_that_one_request_has_twice_is_refused_once() -> None:
    rig = made()
    found = send(rig, run(5, 2), run(1, 3), run(2, 5, key="l"))
    assert [one for one in found if one == InvalidMessage.code] == [InvalidMessage.code] * 4
    assert len(stored(rig)) == 6
    assert not [one for one in send(rig, run(1, 6)) if one == InvalidMessage.code]


def behind_a_gap() -> Rig:
    """A producer whose number 1 is stored and 2 is not, and so much behind that its window does not tell."""
    rig = made()
    send(rig, run(1, 1))
    for first in range(3, 3 + WINDOW, 500):
        send(rig, run(first, 500))
    assert rig.state.producers.get(PRODUCERS[0].encode()).holds(1) is None  # type: ignore[union-attr]
    return rig


def test_behind_the_window_the_index_of_keys_tells_what_is_stored() -> None:
    rig = behind_a_gap()
    again = send(rig, run(1, 2))
    assert again[0] == send(rig, run(1, 1))[0]
    assert again == send(rig, run(1, 2)), "both are stored now"
    bodies = stored(rig)
    assert len(bodies) == len(set(bodies)) == 4502


@pytest.mark.interpreted
def test_what_may_be_stored_and_nothing_tells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = behind_a_gap()
    monkeypatch.setattr(reading, "ID_LOOKS_MAX", 0)
    assert send(rig, run(1, 1)) == [MessageForgotten.code]
    monkeypatch.setattr(repeats, "DOUBTS_MAX", 1)
    assert send(rig, run(1, 1), run(2, 1)) == [MessageForgotten.code, Busy.code], "the rest when it comes again"


def test_a_message_that_is_sent_again_before_its_sync_is_answered_after_it() -> None:
    rig = made()
    rig.submit(request(run(1, 2)))
    answers = rig.submit(request(run(1, 2)))
    assert not answers
    rig.sync()
    assert send(rig, run(1, 2)) == places(answers[0], 2)
    assert len(stored(rig)) == 2


def test_a_whole_record_takes_part_if_its_flag_says_so() -> None:
    rig = made()
    record = encode_record(
        b"t", b"x", encode_properties({UNIQUE_KEY: f"{PRODUCERS[0]}{7:0{DIGITS}x}"}), flag=FLAG_SEQUENCED
    )
    first, again = [rig.ask(Append(2, True, record + encode_message(Message("t", b"y")))) for _ in range(2)]
    assert first.placed[0] == again.placed[0] != Placed(0, 0, 0)
    assert stored(rig).count(b"x") == 1
    assert stored(rig).count(b"y") == 2


@pytest.mark.parametrize("bad", ["short", PRODUCERS[0] + "0" * (DIGITS - 1) + "G", "p" * 65 + "0" * DIGITS])
def test_an_id_that_does_not_count_is_refused(bad: str) -> None:
    rig = made()
    tail = record_tail(b"t", encode_properties({UNIQUE_KEY: bad}))
    assert send(rig, Run(tail, FLAG_SEQUENCED, 0, [b"x"])) == [InvalidMessage.code]
    assert send(rig, Run(tail, FLAG_SEQUENCED, 0, [b"x"], len(bad) > DIGITS)) == [InvalidMessage.code]


def test_a_retained_message_that_is_sent_again_takes_no_room() -> None:
    rig = made(retained_max=1)
    tail = record_tail(b"t", encode_properties({MQTT_TOPIC: "t/1", UNIQUE_KEY: PRODUCERS[0] + "0" * DIGITS}))
    one = Run(tail, FLAG_SEQUENCED | FLAG_RETAIN, 0, [b"x"], True)
    assert send(rig, one) == send(rig, one)


@pytest.mark.interpreted
def test_receipts_come_out_of_the_key_index_where_memory_has_them_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = made()
    first = send(rig, run(1, 3))
    rig.state.producers._recent.clear()
    rig.state.producers._places = None
    assert send(rig, run(1, 3)) == first
    monkeypatch.setattr(repeats, "LOOKED_UP_MAX", 1)
    assert send(rig, run(1, 3)) == [first[0], UNKNOWN, UNKNOWN]


# ------------------------------------------------------------ any mix


def drawn(rng: random.Random, numbers: dict[str, int]) -> list[Run]:
    """Some runs, new ones and old ones, of two producers."""
    runs = []
    for _ in range(rng.randint(1, 3)):
        producer = rng.choice(PRODUCERS)
        count = rng.choice([1, 1, 2, 9, 60])
        first = max(1, numbers[producer] - rng.choice([0, 0, 0, 1, 5, 80, 300]))
        numbers[producer] = max(numbers[producer], first + count + rng.choice([0, 0, 0, 3]))
        runs.append(run(first, count, producer, rng.choice(["k", "l"])))
    return runs


def check_mix(seed: int) -> None:
    rng = random.Random(seed)
    rig, told, numbers = made(chunk_bytes=1 << 12), dict[Id, Place](), dict.fromkeys(PRODUCERS, 1)
    waiting: list[tuple[list[Id], list[Result]]] = []
    for _ in range(60):
        runs = drawn(rng, numbers)
        waiting.append((ids(*runs), rig.submit(request(*runs))))
        if rng.random() < 0.5:
            rig.sync()
            for asked, answers in waiting:
                for id, place in zip(asked, places(answers[0], len(asked)), strict=True):
                    if isinstance(place, tuple) and place != UNKNOWN:
                        assert told.setdefault(id, place) == place, "the first receipt"
                    assert place != MessageForgotten.code
            waiting.clear()
        if rng.random() < 0.1:
            rig, waiting = rig.restarted(), []
            if rng.random() < 0.5:
                for _ in range(5):
                    rig.clock.now += 60
                    rig.lead.tick()
                    rig.sync()
    rig.sync()
    bodies = stored(rig)
    assert len(bodies) == len(set(bodies)), "each once"
    assert {b"%s%06d" % (producer[:4].encode(), number) for producer, number in told} <= set(bodies), "none is lost"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_another_message_under_a_number_that_is_stored_is_refused(is_restarted: bool) -> None:
    rig = made()
    rig.ask(request(run(1, 40)))
    if is_restarted:
        rig = rig.restarted()  # memory no longer has where they are, the index of keys has
    twice, keyed = run(1, 40), run(1, 40, key="other")
    twice.bodies[30], twice.bodies[31] = twice.bodies[31], twice.bodies[30]
    swapped = rig.ask(request(twice))
    assert isinstance(swapped, Appended)
    assert {one.code for one in swapped.refused} == {NumberTaken.code}
    assert {31, 30} <= {one.at for one in swapped.refused}
    named = rig.ask(request(keyed))
    assert isinstance(named, Appended)
    assert [one.at for one in named.refused] == list(range(40))
    moved = run(1, 40)
    properties = {UNIQUE_KEY: f"{PRODUCERS[0]}{1:0{DIGITS}x}"}
    moved.tail = record_tail(b"t", encode_properties({MQTT_TOPIC: "t/x", KEYS: "k"} | properties))
    devices = rig.ask(request(moved))
    assert isinstance(devices, Appended)
    assert [one.at for one in devices.refused] == list(range(40)), "the body alone does not make a message"
    same = rig.ask(request(run(1, 40)))
    assert isinstance(same, Appended)
    assert not same.refused
    rig.sync()
    assert len(stored(rig)) == 40


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 1 << 30))
def test_whatever_is_sent_again_through_kills_is_stored_once(seed: int) -> None:
    check_mix(seed)


def window_from_memory_only(patch: pytest.MonkeyPatch) -> None:
    def open_and_forget(disk, settings, state, now_ms):  # type: ignore[no-untyped-def]
        store = open_store(disk, settings, state, now_ms)
        state.producers.restore(None)
        return store

    patch.setattr(broker_rig, "open_store", open_and_forget)


def test_a_window_from_memory_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    window_from_memory_only(monkeypatch)
    with pytest.raises(AssertionError, match=r"each once|first receipt"):
        check_mixes(range(20))


def check_mixes(seeds: range) -> None:
    for seed in seeds:
        check_mix(seed)
