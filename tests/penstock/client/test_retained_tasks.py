"""Pages of retained messages, with the answers of brokers by hand: only what one broker does not show."""

from __future__ import annotations

import pytest

from penstock.client.administration import Ask
from penstock.client.retained_tasks import COUNT_MAX, retained_page
from penstock.errors import InvalidRequest
from penstock.protocol.message import ENTRY, FRAME_HEAD_BYTES, Message, encode_message
from penstock.protocol.requests.filters import FetchRetained, RetainedPage
from penstock.protocol.requests.routes import BrokerRoute

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)


def page(*names: str, after: str = "") -> RetainedPage:
    """A broker's answer."""
    records = [encode_message(Message("t", b"x", mqtt_topic=name)) for name in names]
    records = [bytes(FRAME_HEAD_BYTES) + one for one in records]
    rows = [ENTRY.pack(0, 0, len(one), 0) for one in records]
    return RetainedPage(len(records), after, b"".join(rows + records))


def asked(count: int, *answers: RetainedPage) -> tuple[list[tuple[str, str]], str]:
    """Names with their brokers, and what continues them."""
    task = retained_page("#", "a", count)
    next(task)
    assert task.send((A, B)) == Ask("host:1", FetchRetained("#", "a", count), RetainedPage)
    task.send(answers[0])
    with pytest.raises(StopIteration) as ended:
        task.send(answers[1])
    found = ended.value.value
    return [(one.name, one.queue.broker) for one in found.messages], found.after


def test_rows_of_several_brokers_are_merged_and_none_is_passed_over() -> None:
    assert asked(9, page("t/b", "t/d"), page("t/c")) == ([("t/b", "a"), ("t/c", "b"), ("t/d", "a")], "")
    assert asked(2, page("t/b", "t/d"), page("t/c")) == ([("t/b", "a"), ("t/c", "b")], "t/c")
    assert asked(9, page("t/b", "t/x"), page("t/c", after="t/c")) == ([("t/b", "a"), ("t/c", "b")], "t/c")
    assert asked(9, page(after="t/e"), page("t/z")) == ([], "t/e")


@pytest.mark.parametrize("wrong", [{"filter": ""}, {"count": 0}, {"count": COUNT_MAX + 1}, {"count": "5"}])
def test_what_is_no_question_is_refused_before_anybody_is_asked(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        next(retained_page(**wrong))  # type: ignore[arg-type]
