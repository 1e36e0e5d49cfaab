"""Clients' runs against a real server: all is read back, and what is not right has no number."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from loadtest.native.bench import create_topic
from loadtest.native.orders import Order, Outcome
from loadtest.native.scenarios import CONSUME, PIPE, TRACED, TRANSACT
from loadtest.native.worker import first_of, perform, read_back
from loadtest.servers import HOST, NAMES, Penstock
from loadtest.wires import Failed
from penstock.errors import TimedOut
from tests.loadtest.native.test_orders import order

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def to(server: Penstock, topic: str, **changed: object) -> Order:
    at = f"{HOST}:{server.ports[NAMES]}"
    return order(servers=at, server_pid=server.pid, topic=topic, group=topic, measure_s=0.05, **changed)


def counted(server: Penstock, topic: str, **changed: object) -> Outcome:
    """Of a run that is as long as it takes to count a message: a machine that has much to do needs more."""
    for number in range(6):
        asked = replace(to(server, f"{topic}-{number}", **changed), measure_s=0.05 * 4**number)
        if asked.kind == PIPE:
            create_topic(server, asked.topic, 0)
        outcome = perform(asked)
        if not outcome.error.startswith("no message was done"):
            break
    return outcome


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("batch", [1, 16])
def test_what_is_sent_is_read_back(server: Penstock, batch: int, loop: str) -> None:
    outcome = counted(server, f"sent-{batch}-{loop}", batch=batch, loop=loop)
    assert outcome.error == ""
    assert outcome.checked >= outcome.messages > 0
    assert outcome.checked % batch == 0


def test_what_is_sent_in_transactions_is_read_back_and_compared_with_plain_sends(server: Penstock) -> None:
    outcome = counted(server, "transactions", kind=TRANSACT, batch=16)
    assert outcome.error == ""
    assert outcome.checked > outcome.messages > 0
    assert outcome.figures["to_plain"] > 0


def test_a_backlog_is_stored_once_and_read_by_each_group(server: Penstock) -> None:
    create_topic(server, "backlog", 2)
    first = to(server, "backlog", kind=CONSUME, messages=1200)
    for one in (first, replace(first, group="another")):
        outcome = perform(one)
        assert (outcome.error, outcome.messages, outcome.checked) == ("", 1200, 1200)
    assert anyio.run(read_back, first, 1200) == 1200


def test_a_backlog_is_read_through_a_filter_that_all_of_it_passes(server: Penstock) -> None:
    create_topic(server, "chosen", 1)
    outcome = perform(to(server, "chosen", kind=CONSUME, messages=600, filter="level > 5 AND kind = 'reading'"))
    assert (outcome.error, outcome.checked) == ("", 600)


def test_what_goes_through_a_pipe_is_counted_where_it_comes_out(server: Penstock) -> None:
    outcome = counted(server, "pipe", kind=PIPE)
    assert outcome.error == ""
    assert outcome.checked >= outcome.messages > 0
    assert outcome.client_us == pytest.approx(outcome.figures["producer_us"] + outcome.figures["consumer_us"])


def test_a_message_that_is_not_there_leaves_no_number(server: Penstock) -> None:
    asked = to(server, "few")
    sent = perform(asked).checked
    with pytest.raises(Failed, match="2 of"):
        anyio.run(read_back, asked, sent + 2)


def test_a_consumer_that_cannot_begin_leaves_no_number(server: Penstock) -> None:
    outcome = perform(to(server, "not a topic/", kind=PIPE))
    assert outcome.error.startswith("the consumer did not begin")


def test_the_first_error_of_a_group_is_what_is_said() -> None:
    deep = BaseExceptionGroup("", [BaseExceptionGroup("", [TimedOut("late"), Failed("no")])])
    assert first_of(deep) == "TimedOut: late"
    assert first_of(BaseExceptionGroup("", [Failed("no")])) == "no"


def test_a_trace_is_told_as_a_part_of_what_goes_without_it(server: Penstock) -> None:
    outcome = counted(server, "traced", kind=TRACED)
    assert not outcome.error
    assert outcome.figures["kept"] > 0
