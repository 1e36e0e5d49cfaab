from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.messages.whole_records import records_of
from broker.transactions.requests import CHECKS_PER_S, GRACE_S, NOT_ANSWERED, NOT_ASKED, TransactionRequests
from broker.transactions.schedule import RAMP_S
from penstock.client.preparation import Preparation
from penstock.client.sending import append_of
from penstock.errors import HalfNotFound, InvalidTopic, OutcomeStands, from_wire
from penstock.protocol.message import Message, decode_batch, decode_message, encode_message
from penstock.protocol.requests.messages import FindByKey, Pull
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.requests.transactions import (
    BeginHalf,
    BeginHalves,
    CheckHalf,
    EndHalves,
    HalfOutcome,
    HalfRow,
    HalvesBegun,
    HalvesEnded,
    HalvesToCheck,
    ListHalves,
    WatchHalves,
)
from tests.broker.broker_rig import Rig, append
from tests.penstock.client.at_broker import runs_at_broker
from tests.simulation.disk import SimDisk
from topicmap.queues import TopicMap


def rig_with_topic(**given: Any) -> Rig:
    rig = Rig(half_check_after_s=1.0, half_checks_max=3, **given)
    rig.ask(CreateTopic("t", 1, "disk"))
    return rig


def begin(rig: Rig, *bodies: bytes, group: str = "g") -> list[int]:
    """Begins a half for each body."""
    records = b"".join(encode_message(Message("t", body, key="k")) for body in bodies)
    answer = rig.ask(BeginHalves(group, len(bodies), records))
    assert isinstance(answer, HalvesBegun), answer
    assert answer.refused == ()
    return list(answer.ids)


def end(rig: Rig, id: int, outcome: str, group: str = "g") -> tuple[str, type | None]:
    """Says what becomes of a half; what stands, and the error."""
    answer = rig.ask(EndHalves(group, (HalfOutcome(id, outcome),)))
    assert isinstance(answer, HalvesEnded), answer
    [ended] = answer.ended
    return ended.outcome, type(from_wire(ended.code, ended.message)) if ended.code else None


def pass_s(rig: Rig, seconds: float) -> None:
    """Time passes, a tick every half a second."""
    for _ in range(int(seconds * 2)):
        rig.clock.now += 0.5
        rig.dispatch.tick()
        rig.sync()


def halves(rig: Rig) -> dict[int, HalfRow]:
    return {row.id: row for row in rig.ask(ListHalves()).halves}


def test_nobody_sees_a_half_before_it_is_committed_and_then_all_do_once() -> None:
    rig = rig_with_topic()
    first, second = begin(rig, b"1", b"2")
    rig.ask(append(Message("t", b"between")))
    assert rig.bodies("t:0") == [b"between"]
    assert end(rig, second, "commit") == ("commit", None)
    assert rig.bodies("t:0") == [b"between", b"2"]
    assert end(rig, second, "commit") == ("commit", None)
    assert end(rig, first, "rollback") == ("rollback", None)
    assert rig.bodies("t:0") == [b"between", b"2"]
    assert halves(rig) == {}


def test_the_first_outcome_stands_and_the_second_hears_which() -> None:
    rig = rig_with_topic()
    first, second = begin(rig, b"1", b"2")
    end(rig, first, "commit")
    end(rig, second, "rollback")
    rig = rig.restarted()
    assert end(rig, first, "rollback") == ("commit", OutcomeStands)
    assert end(rig, second, "commit") == ("rollback", OutcomeStands)
    assert rig.bodies("t:0") == [b"1"]


def test_halves_of_others_and_unknown_outcomes_have_errors_of_their_own() -> None:
    rig = rig_with_topic()
    [half] = begin(rig, b"1")
    assert end(rig, half, "commit", group="other") == ("", HalfNotFound)
    assert end(rig, half + 1, "commit") == ("", HalfNotFound)
    assert end(rig, half, "unknown") == ("unknown", None)
    assert end(rig, half, "perhaps")[1] is not None
    assert list(halves(rig)) == [half]


def test_a_bad_half_is_refused_by_its_place_and_the_others_begin() -> None:
    rig = rig_with_topic()
    records = [Message("t", b"1"), Message("%DLQ%x", b"2"), Message("t", b"3")]
    answer = rig.ask(BeginHalves("g", 3, b"".join(map(encode_message, records))))
    assert [bool(id) for id in answer.ids] == [True, False, True]
    assert isinstance(from_wire(answer.refused[0].code, answer.refused[0].message), InvalidTopic)


def test_a_producer_of_the_group_is_asked_after_a_while_and_its_word_settles_it() -> None:
    rig = rig_with_topic()
    [half] = begin(rig, b"1")
    asked = rig.submit(WatchHalves("g", 30.0))
    other = rig.submit(WatchHalves("h", 30.0))
    pass_s(rig, 0.5)
    assert asked == []
    pass_s(rig, 1.0)
    [answer] = asked
    assert isinstance(answer, HalvesToCheck)
    assert [(row.id, row.checks, row.topic, row.key) for row in answer.halves] == [(half, 1, "t", "k")]
    assert decode_message(answer.body).body == b"1"
    assert other == []
    end(rig, half, "commit")
    assert rig.bodies("t:0") == [b"1"]


def test_a_half_goes_to_one_producer_at_a_time() -> None:
    rig = rig_with_topic()
    begin(rig, b"1")
    asked = [rig.submit(WatchHalves("g", 30.0)) for _ in range(3)]
    pass_s(rig, 1.5)
    assert sum(len(answers) for answers in asked) == 1


def test_a_group_is_asked_about_so_many_halves_in_a_second_and_the_others_lose_no_round() -> None:
    rig = Rig(half_check_after_s=1.0)
    rig.ask(CreateTopic("t", 1, "disk"))
    begin(rig, *[b"%d" % at for at in range(300)])
    pass_s(rig, 1.5)
    told: list[int] = []
    for step in range(8):
        for _ in range(8):
            told += [row.id for row in rig.ask(WatchHalves("g", 0.0, 64)).halves]
        assert len(told) <= CHECKS_PER_S * (1 + step / 2)
        pass_s(rig, 0.5)
    assert len(set(told)) == 300, "all were asked about in a few seconds"
    waits = rig.submit(WatchHalves("g", 30.0))
    pass_s(rig, 1.0)
    assert len(waits) == 1, "who waits is woken when more are allowed"


def asked_after_a_failover(count: int, producers: int) -> list[int]:
    """How many halves producers were asked about in each second after a kill -9, by a broker that had all of them."""
    rig = Rig(half_check_after_s=1.0)
    rig.ask(CreateTopic("t", 1, "disk"))
    for first in range(0, count, 300):
        begin(rig, *[b"%d" % at for at in range(first, first + 300)])
    rig = rig.restarted()
    seconds: list[int] = []
    while sum(seconds) < count:
        assert len(seconds) < 90, f"nobody is asked any more: {seconds}"
        waiting = [rig.submit(WatchHalves("g", 30.0)) for _ in range(producers)]
        asked = 0
        for _ in range(10):
            rig.clock.now += 0.1
            rig.dispatch.tick()
            rig.sync()
            for at, answers in enumerate(waiting):
                if answers:
                    asked += len(answers.pop().halves)
                    waiting[at] = rig.submit(WatchHalves("g", 30.0))
        seconds.append(asked)
    return seconds


def test_after_a_failover_producers_are_asked_little_by_little_however_many_of_them_wait() -> None:
    """One that was away, or a database behind it, is not to be brought down by the broker's return."""
    seconds = asked_after_a_failover(600, producers=5)
    assert max(seconds) <= CHECKS_PER_S / 2, f"a storm: {seconds}"
    assert len(seconds) > RAMP_S / 2, f"a storm: {seconds}"


def test_a_half_without_an_outcome_is_parked_after_so_many_checks_and_an_operator_commits_it() -> None:
    rig = rig_with_topic()
    [half] = begin(rig, b"1")
    checks = 0
    for _ in range(60):
        answers = rig.submit(WatchHalves("g", 0.5))
        pass_s(rig, 0.5)
        checks += sum(len(answer.halves) for answer in answers if isinstance(answer, HalvesToCheck))
    assert checks == 3
    assert halves(rig)[half].parked == NOT_ANSWERED
    rig = rig.restarted()
    assert end(rig, half, "commit") == ("commit", None)
    assert rig.bodies("t:0") == [b"1"]


def test_without_any_producer_a_half_is_parked_and_the_first_producer_that_comes_is_asked() -> None:
    rig = rig_with_topic()
    [half] = begin(rig, b"1")
    pass_s(rig, 40.0)
    assert (halves(rig)[half].parked, halves(rig)[half].checks) == (NOT_ASKED, 0)
    rig = rig.restarted()
    asked = rig.submit(WatchHalves("g", 30.0))
    pass_s(rig, GRACE_S)
    [answer] = asked
    assert isinstance(answer, HalvesToCheck)
    assert [row.id for row in answer.halves] == [half]


def test_an_operator_has_a_parked_half_checked_again() -> None:
    rig = rig_with_topic()
    [half] = begin(rig, b"1")
    pass_s(rig, 40.0)
    assert rig.ask(CheckHalf(half)) == Done()
    assert halves(rig)[half].parked == ""
    asked = rig.submit(WatchHalves("g", 30.0))
    pass_s(rig, 1.0)
    assert len(asked) == 1
    assert isinstance(rig.ask(CheckHalf(half + 1)), HalfNotFound)


def test_a_commit_that_is_refused_parks_the_half_with_the_reason() -> None:
    rig = rig_with_topic(retained_max=1)
    record = encode_message(Message("t", b"1", mqtt_topic="t/a", retain=True))
    [half] = rig.ask(BeginHalves("g", 1, record)).ids
    rig.ask(append(Message("t", b"2", mqtt_topic="t/b", retain=True)))
    assert end(rig, half, "commit")[1] is not None
    assert "its commit was refused" in halves(rig)[half].parked
    rig.ask(append(Message("t", b"", mqtt_topic="t/b", retain=True)))
    assert end(rig, half, "commit") == ("commit", None)


def test_retention_takes_no_half() -> None:
    rig = rig_with_topic(retention_s=60.0)
    [half] = begin(rig, b"1")
    for _ in range(60):
        rig.ask(append(Message("t", bytes(8_000))))
        pass_s(rig, 5.0)
    assert rig.store.start > half
    assert end(rig, half, "commit") == ("commit", None)
    assert rig.bodies("t:0", rig.store.bounds("t:0").end - 1) == [b"1"]


def test_there_is_a_limit_of_halves_and_it_says_so() -> None:
    rig = rig_with_topic(halves_max=2)
    begin(rig, b"1", b"2")
    record = encode_message(Message("t", b"3"))
    answer = rig.ask(BeginHalves("g", 1, record))
    assert "the limit is reached" in answer.refused[0].message


def test_halves_that_are_carried_to_the_logs_end_are_committed_as_if_nothing_had_been() -> None:
    rig = rig_with_topic()
    first, second = begin(rig, b"1", b"2")
    border = rig.store.written
    transactions = rig.theme(TransactionRequests)
    assert not transactions.carry(border, rig.times.wall_ms(), count_max=1)
    assert transactions.carry(border, rig.times.wall_ms())
    assert rig.state.halves.before(border, 9) == []
    rig.sync()
    rig = rig.restarted()
    assert [end(rig, id, "commit") for id in (first, second)] == [("commit", None)] * 2
    assert rig.bodies("t:0") == [b"1", b"2"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(["commit", "rollback", "unknown"]), st.booleans()), min_size=1, max_size=8))
def test_whatever_crashes_each_half_has_the_outcome_that_its_producer_heard(steps: list[tuple[str, bool]]) -> None:
    rig = rig_with_topic()
    wanted: dict[bytes, str] = {}
    for number, (outcome, crashes) in enumerate(steps):
        body = b"%d" % number
        [half] = begin(rig, body)
        if crashes:  # what was said is not synced when power fails: it is said again
            rig.submit(EndHalves("g", (HalfOutcome(half, outcome),)))
            rig.disk.lose_power()
            rig = rig.restarted()
        end(rig, half, outcome)
        wanted[body] = outcome
    rig.disk.lose_power()
    rig = rig.restarted()
    assert rig.bodies("t:0") == [body for body, outcome in wanted.items() if outcome == "commit"]
    assert len(halves(rig)) == sum(outcome == "unknown" for outcome in wanted.values())


@pytest.mark.parametrize("group", ["", "g" * 256])
def test_a_group_has_a_name_of_bounded_length(group: str) -> None:
    rig = rig_with_topic()
    answer = rig.ask(BeginHalves(group, 1, encode_message(Message("t", b"1"))))
    assert "1 to 255 bytes" in str(answer)


# ------------------------------------------------------------ one half of several messages


def begin_one(rig: Rig, *messages: Message, group: str = "g") -> Any:
    """Begins one half of all messages; the answer."""
    runs = append_of(runs_at_broker(Preparation(7, TopicMap()), messages, 5))
    return rig.ask(BeginHalf(group, runs.count, runs.checksum, runs.body))


def several(count: int, size: int = 1, **fields: Any) -> list[Message]:
    return [Message("t", b"%0*d" % (size, at), **fields) for at in range(count)]


def test_messages_of_one_half_are_delivered_together_and_keep_what_they_are() -> None:
    rig = rig_with_topic()
    many = [*several(3), Message("t", b"x", key="k", tag="paid", properties={"a": "b"}, mqtt_topic="t/a"), *several(2)]
    half = begin_one(rig, *many).id
    assert [(row.messages, row.topic, row.key) for row in halves(rig).values()] == [(6, "t", "")]
    rig = rig.restarted()
    assert rig.bodies("t:0") == []
    assert end(rig, half, "commit") == ("commit", None)
    assert rig.bodies("t:0") == [message.body for message in many]
    found = [message for _, message in decode_batch(6, rig.ask(Pull("t:0", 0)).body)]
    assert (found[3].key, found[3].tag, found[3].name) == ("k", "paid", "t/a")
    assert dict(found[3].properties) == {"a": "b", "HALF": str(half)}
    assert len({message.id for message in found}) == 6
    assert [message.id for _, message in decode_batch(1, rig.ask(FindByKey("t", found[2].id)).body)] == [found[2].id]
    assert halves(rig.restarted()) == {}


def test_one_bad_message_keeps_all_of_a_half_from_beginning() -> None:
    rig = rig_with_topic()
    answer = begin_one(rig, Message("t", b"1"), Message("t", b"2", mqtt_topic="t/+"), Message("t", b"3"))
    assert (answer.id, [(one.at, one.code) for one in answer.refused]) == (0, [(1, InvalidTopic.code)])
    assert halves(rig) == {}
    runs = append_of(runs_at_broker(Preparation(7, TopicMap()), several(2), 5))
    for wrong in (
        BeginHalf("g", 3, runs.checksum, runs.body),
        BeginHalf("g", 2, 5, runs.body),
        BeginHalf("g", 0, 0, b""),
    ):
        assert "nothing was stored" in str(rig.ask(wrong))


def test_a_producer_is_asked_about_all_messages_of_a_half_at_once() -> None:
    rig = rig_with_topic()
    half = begin_one(rig, *several(3)).id
    asked = rig.submit(WatchHalves("g", 30.0))
    pass_s(rig, 1.5)
    [answer] = asked
    assert isinstance(answer, HalvesToCheck)
    [row] = answer.halves
    assert (row.id, row.messages, row.size) == (half, 3, len(answer.body))
    records = records_of(answer.body, 3)
    assert [decode_message(record).body for record in records] == [b"0", b"1", b"2"]


def test_a_half_that_no_segment_holds_as_messages_is_committed_in_parts() -> None:
    rig = rig_with_topic()  # segments of 64 KiB; each message has properties of its own, which the half says once
    half = begin_one(rig, *several(300, properties={"a": "x" * 200})).id
    assert end(rig, half, "commit") == ("commit", None)
    assert sum(len(rig.bodies("t:0", at)) > 0 for at in (0, 299)) == 2
    assert rig.store.bounds("t:0").end == 300


def test_what_power_cut_off_of_a_commit_is_stored_by_itself_and_cannot_be_rolled_back() -> None:
    cut = 0
    for seed in range(100):
        rig = Rig(SimDisk(seed), half_check_after_s=1.0)
        rig.ask(CreateTopic("t", 1, "disk"))
        half = begin_one(rig, *several(16, 700)).id
        rig.submit(EndHalves("g", (HalfOutcome(half, "commit"),)))
        rig.disk.lose_power()
        rig = rig.restarted()
        stored = rig.store.bounds("t:0").end
        if 0 < stored < 16:
            cut += 1
            assert end(rig, half, "rollback") == ("commit", OutcomeStands)
            if seed % 2:
                assert end(rig, half, "commit") == ("commit", None)
            else:
                rig.dispatch.tick()
                rig.sync()
        else:
            assert end(rig, half, "rollback")[0] == ("commit" if stored else "rollback")
        rig = rig.restarted()
        rig.dispatch.tick()
        assert rig.bodies("t:0") == [b"%0700d" % at for at in range(16 if stored else 0)], seed
        assert halves(rig) == {}
    assert cut > 2, "some commits were cut off in their midst"
