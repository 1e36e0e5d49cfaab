"""Requests about open QoS 2 exchanges: which messages of a session are stored and not released yet."""

from __future__ import annotations

from typing import Final

from broker.kernel.checks import CLIENT_BYTES_MAX, check_text
from broker.kernel.fold import fact_record
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Outcome
from broker.sessions import exchanges
from broker.sessions.exchanges import Exchanges as OpenExchanges
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from penstock.errors import Fenced, InvalidRequest
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.sessions import Exchanges, FetchExchanges, ReleaseExchanges

IDS_PER_RECORD: Final = 2_048


class ExchangeRequests:
    """The open exchanges of all sessions that publish to this broker, wherever they are at home."""

    def __init__(self, state: BrokerState, store: MessageStore) -> None:
        self._sessions = state.sessions
        self._exchanges: OpenExchanges = state.exchanges
        self._is_fenced = state.is_fenced
        self._store = store

    @handles(FetchExchanges)
    def fetch(self, request: FetchExchanges, now: float, now_ms: int) -> Outcome:
        """Open exchanges of a session. The answer is durable, and no earlier epoch adds to it."""
        check_text("a client id", request.client, CLIENT_BYTES_MAX)
        if not 0 <= request.epoch < 1 << 63 or not 0 <= request.generation < 1 << 63:
            raise InvalidRequest("epochs are positions in the log")
        if self._sessions.get(request.client) is None:  # its home is elsewhere
            fact = OpenExchanges.fencing(request.client, request.generation, request.epoch)
            self._store.append([fact_record(exchanges.TOPIC, fact)], now_ms)
        ids = tuple(self._exchanges.ids(request.client, request.generation))
        return AfterQuorum(Exchanges(ids), self._store.written)

    @handles(ReleaseExchanges)
    def release(self, request: ReleaseExchanges, now: float, now_ms: int) -> Outcome:
        """Packet ids are free again."""
        check_text("a client id", request.client, CLIENT_BYTES_MAX)
        if any(not 0 < packet_id < 1 << 16 for packet_id in request.ids):
            raise InvalidRequest("a packet id is from 1 to 65,535")
        if request.epoch and self._is_fenced(request.client, request.generation, request.epoch):
            raise Fenced("another gateway has the session by now")
        known = self._exchanges.ids(request.client, request.generation)
        is_over = request.is_over and self._exchanges.knows(request.client, request.generation)
        if is_over or (known and (not request.ids or not set(known).isdisjoint(request.ids))):
            ids = () if is_over else request.ids
            parts = [ids[at : at + IDS_PER_RECORD] for at in range(0, len(ids), IDS_PER_RECORD)] or [()]
            facts = [OpenExchanges.fact(request.client, request.generation, part) for part in parts]
            self._store.append_facts([fact_record(exchanges.TOPIC, fact) for fact in facts], now_ms)
        return AfterQuorum(Done(), self._store.written)
