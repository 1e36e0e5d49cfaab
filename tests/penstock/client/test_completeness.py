from __future__ import annotations

import pytest

from penstock.client.completeness import Holders, brokers_to_read, check_whole, holders_to_delete, joined
from penstock.errors import BrokerAway, NoRoute, TopicNotFound
from penstock.protocol.requests.routes import BrokerRoute, Route

A, B = BrokerRoute("a", "10.0.0.1:1", 4), BrokerRoute("b", "10.0.0.2:1", 4)


def test_a_broker_lives_if_one_name_server_sees_it() -> None:
    assert joined([Route((B,), ("a",)), Route((A,), ("b", "c"))]) == Holders((A, B), ("c",))


def test_a_name_server_that_knows_nothing_adds_nothing() -> None:
    assert joined([Route(()), Route((A,), ("c",))]) == Holders((A,), ("c",))
    assert joined([]) == Holders((), ())


def test_what_only_brokers_have_that_are_away_is_an_error_unless_another_name_server_sees_one() -> None:
    away = NoRoute("topic 't' is at broker b, which is away")
    with pytest.raises(BrokerAway, match="at broker b, which is away"):
        joined([away, Route(())])
    assert joined([away, Route((B,))]) == Holders((B,), ())


def test_an_answer_that_is_not_whole_names_the_brokers_that_are_missing() -> None:
    check_whole((), "topic 't'")
    with pytest.raises(BrokerAway, match="broker b is away, and may have some of topic 't'"):
        check_whole(("b",), "topic 't'")
    with pytest.raises(BrokerAway, match="brokers b, c are away"):
        Holders((A,), ("b", "c")).whole("it")


def test_a_part_is_read_only_where_the_caller_allows_it() -> None:
    assert brokers_to_read(Holders((A,), ()), "t", False) == (A,)
    assert brokers_to_read(Holders((A,), ("b",)), "t", True) == (A,)
    with pytest.raises(BrokerAway, match="allow_incomplete"):
        brokers_to_read(Holders((A,), ("b",)), "t", False)


def test_a_topic_is_deleted_where_all_that_have_it_can_be_asked_or_a_part_will_do() -> None:
    assert holders_to_delete(Holders((A,), ()), "orders", False) == (A,)
    with pytest.raises(BrokerAway, match="broker b is away"):
        holders_to_delete(Holders((A,), ("b",)), "orders", False)
    assert holders_to_delete(Holders((A,), ("b",)), "orders", True) == (A,)
    with pytest.raises(TopicNotFound):
        holders_to_delete(NoRoute("nobody has it"), "orders", True)
