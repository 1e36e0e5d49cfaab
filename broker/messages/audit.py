"""The topic of the audit log, ``%AUDIT%``: entries of brokers, name servers, gateways and consoles, as JSON.

A message is an entry; its keys are the user and the client id, so that it is found by them. A request of entries is
answered when they are on the disk.
"""

from __future__ import annotations

from typing import Any, Final

from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Outcome
from broker.messages.trace import own_message
from broker.settings import BrokerSettings
from broker.store.message_store import MessageStore
from broker.topics.requests import TopicRequests
from penstock.errors import InvalidRequest
from penstock.protocol.requests.messages import AUDITED_MAX, AuditEntry, TellAudited
from penstock.protocol.requests.request import Done
from topicmap.queues import AUDIT_TOPIC

LEVEL: Final = "disk"


class AuditLog:
    """The audit log of the servers that send their entries to one broker."""

    def __init__(self, topics: TopicRequests, store: MessageStore, settings: BrokerSettings) -> None:
        self._topics = topics
        self._store = store
        self._kept_s = settings.audit_kept_s
        self._written = 0

    @handles(TellAudited)
    def tell(self, request: TellAudited, now: float, now_ms: int) -> Outcome:
        """Stores entries. Raises ``InvalidRequest`` for too many, and ``StorageFull``."""
        if not 0 < len(request.entries) <= AUDITED_MAX:
            raise InvalidRequest(f"a request has 1 to {AUDITED_MAX} entries of the audit log")
        self._topics.ensure_own(AUDIT_TOPIC, now_ms, LEVEL, self._kept_s)
        level = self._topics.level_of(AUDIT_TOPIC)
        made = [
            own_message(AUDIT_TOPIC, _keys(one), _row(request.server, one), now_ms, level) for one in request.entries
        ]
        self._store.append_facts(made, now_ms)
        self._written += len(made)
        return AfterQuorum(Done(), self._store.written)

    def figures(self) -> dict[str, float]:
        """Counters since start."""
        return {"penstock_audit_entries_total": self._written}


def _keys(entry: AuditEntry) -> str:
    """The keys of an entry. Keys are divided by spaces, so a name with a space is none."""
    return " ".join([one for one in (entry.user, entry.client) if one and " " not in one])


def _row(server: str, entry: AuditEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"time_ms": entry.at_ms, "server": server, "act": entry.act, "allowed": entry.allowed}
    for field in ("name", "user", "how", "client", "address", "why"):
        if value := getattr(entry, field):
            row[field] = value
    if entry.times > 1:
        row["times"] = entry.times
    return row
