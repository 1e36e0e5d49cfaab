from __future__ import annotations

import errno
import gc
import sys

import pytest

from broker.kernel.outcomes import Now
from penstock.errors import InvalidRequest, InvalidTopic, PenstockError, QueueNotFound, StorageFailed, UnknownRequest
from penstock.protocol.message import Message
from penstock.protocol.requests import replicas
from penstock.protocol.requests.filters import CloseFilters, FetchRetained, OpenFilters
from penstock.protocol.requests.given import GivenPull, GivenRuns
from penstock.protocol.requests.groups import CommitOffsets, JoinGroup, Progress, QueueOffset, Tried
from penstock.protocol.requests.messages import Append, AppendRuns, AuditEntry, DeviceAck, Pull
from penstock.protocol.requests.pops import Range
from penstock.protocol.requests.retries import Back
from penstock.protocol.requests.routes import QueryRoute, TopicRoute
from penstock.protocol.requests.servers import Ping, ReadFigures, ServerInfo
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS, SessionSave, SessionTerms
from penstock.protocol.requests.table import REQUESTS
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.requests.transactions import HalfOutcome
from penstock.version import VERSION
from tests.broker.broker_rig import Rig, append, now

OF_COPIES = {
    replicas.ReplicaHello,
    replicas.AskVote,
    replicas.TakeEntries,
    replicas.FetchLog,
    replicas.AddReplica,
    replicas.TakeLead,
}
"""What the nodes of a group of copies say to each other, and to no client's port."""


def test_every_request_of_a_broker_has_its_function_and_no_other_has() -> None:
    served = set(Rig().service._table)
    asked = {cls for code, cls in REQUESTS.items() if code >= 30 or cls is Ping} - OF_COPIES
    assert served == asked | {GivenRuns, GivenPull}


def test_a_request_for_another_server_is_refused() -> None:
    assert isinstance(now(Rig().handle(QueryRoute("t"))), UnknownRequest)


def test_a_ping_says_who_is_there() -> None:
    rig = Rig(name="broker-x")
    assert now(rig.handle(Ping())) == ServerInfo("broker", "broker-x", VERSION, rig.clock.wall_ms())


def test_name_servers_are_told_all_topics_and_a_version_that_changes_with_them() -> None:
    told: list[None] = []
    rig = Rig(on_routes_changed=lambda: told.append(None))
    before = rig.state.routes()
    rig.ask(CreateTopic("b", 2))
    rig.ask(append(Message("a", b"x")))
    after = rig.state.routes()
    assert (before[1], after[1]) == ((), (TopicRoute("a", 4), TopicRoute("b", 2)))
    assert after[0] != before[0]
    assert rig.state.changed_routes(before[0]) == after
    assert rig.state.changed_routes(after[0] - 1) == (after[0], (TopicRoute("a", 4),))
    assert rig.state.changed_routes(after[0]) == (after[0], ())
    assert len(told) == 2


def test_figures_count_what_was_stored_refused_read_and_synced() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    for kept_by_gateways in GATEWAYS_TOPICS:  # as in `penstock topic list`
        rig.ask(CreateTopic(kept_by_gateways, 1))
    rig.ask(OpenFilters("g", ("a", "b")))
    rig.ask(append(Message("t", b"1"), Message("t", b"2", mqtt_topic="a", retain=True)))
    rig.ask(Append(1, False, append(Message("t", b"1")).body[:-1] + b"?"))
    rig.ask(Pull("t:0", 0))
    rig.lead.synced(0.002)
    rig.submit(Pull("t:0", 2, wait_s=60.0))
    answer = rig.ask(ReadFigures())
    figures = dict(zip(answer.names, answer.values, strict=True))
    latencies = ("penstock_sync_", "penstock_stored_", "penstock_delivery_", "penstock_end_to_end_")
    elsewhere = ("rocketmq_throughput", "penstock_limit_used", *latencies)
    assert {name: figures[name] for name in figures if not name.startswith(elsewhere)} == {
        "rocketmq_messages_in_total": 2,
        "rocketmq_messages_out_total": 2,
        "rocketmq_storage_size": rig.store.written,
        "rocketmq_storage_flush_behind_bytes": 0,
        "penstock_messages_refused_total": 1,
        "penstock_messages_repeated_total": 0,
        "penstock_producers": 0,
        "penstock_empty_topics_deleted_total": 0,
        "penstock_syncs_total": 1,
        "penstock_topics": 1,
        "penstock_open_filters": 2,
        "penstock_parked_requests": 1,
        "penstock_retained_messages": 1,
        "penstock_mqtt_sessions": 0,
        "penstock_session_bytes": 0,
        "penstock_shared_lost_total": 0,
        "penstock_popped_leased": 0,
        "penstock_popped_owed": 0,
        "penstock_popped_redelivered_total": 0,
        "penstock_shared_redelivered_total": 0,
        "penstock_shared_unsettled": 0,
        "penstock_shares": 0,
        "penstock_halves": 0,
        "penstock_halves_parked": 0,
        "penstock_halves_committed_total": 0,
        "penstock_halves_rolled_back_total": 0,
        "penstock_halves_checked_total": 0,
        "penstock_retries_total": 0,
        "penstock_given_back_again_total": 0,
        "penstock_dead_letters_total": 0,
        "penstock_timers": 0,
        "penstock_timer_bytes": 0,
        "penstock_timers_fired_total": 0,
        "penstock_timers_refused_total": 0,
        "penstock_timers_damaged_total": 0,
        "penstock_timers_frozen_s": 0,
        "penstock_audit_entries_total": 0,
        "penstock_trace_dropped_total": 0,
        "penstock_trace_rows_total": 0,
        "penstock_timers_late_seconds": 0,
        "penstock_damaged_frames_total": 0,
        "penstock_disk_full": 0,
        "penstock_index_unwritable": 0,
        'penstock_topic_messages_total{topic="t"}': 2,
        'penstock_unlabelled{kind="topics"}': 0,
        'penstock_unlabelled{kind="groups"}': 0,
    }
    assert [figures[f"penstock_{name}_seconds_count"] for name in ("delivery", "end_to_end")] == [1, 1], "one pull"
    assert figures["rocketmq_throughput_in_total"] > 0
    assert figures["rocketmq_throughput_out_total"] > 0


def test_a_failed_write_is_told_to_the_sender_and_ends_the_broker_at_the_next_tick() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    rig.disk.fail("pwrite", errno.EIO)
    assert isinstance(now(rig.handle(append(Message("t", b"x")))), StorageFailed)
    with pytest.raises(StorageFailed):
        rig.dispatch.tick()


def test_whatever_a_peer_sends_a_request_ends_in_an_outcome() -> None:
    """Every request with the least sensible values of its fields' types."""
    odd_texts = ["", "\0", "a" * 5000, "~filter:", ":", "t:99999999999", "%sys%", "\ud800"]
    odd_numbers = [-1, 0, 1 << 62]
    rig = Rig()
    for code, cls in REQUESTS.items():
        if code < 30 or cls in OF_COPIES:
            continue
        for text in odd_texts:
            for number in odd_numbers:
                fields = {
                    name: _odd(hint, text, number)
                    for name, hint in cls.__annotations__.items()
                    if not str(hint).startswith("ClassVar")
                }
                outcome = rig.handle(cls(**fields))
                if isinstance(outcome, Now) and isinstance(outcome.result, PenstockError):
                    assert outcome.result.fault == "client" or outcome.result.retryable, outcome


def _odd(hint: object, text: str, number: int) -> object:
    kinds: dict[str, object] = {
        "int": number,
        "float": float(number),
        "bool": True,
        "str": text,
        "bytes": text.encode("utf-8", "replace"),
        "Bytes": text.encode("utf-8", "replace"),
        "tuple[str, ...]": (text,),
        "tuple[int, ...]": (number,),
        "tuple[QueueOffset, ...]": (QueueOffset(text, number),),
        "tuple[Progress, ...]": (Progress(text, number, number),),
        "tuple[SessionSave, ...]": (SessionSave(text, number, number, number),),
        "tuple[SessionTerms, ...]": (SessionTerms(text, number, True, text.encode("utf-8", "replace")),),
        "tuple[HalfOutcome, ...]": (HalfOutcome(number, text),),
        "tuple[Back, ...]": (Back(text, number, number, text),),
        "tuple[Tried, ...]": (Tried(text, number, number),),
        "tuple[DeviceAck, ...]": (DeviceAck(text, number, number, text),),
        "tuple[AuditEntry, ...]": (AuditEntry(number, text, text, text, text, text, True, text, text, number),),
        "tuple[Range, ...]": (Range(number, number),),
    }
    return kinds[str(hint)]


def test_a_request_that_is_refused_goes_with_its_outcome_and_waits_for_no_collector() -> None:
    """Where it was refused, its megabytes stood in the frames that the error came through."""
    rig = Rig()
    body = bytes(100_000)
    gc.disable()
    try:
        before = sys.getrefcount(body)
        assert isinstance(rig.ask(AppendRuns(1, 1, body)), InvalidRequest)
        assert sys.getrefcount(body) == before
    finally:
        gc.enable()


def test_what_a_parked_request_is_refused_with_keeps_nothing_of_where_it_was_raised() -> None:
    rig = Rig()
    opened = rig.ask(OpenFilters("gw", ("a", "b")))
    at, given_at = (one.offset for one in opened.opened)
    answers = rig.submit(Pull("~filter:a", at, wait_s=60.0))
    given = rig.submit(GivenPull("~filter:b", given_at, 100, 10, 60.0))
    rig.ask(CloseFilters("gw", ("a", "b")))
    assert [type(one) for one in answers + given] == [QueueNotFound, QueueNotFound]
    assert [one.__traceback__ for one in answers + given if isinstance(one, PenstockError)] == [None, None]


def test_a_request_that_is_refused_has_stored_nothing() -> None:
    rig = Rig()
    rig.ask(CreateTopic("t", 1))
    before = rig.store.written
    for bad in (
        CommitOffsets("g", "a", 1, (QueueOffset("t:0", 0),)),
        JoinGroup("g", "", ()),
        FetchRetained("a+"),
    ):
        assert isinstance(rig.ask(bad), PenstockError)
    assert rig.refused("g", "b#") == {"b#": InvalidTopic}
    assert rig.store.written == before
