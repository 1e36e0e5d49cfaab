from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.timers.requests import DELAY_MS_MAX, TimerRequests
from penstock.client.preparation import Preparation
from penstock.client.sending import append_of
from penstock.errors import (
    Busy,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    PenstockError,
    StorageFull,
    TimerFired,
    TimerNotFound,
    from_wire,
)
from penstock.protocol.message import ENTRY, Message, decode_batch, encode_message
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.timers import (
    TIMER_FORGOTTEN,
    CancelTimer,
    ConfirmClock,
    ListTimers,
    SetTimers,
    TimerSet,
    TimersPage,
    TimersSet,
)
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import record_of
from penstock.service.troubles import troubles_of
from tests.broker.broker_rig import Rig, append
from tests.penstock.client.at_broker import runs_at_broker
from topicmap.queues import TopicMap


def delayed(rig: Rig, *messages: tuple[Message, int]) -> TimersSet:
    """Has messages delivered so many milliseconds later."""
    body = b"".join(encode_message(message) for message, _ in messages)
    answer = rig.ask(SetTimers(tuple(delay_ms for _, delay_ms in messages), True, body))
    assert isinstance(answer, TimersSet), answer
    return answer


def one(rig: Rig, body: bytes, delay_ms: int, topic: str = "t") -> TimerSet:
    """Has one message delivered later."""
    answer = delayed(rig, (Message(topic, body), delay_ms))
    assert answer.refused == ()
    return answer.timers[0]


def tick(rig: Rig) -> None:
    """What the server does once every 50 ms, and a sync."""
    now_ms = rig.times.wall_ms()
    rig.service.tick(rig.clock.now, now_ms, now_ms)
    rig.sync()


def pass_s(rig: Rig, seconds: float) -> None:
    rig.clock.now += seconds
    tick(rig)


def rig_with_topic(**given: object) -> Rig:
    rig = Rig(**given)
    rig.ask(CreateTopic("t", 1, "disk"))
    return rig


def reasons(rig: Rig) -> list[str]:
    """Why messages became dead letters of timers."""
    pulled = rig.ask(Pull("%DLQ%timers:0", 0))
    return [message.properties["REASON"] for _, message in decode_batch(pulled.count, pulled.body)]


def test_a_message_is_delivered_when_it_is_due_and_never_before() -> None:
    rig = rig_with_topic()
    one(rig, b"later", 5_000)
    one(rig, b"sooner", 2_000)
    pass_s(rig, 1.999)
    assert rig.bodies("t:0") == []
    pass_s(rig, 0.001)
    assert rig.bodies("t:0") == [b"sooner"]
    pass_s(rig, 2.999)
    assert rig.bodies("t:0") == [b"sooner"]
    pass_s(rig, 0.001)
    assert rig.bodies("t:0") == [b"sooner", b"later"]


def test_a_delayed_message_keeps_all_that_its_sender_said_and_finds_its_queue_by_its_key() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 4, "disk"))
    message = Message("t", b"b", key="k", tag="g", properties={"p": "v"}, id="1-1")
    [timer] = delayed(rig, (message, 1_000)).timers
    rig.ask(append(message))
    pass_s(rig, 1.0)
    delivered = [
        (queue, found.key, found.tag, dict(found.properties), found.id)
        for queue in range(4)
        for pulled in [rig.ask(Pull(f"t:{queue}", 0))]
        for _, found in decode_batch(pulled.count, pulled.body)
    ]
    queue = delivered[0][0]
    assert delivered == [
        (queue, "k", "g", {"p": "v"}, "1-1"),
        (queue, "k", "g", {"p": "v", "TIMER": f"{timer.due_ms}:{timer.id}"}, "1-1"),
    ]


def test_each_message_is_delivered_once_whatever_crashes() -> None:
    rig = rig_with_topic()
    for number in range(6):
        one(rig, b"%d" % number, 1_000 * number)
    for _ in range(8):
        rig = rig.restarted()  # a second passes
        rig.service.tick(rig.clock.now, rig.times.wall_ms(), rig.times.age_ms())  # and power fails before the sync
        rig.disk.lose_power()
        rig = rig.restarted()
        tick(rig)
    assert rig.bodies("t:0") == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_cancelled_message_is_not_delivered_and_one_that_was_delivered_is_told_apart() -> None:
    rig = rig_with_topic()
    first, second = one(rig, b"1", 1_000), one(rig, b"2", 2_000)
    assert rig.ask(CancelTimer(second.id, second.due_ms)) == Done()
    assert isinstance(rig.ask(CancelTimer(second.id, second.due_ms)), TimerNotFound)
    pass_s(rig, 1.0)
    assert isinstance(rig.ask(CancelTimer(first.id, first.due_ms)), TimerFired)
    _, message, _, _ = ENTRY.unpack_from(rig.ask(Pull("t:0", 0)).body)
    for never in (message, rig.store.written, 2**40):
        assert isinstance(rig.ask(CancelTimer(never, first.due_ms - 1)), TimerNotFound)
    pass_s(rig, 5.0)
    assert rig.bodies("t:0") == [b"1"]


def test_forty_days_are_kept_to_the_millisecond_and_more_is_refused_never_less_taken() -> None:
    rig = rig_with_topic()
    now_ms = rig.times.wall_ms()
    assert one(rig, b"1", DELAY_MS_MAX).due_ms == now_ms + DELAY_MS_MAX
    body = encode_message(Message("t", b"2"))
    at = rig.ask(SetTimers((now_ms + DELAY_MS_MAX,), False, body))
    assert at.timers[0].due_ms == now_ms + DELAY_MS_MAX
    assert [len(rig.ask(SetTimers((now_ms + DELAY_MS_MAX + 1,), False, body)).refused)] == [1]
    assert rig.ask(ListTimers()).count == 2


def test_a_bad_message_of_a_batch_is_refused_with_its_reason_and_the_others_sleep() -> None:
    rig = rig_with_topic()
    answer = delayed(
        rig, (Message("t", b"1"), 1_000), (Message("t", b"2"), DELAY_MS_MAX + 1), (Message("%DLQ%x", b"3"), 1)
    )
    assert [refused.at for refused in answer.refused] == [1, 2]
    errors = [from_wire(refused.code, refused.message) for refused in answer.refused]
    assert "at most 40 days" in str(errors[0])
    assert isinstance(errors[1], InvalidTopic)
    assert [bool(timer.id) for timer in answer.timers] == [True, False, False]
    pass_s(rig, 2.0)
    assert rig.bodies("t:0") == [b"1"]


@pytest.mark.parametrize(
    "body", [b"", b"x" * 40, encode_message(Message("t")) + b"x", encode_message(Message("t")) * 2]
)
def test_bytes_that_are_not_that_many_records_are_refused_and_nothing_of_them_sleeps(body: bytes) -> None:
    rig = rig_with_topic()
    assert isinstance(rig.ask(SetTimers((1_000,), True, body)), PenstockError)
    assert rig.ask(ListTimers()).count == 0


def test_a_message_that_is_due_already_is_delivered_at_the_next_tick() -> None:
    rig = rig_with_topic()
    answer = rig.ask(SetTimers((5,), False, encode_message(Message("t", b"past"))))
    assert answer.refused == ()
    tick(rig)
    assert rig.bodies("t:0") == [b"past"]


def test_what_is_refused_when_it_is_due_becomes_a_dead_letter_with_the_reason() -> None:
    rig = rig_with_topic(auto_create_topics=False, retained_max=1)
    delayed(rig, (Message("t", b"kept", mqtt_topic="t/a", retain=True), 1_000))
    delayed(rig, (Message("t", b"plain"), 1_000))
    rig.ask(append(Message("t", b"first", mqtt_topic="t/b", retain=True)))
    pass_s(rig, 1.0)
    assert rig.bodies("t:0") == [b"first", b"plain"]
    assert rig.bodies("%DLQ%timers:0") == [b"kept"]
    assert "limit is reached" in reasons(rig)[0]


def test_a_full_disk_delays_but_loses_nothing() -> None:
    rig = rig_with_topic()
    large = bytes(20_000)
    one(rig, large, 1_000)
    rig.disk.capacity = rig.disk.used()
    while not isinstance(rig.ask(append(Message("t", bytes(1_000)))), StorageFull):
        pass
    pass_s(rig, 60.0)
    rig.disk.capacity = None
    pass_s(rig, 60.0)
    assert rig.bodies("t:0").count(large) == 1


def test_a_jump_of_the_clock_freezes_what_is_due_until_an_operator_confirms_it_or_it_is_undone() -> None:
    rig = rig_with_topic()
    one(rig, b"1", 1_000)
    rig.clock.set_ms += 3_600_000
    for _ in range(20):
        pass_s(rig, 60.0)
    page = rig.ask(ListTimers())
    assert (rig.bodies("t:0"), page.frozen_s) == ([], pytest.approx(3600, abs=1))
    assert page.now_ms == pytest.approx(rig.times.wall_ms(), abs=1)
    [trouble] = troubles_of({"penstock_timers_frozen_s": rig.service.figures()["penstock_timers_frozen_s"]})
    assert "confirm-clock" in trouble
    assert isinstance(rig.ask(ConfirmClock(60.0)), InvalidRequest)
    assert rig.ask(ConfirmClock(page.frozen_s)).ahead_s == pytest.approx(3600, abs=1)
    pass_s(rig, 0.05)
    assert (rig.bodies("t:0"), rig.ask(ListTimers()).frozen_s) == ([b"1"], 0)
    assert rig.ask(ConfirmClock(0.0)).ahead_s == 0
    one(rig, b"2", 1_000)
    rig.clock.set_ms += 3_600_000
    pass_s(rig, 2.0)
    assert rig.bodies("t:0") == [b"1"]
    rig.clock.set_ms -= 3_600_000
    for _ in range(12):
        pass_s(rig, 1.0)
    assert rig.bodies("t:0") == [b"1", b"2"]


def test_there_is_a_limit_of_bytes_that_wait_and_it_says_so() -> None:
    rig = rig_with_topic(timers_bytes_max=1_000)
    answers = [delayed(rig, (Message("t", bytes(200)), 1_000)) for _ in range(4)]
    assert answers[0].refused == ()
    [refused] = answers[-1].refused
    error = from_wire(refused.code, refused.message)
    assert isinstance(error, Busy)
    assert "delayed messages have" in str(error)
    pass_s(rig, 2.0)
    assert delayed(rig, (Message("t", bytes(200)), 1_000)).refused == ()


def test_timers_are_listed_page_by_page_in_the_order_in_which_they_fire() -> None:
    rig = rig_with_topic()
    for number in range(5):
        one(rig, b"%d" % number, 1_000 * (9 - number))
    seen: list[int] = []
    after: tuple[int, int] = (0, 0)
    while True:
        page = rig.ask(ListTimers(*after, 2))
        assert isinstance(page, TimersPage)
        assert (page.count, {row.topic for row in page.timers} <= {"t"}) == (5, True)
        seen += [row.due_ms for row in page.timers]
        after = (page.after_ms, page.after_id)
        if after == (0, 0):
            break
    assert seen == sorted(seen)
    assert len(seen) == 5


def test_messages_that_are_carried_to_the_logs_end_are_delivered_as_if_nothing_had_been() -> None:
    rig = rig_with_topic()
    first = one(rig, b"1", 3_000)
    second = one(rig, b"2", 1_000)
    border = rig.store.written
    assert not rig.theme(TimerRequests).carry(border, rig.times.wall_ms(), count_max=1)
    assert rig.theme(TimerRequests).carry(border, rig.times.wall_ms())
    assert rig.state.timers.before(border, 9) == []
    rig.sync()
    rig = rig.restarted()
    assert [row.id for row in rig.ask(ListTimers()).timers] == [second.id, first.id]
    pass_s(rig, 5.0)
    assert rig.bodies("t:0") == [b"2", b"1"]


def test_retention_takes_no_delayed_message() -> None:
    rig = rig_with_topic(retention_s=60.0)
    for number in range(20):
        one(rig, b"%d" % number, 600_000)
    start = rig.store.start
    for _ in range(60):
        rig.ask(append(Message("t", bytes(8_000))))
        pass_s(rig, 5.0)
    assert rig.store.start > start + 65_536
    assert len(rig.state.timers) == 20
    rig = rig.restarted()
    pass_s(rig, 600.0)
    assert [body for body in rig.bodies("t:0", rig.store.bounds("t:0").end - 20)] == [b"%d" % n for n in range(20)]


def test_delayed_messages_are_a_small_part_of_what_retention_keeps() -> None:
    rig = rig_with_topic(retention_bytes=16_000)
    refused = [len(delayed(rig, (Message("t", bytes(500)), 1_000)).refused) for _ in range(8)]
    assert (refused[0], refused[-1]) == (0, 1)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 9_000), st.booleans()), min_size=1, max_size=12))
def test_any_mix_of_delays_restarts_and_lost_power_delivers_each_message_once_in_order(
    sent: list[tuple[int, bool]],
) -> None:
    rig = rig_with_topic()
    due: list[tuple[int, int, bytes]] = []
    for number, (delay_ms, crashes) in enumerate(sent):
        timer = one(rig, b"%d" % number, delay_ms)
        due.append((timer.due_ms, timer.id, b"%d" % number))
        if crashes:
            rig.service.tick(rig.clock.now, rig.times.wall_ms(), rig.times.age_ms())
            rig.disk.lose_power()
            rig = rig.restarted()
    for _ in range(30):
        pass_s(rig, 1.0)
    assert sorted(rig.bodies("t:0")) == sorted(body for _, _, body in due)


def prepared(one: Preparation, *bodies: bytes) -> bytes:
    """The records of messages as a producer numbers them, each with a key of its own."""
    messages = [Message("t", body, key=f"k{at}") for at, body in enumerate(bodies)]
    return b"".join([record_of(each.run) for each in runs_at_broker(one, messages, 5)])


@pytest.mark.parametrize("power", [False, True])
def test_what_is_sent_again_has_the_timer_that_it_had_also_after_a_restart(power: bool) -> None:
    rig, body = rig_with_topic(), prepared(Preparation(7, TopicMap()), b"1", b"2")
    first = rig.ask(SetTimers((2_000, 3_000), True, body))
    assert not first.refused
    rig.clock.now += 0.5  # the delay counts from when it was asked for first
    assert rig.ask(SetTimers((2_000, 3_000), True, body)) == first
    if power:
        rig.disk.lose_power()
    rig = rig.restarted()
    assert rig.ask(SetTimers((2_000, 3_000), True, body)) == first
    pass_s(rig, 5.0)
    assert rig.bodies("t:0") == [b"1", b"2"]
    rig = rig.restarted()
    assert rig.ask(SetTimers((2_000, 3_000), True, body)) == first
    pass_s(rig, 5.0)
    assert rig.bodies("t:0") == [b"1", b"2"]


def test_what_was_lost_with_the_power_is_set_anew_and_what_is_new_beside_what_is_known() -> None:
    rig, producer = rig_with_topic(), Preparation(7, TopicMap())
    one, two = prepared(producer, b"1"), prepared(producer, b"2")
    rig.submit(SetTimers((1_000,), True, one))  # answered by nobody, and not synced
    rig.disk.lose_power()
    rig = rig.restarted()
    [first] = rig.ask(SetTimers((1_000,), True, one)).timers
    both = rig.ask(SetTimers((1_000, 1_000), True, one + two))
    assert (both.timers[0], both.refused) == (first, ())
    twice = rig.ask(SetTimers((1_000, 1_000), True, prepared(producer, b"3") * 2))
    assert [(row.at, row.code) for row in twice.refused] == [(1, InvalidMessage.code)]
    pass_s(rig, 2.0)
    assert rig.bodies("t:0") == [b"1", b"2", b"3"]


def test_a_number_is_of_one_message_delayed_or_not() -> None:
    rig, producer = rig_with_topic(), Preparation(7, TopicMap())
    plain = runs_at_broker(producer, [Message("t", b"plain", key="k")], 5)
    rig.ask(append_of(plain))
    answer = rig.ask(SetTimers((0,), True, record_of(plain[0].run)))
    assert [row.code for row in answer.refused] == [InvalidMessage.code]
    later = runs_at_broker(producer, [Message("t", b"later", key="k")], 5)
    rig.ask(SetTimers((0,), True, record_of(later[0].run)))
    [place] = rig.ask(append_of(later)).runs  # it is stored, and is in no queue
    assert place.offset < 0
    pass_s(rig, 1.0)
    assert rig.bodies("t:0") == [b"plain", b"later"]


def test_a_timer_whose_record_is_gone_is_known_to_be_set_and_behind_the_window_it_is_looked_up() -> None:
    rig, producer = rig_with_topic(segment_bytes=1 << 20), Preparation(7, TopicMap())
    body, unsent = prepared(producer, b"old"), prepared(producer, b"unsent")
    first = rig.ask(SetTimers((0,), True, body))
    for _ in range(2):
        rig.ask(append_of(runs_at_broker(producer, [Message("t", b"x")] * 4096, 5)))
    rig = rig.restarted()  # what memory has of where messages are is gone
    assert rig.ask(SetTimers((0,), True, body)) == first
    assert rig.ask(SetTimers((0,), True, unsent)).timers[0].id > first.timers[0].id
    rig = rig_with_topic(retention_s=60.0)
    rig.ask(SetTimers((0,), True, body))
    start = rig.store.start
    for _ in range(30):
        rig.ask(append(Message("t", bytes(8_000))))
        pass_s(rig, 5.0)
    assert rig.store.start > start
    assert rig.ask(SetTimers((0,), True, body)).timers[0].id == TIMER_FORGOTTEN
