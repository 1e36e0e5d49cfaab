"""The topic of the audit log."""

from __future__ import annotations

import json

from broker.store.level import Level
from penstock.errors import InvalidRequest
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import AUDITED_MAX, AuditEntry, FindByKey, TellAudited
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import DescribeTopic
from tests.broker.broker_rig import Rig, append, bodies
from topicmap.queues import AUDIT_TOPIC

DEVICE = AuditEntry(5, "ada", "mqtt", "192.0.2.1", "Publish", "a/\ud800", False, "access rules", "d7", 3)
ADMIN = AuditEntry(6, "ada b", "scram", "192.0.2.1:5", "DeleteTopic", "orders", True)


def test_entries_are_durable_messages_that_are_found_by_user_and_client() -> None:
    rig = Rig(default_queues=4, audit_kept_s=60)
    assert rig.ask(TellAudited("gateway-1", (DEVICE, ADMIN))) == Done()
    told = [json.loads(body) for body in rig.bodies(f"{AUDIT_TOPIC}:0")]
    assert told == [
        {
            "time_ms": 5,
            "server": "gateway-1",
            "act": "Publish",
            "allowed": False,
            "name": "a/?",
            "user": "ada",
            "how": "mqtt",
            "client": "d7",
            "address": "192.0.2.1",
            "why": "access rules",
            "times": 3,
        },
        {
            "time_ms": 6,
            "server": "gateway-1",
            "act": "DeleteTopic",
            "allowed": True,
            "name": "orders",
            "user": "ada b",
            "how": "scram",
            "address": "192.0.2.1:5",
        },
    ]
    for key, count in (("ada", 1), ("d7", 1), ("b", 0)):
        assert len(bodies(rig.ask(FindByKey(AUDIT_TOPIC, key)))) == count
    detail = rig.ask(DescribeTopic(AUDIT_TOPIC))
    assert (detail.queues, detail.level, detail.retention_s) == (1, Level.DISK.word, 60)
    assert rig.service.figures()["penstock_audit_entries_total"] == 2


def test_nobody_else_writes_there_and_no_request_is_without_bound() -> None:
    rig = Rig()
    for entries in ((), (ADMIN,) * (AUDITED_MAX + 1)):
        assert isinstance(rig.ask(TellAudited("a", entries)), InvalidRequest)
    assert rig.ask(append(Message(AUDIT_TOPIC, b"x"))).refused
