from __future__ import annotations

from typing import Any

import pytest
from stored_queues import STORED_MS

from penstock.errors import BrokerAway, InvalidConfig, LogReplaced, NoRoute, Unavailable
from penstock.spark.cluster import Cluster
from penstock.spark.offsets import Extent, QueueKey
from penstock.spark.options import parse


def cluster(queues: Any, stream: bool = True, **given: str) -> Cluster:
    servers = {"servers": queues.address, "fetchOffset.numRetries": "0", "brokerPatienceMs": "0"}
    return Cluster(
        parse(
            servers | ({} if {"assign", "subscribePattern"} & set(given) else {"subscribe": "t"}) | given, stream=stream
        )
    )


def key(queue: int, topic: str = "t") -> QueueKey:
    return QueueKey(topic, "broker-a", queue)


def test_the_queues_of_a_topic_come_with_their_bounds_and_broker(queues: Any) -> None:
    queues.put("t", 0, 5)
    queues.put("t", 1, 3)
    queues.remove_before("t", 1, 2)
    asked = cluster(queues)
    assert asked.extents() == {
        key(0): Extent(queues.address, 0, 5, "log-1"),
        key(1): Extent(queues.address, 2, 3, "log-1"),
    }
    asked.close()


def test_copies_are_read_only_if_the_query_prefers_them(queues: Any) -> None:
    queues.put("t", 0, 5)
    queues.readers = ("c:1", queues.address)
    for given, copies in (({}, ()), ({"readFrom": "leader"}, ()), ({"readFrom": "copies"}, ("c:1",))):
        asked = cluster(queues, **given)
        assert asked.extents()[key(0)].copies == copies
        asked.close()


def test_a_batch_of_a_topic_that_nobody_has_fails_and_a_stream_waits_for_it(
    queues: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked = cluster(queues)
    with pytest.raises(NoRoute, match="'t'"):
        asked.extents()
    for _ in range(2):
        assert asked.extents(missing_ok=True) == {}
    asked.close()
    assert caplog.messages == ["no live broker has topic 't'; the stream waits for it"]


def test_a_pattern_finds_topics_by_their_whole_name_without_the_systems_own(queues: Any) -> None:
    for topic in ("plant1", "plant2", "myplant1", "%sys%topics"):
        queues.put(topic, 0, 1)
    asked = cluster(queues, subscribePattern="(plant|%sys%).*")
    assert set(asked.extents()) == {key(0, "plant1"), key(0, "plant2")}
    asked.close()


@pytest.mark.parametrize("names", ["[1]", '["broker-a:1"]'])
def test_an_assignment_reads_only_its_queues(queues: Any, names: str) -> None:
    queues.create("t", 3)
    asked = cluster(queues, assign=f'{{"t":{names}}}')
    assert set(asked.extents()) == {key(1)}
    asked.close()


def test_an_assigned_queue_that_is_not_there_is_refused(queues: Any) -> None:
    queues.create("t", 1)
    asked = cluster(queues, assign='{"t":[7]}')
    with pytest.raises(InvalidConfig, match=r"topic 't' has no queue 7 \(it has broker-a:0\)"):
        asked.extents()
    asked.close()


def test_a_time_becomes_the_offset_of_the_first_message_at_or_after_it(queues: Any) -> None:
    queues.put("t", 0, 5)  # a second apart
    asked = cluster(queues, startingTimestamp=str(STORED_MS + 2500))
    assert asked.starts(asked.extents()) == {key(0): 3}
    asked.close()


def test_a_queue_without_a_message_since_the_time_is_an_error_or_begins_at_its_end(queues: Any) -> None:
    queues.put("t", 0, 5)
    late = {"startingTimestamp": str(STORED_MS + 60_000)}
    asked = cluster(queues, **late)
    with pytest.raises(InvalidConfig, match="no message at or after"):
        asked.starts(asked.extents())
    asked.close()
    asked = cluster(queues, **late, startingOffsetsByTimestampStrategy="latest")
    assert asked.starts(asked.extents()) == {key(0): 5}
    asked.close()


def test_a_time_after_the_ends_were_seen_gives_these_ends(queues: Any) -> None:
    queues.put("t", 0, 2)
    asked = cluster(queues, startingTimestamp=str(STORED_MS + 4000), startingOffsetsByTimestampStrategy="latest")
    extents = asked.extents()
    queues.put("t", 0, 5)
    assert asked.starts(extents) == {key(0): 2}
    asked.close()


def test_a_broker_that_is_away_is_an_error_and_never_a_part_of_the_topic(queues: Any) -> None:
    queues.put("t", 0, 5)
    queues.away = ("broker-b",)
    for given in ({}, {"subscribePattern": "t.*"}):
        asked = cluster(queues, stream=False, **given)
        with pytest.raises(BrokerAway, match="broker broker-b is away, and may have some of topic 't'") as raised:
            asked.extents()
        assert "Incomplete" not in str(raised.value)
        asked.close()
    asked = cluster(queues, stream=False, allowIncomplete="true")
    assert set(asked.extents()) == {key(0)}
    asked.close()


@pytest.mark.parametrize("given", [{}, {"subscribePattern": "t.*"}])
def test_a_topic_whose_brokers_are_all_away_is_not_unknown(queues: Any, given: dict[str, str]) -> None:
    queues.put("t", 0, 5)
    queues.is_registered = False
    asked = cluster(queues, **given)
    with pytest.raises(BrokerAway, match="broker-a"):
        asked.extents(missing_ok=True)
    asked.close()


def test_a_broker_that_comes_back_within_the_patience_is_waited_for(queues: Any) -> None:
    queues.put("t", 0, 5)
    queues.is_registered = False
    asked_often = 0

    def comes_back(request: Any) -> None:
        nonlocal asked_often
        asked_often += 1
        queues.is_registered = asked_often > 30

    queues.on_asked = comes_back
    for stream in (True, False):
        asked_often = 0
        asked = cluster(queues, stream, brokerPatienceMs="600000", **{"fetchOffset.retryIntervalMs": "0"})
        assert set(asked.extents(missing_ok=True)) == {key(0)}
        asked.close()


def test_a_needed_queue_is_gone_only_where_its_broker_says_so(queues: Any) -> None:
    queues.put("t", 0, 5)
    asked = cluster(queues)
    assert set(asked.extents(missing_ok=True, needed=[key(0), key(7)])) == {key(0)}
    assert set(asked.extents(missing_ok=True, needed=[key(0, "u")])) == {key(0)}
    with pytest.raises(BrokerAway, match="broker broker-b is away"):
        asked.extents(missing_ok=True, needed=[QueueKey("t", "broker-b", 0)])
    asked.close()


def test_a_batch_with_a_wrong_address_fails_long_before_its_patience_is_over(unused_address: str) -> None:
    given = {"subscribe": "t", "servers": unused_address, "fetchOffset.retryIntervalMs": "0"}
    with pytest.raises(Unavailable, match=unused_address):
        Cluster(parse(given, stream=False)).extents()


def test_offsets_of_another_log_are_not_read_from_this_one(queues: Any) -> None:
    queues.put("t", 0, 5)
    text = '{"t": {"broker-a:0": 3}, "@logs": {"broker-a": "log-0"}}'
    asked = cluster(queues, startingOffsets=text)
    with pytest.raises(LogReplaced):
        asked.starts(asked.extents())
    asked.close()
    asked = cluster(queues, startingOffsets=text, failOnDataLoss="false")
    assert asked.starts(asked.extents()) == {key(0): 0}
    asked.close()
    asked = cluster(queues, startingOffsets=text.replace("log-0", "log-1"))
    assert asked.starts(asked.extents()) == {key(0): 3}
    asked.close()


def test_a_query_reads_what_it_subscribes_to(queues: Any) -> None:
    for given, reads in (
        ({"subscribe": "a,b"}, {key(0, "a"), key(1, "b")}),
        ({"subscribePattern": "[ab]"}, {key(0, "a"), key(1, "b")}),
        ({"assign": '{"a": [0], "b": ["broker-a:1"]}'}, {key(0, "a"), key(1, "b")}),
        ({"assign": '{"a": [1]}'}, set()),
    ):
        asked = cluster(queues, **given)
        assert {one for one in (key(0, "a"), key(1, "b"), key(0, "ab")) if asked.reads(one)} == reads


def test_a_server_that_stays_away_is_an_error_that_names_it(unused_address: str) -> None:
    options = parse(
        {
            "subscribe": "t",
            "servers": unused_address,
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "0",
            "brokerPatienceMs": "0",
        },
        stream=True,
    )
    with pytest.raises(Unavailable, match=unused_address):
        Cluster(options).extents()
