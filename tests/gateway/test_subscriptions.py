"""Overlapping subscriptions: who delivers, and in which form."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from making import arrival, subscribed

from gateway.brokers import Broker
from gateway.delivery import Variant
from gateway.session import Session
from gateway.subscriptions import Cursor, variant_for

FILTERS = ["a/b", "a/+", "+/b", "a/#", "#", "c/d"]


def delivering(session: Session, **message: object) -> list[Cursor]:
    """The cursors that would deliver a message which is in all their queues."""
    one = arrival(**message)  # type: ignore[arg-type]
    found = []
    for cursor in session.overlap.cursors:
        matching = session.overlap.matching(cursor, one)
        if matching and matching[0] is cursor:
            found.append(cursor)
    return found


def test_the_oldest_matching_subscription_delivers() -> None:
    session = Session("c", 10)
    subscribed(session, "x/y")
    oldest = subscribed(session, "a/#")
    subscribed(session, "a/b")
    assert delivering(session, name="a/b") == [oldest]


def test_a_subscription_does_not_count_for_messages_from_before_it() -> None:
    session = Session("c", 10)
    subscribed(session, "a/#", start=2000)
    younger = subscribed(session, "a/b", start=0)
    assert delivering(session, name="a/b", position=1999) == [younger]


def test_a_lone_subscription_does_not_count_for_messages_from_before_it_either() -> None:
    session = Session("c", 10)
    cursor = subscribed(session, "a/#", start=2000)
    assert delivering(session, position=1999) == []
    assert delivering(session, position=2000) == [cursor]


def test_queues_of_another_broker_do_not_count() -> None:
    session = Session("c", 10)
    subscribed(session, "a/#", broker=cast(Broker, object()))
    here = subscribed(session, "a/b")
    assert session.overlap.matching(here, arrival(name="a/b")) == [here]


def test_a_subscription_that_is_not_open_yet_does_not_deliver() -> None:
    session = Session("c", 10)
    subscribed(session, "a/#").next = -1
    standing = subscribed(session, "a/b")
    assert delivering(session, name="a/b") == [standing]


@given(st.lists(st.sampled_from(FILTERS), unique=True, min_size=1), st.integers(1000, 1010), st.data())
def test_a_message_is_delivered_by_exactly_one_cursor_if_any_counts(
    filters: list[str], position: int, data: st.DataObject
) -> None:
    session = Session("c", 10)
    cursors = [subscribed(session, one, start=data.draw(st.integers(1000, 1010))) for one in filters]
    counting = [one for one in cursors if one.subscription.filter != "c/d" and one.start <= position]
    in_queue = [one for one in cursors if one.subscription.filter != "c/d"]
    message = arrival(name="a/b", position=position)
    found = []
    for one in in_queue:  # the broker puts it into exactly these queues
        matching = session.overlap.matching(one, message)
        if matching and matching[0] is one:
            found.append(one)
    assert found == counting[:1]


def test_the_one_copy_has_the_highest_qos_and_all_identifiers() -> None:
    session = Session("c", 10)
    cursors = [
        subscribed(session, "a/b", qos=0, identifier=7),
        subscribed(session, "a/+", qos=2),
        subscribed(session, "#", qos=1, identifier=9, as_published=True),
    ]
    message = arrival(qos=2, retain=True)
    assert variant_for(cursors, message, b"c", True) == Variant(True, 2, True, (7, 9))


def test_the_qos_is_never_higher_than_published() -> None:
    session = Session("c", 10)
    one = subscribed(session, "a/b", qos=2)
    assert variant_for([one], arrival(qos=1), b"c", False) == Variant(False, 1, False)
    assert variant_for([one, one], arrival(qos=0), b"c", False) == Variant(False, 0, False)


def test_no_local_leaves_out_the_clients_own_messages_only_for_that_subscription() -> None:
    session = Session("c", 10)
    silent = subscribed(session, "a/b", no_local=True, qos=2)
    other = subscribed(session, "a/+", qos=1)
    mine, theirs = arrival(sender="c", qos=2), arrival(sender="d", qos=2)
    assert variant_for([silent], mine, b"c", True) is None
    assert variant_for([silent], theirs, b"c", True) == Variant(True, 2, False)
    assert variant_for([silent, other], mine, b"c", True) == Variant(True, 1, False)


def test_removing_a_cursor_forgets_what_was_remembered() -> None:
    session = Session("c", 10)
    first, second = subscribed(session, "a/#"), subscribed(session, "a/b")
    assert delivering(session, name="a/b") == [first]
    session.overlap.remove(first)
    subscribed(session, "zzz")
    assert delivering(session, name="a/b") == [second]
