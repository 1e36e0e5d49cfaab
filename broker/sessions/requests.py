"""Requests about MQTT sessions: the owner of each, its filters, and its fate when the owner dies.

| event | effect |
|---|---|
| a session changes hands | a record with a new epoch; saves and ends with an older one are *fenced* |
| another gateway wants a living owner's session | the owner is called; after ``HANDOVER_S`` it changes hands |
| an owner's lease ends | its sessions are released; those with a will are offered to living owners (``KeepSessions``) |
| a session without a client expires | it ends here, or at its living owner |
| an owner has not released a session, or counts as dead | its *gateway epoch* ends (``gateway_epochs.py``) |
| a session would grow beyond ``sessions_bytes_max`` | the opening or save is refused; the rest of the request holds |

docs/protocols/sessions.md and fencing.md have the states. Leases are not durable.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.kernel.checks import CLIENT_BYTES_MAX, check_text
from broker.kernel.deadlines import Deadlines
from broker.kernel.fold import fact_record
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, AfterRound, Now, Outcome, Parked
from broker.kernel.theme import Wakers
from broker.sessions import fold as sessions
from broker.sessions import gateway_epochs
from broker.sessions.calls import OwnerCalls, client_waker, owner_waker
from broker.sessions.ends import SessionEnds
from broker.sessions.fold import Entry, Sessions
from broker.sessions.gateway_epochs import GATEWAY_EPOCHS_MAX, GatewayEpochs
from broker.sessions.gateways import Gateways
from broker.sessions.questions import SessionQuestions
from broker.sessions.room import SessionRoom
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.destinations import Incoming
from broker.store.message_store import MessageStore
from penstock.errors import Busy, Fenced, InvalidRequest, SessionNotFound, TooLarge
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.requests.sessions import (
    ANY_EPOCH,
    CONNECTED,
    GONE,
    LOST,
    NEVER_ENDS,
    NO_WILL,
    RELEASED,
    ClosedSession,
    CloseSession,
    EndGatewayEpochs,
    EndSession,
    KeepSessions,
    OpenedSession,
    OpenSession,
    SavedSessions,
    SaveSessions,
    SessionCall,
    SessionCalls,
    SessionDuties,
    SessionSave,
    WatchSessions,
    ends_of_parts,
)

WAIT_S_MAX: Final = 60.0
LEASE_S_MAX: Final = 86_400.0
DUTIES_MAX: Final = 1000
OWNER_BYTES_MAX: Final = 255
GATEWAY_EPOCH_BYTES_MAX: Final = 64
_HEAD_BYTES: Final = 64  # what a record of saves has beside them


class SessionRequests:
    """The sessions whose home is this broker. ``changed``: wakers that have stirred and were not taken yet."""

    def __init__(
        self,
        state: BrokerState,
        store: MessageStore,
        settings: BrokerSettings,
        gateways: Gateways,
        questions: SessionQuestions,
        now: float,
        age_ms: int,
        wakers: Wakers,
    ) -> None:
        self._sessions: Sessions = state.sessions
        self._gateway_epochs: GatewayEpochs = state.gateway_epochs
        self._store = store
        self._settings = settings
        self._gateways = gateways
        self._questions = questions
        self._leases: Deadlines[str] = Deadlines()
        for owner in self._sessions.owners + self._gateway_epochs.owners:
            self._leases.set(owner, now + settings.owner_lease_s)
        self._calls = OwnerCalls(wakers)
        self._ownerless: dict[str, int] = {}  # client -> epoch that a dead owner had
        self._duties: dict[str, int] = {}  # those among them that an owner must see to
        self._lapsed: set[str] = set()  # owners that fell silent, and may be alive
        self._ends = SessionEnds(self._sessions, now, age_ms)
        self._begun_until = 0  # the log position behind the last gateway epoch that has begun
        for owner, position in self._gateway_epochs.began.items():
            self._bury(owner, now, position)
        for client in self._sessions.clients:
            self._see_to(client)

    # ------------------------------------------------------------ taking one over

    @handles(OpenSession)
    def open(self, request: OpenSession, now: float, now_ms: int) -> Outcome:
        """Gives a session to an owner."""
        _check_owner(request.owner)
        check_text("a client id", request.client, CLIENT_BYTES_MAX)
        if not 0 <= request.expiry_s <= NEVER_ENDS:
            raise InvalidRequest(f"an expiry is from 0 to {NEVER_ENDS} s, not {request.expiry_s}")
        self._heard(request.owner, now)
        entry = self._sessions.get(request.client)
        if request.claim and (entry is None or self._duties.get(request.client) != entry.epoch):
            raise Fenced("this session has no duty to claim")
        if entry is not None and not request.claim:
            self._check_user(request, entry, now)
        self._check_room(request, entry, now)
        if (
            entry is not None
            and entry.owner != request.owner
            and not (request.force and self._has_had_time(request.client, entry, now))
            and self._has_living_owner(request.client, entry, now)
        ):
            return self._call(request, entry, now)
        return self._give(request, entry, now, now_ms)

    def _check_room(self, request: OpenSession, entry: Entry | None, now: float) -> None:
        """Raises ``Busy`` where it would be one session, or a will, too many. A client with a session comes back."""
        if entry is None and len(self._sessions) >= self._settings.sessions_max:
            raise Busy("the limit sessions_max is reached", hint="raise it")
        room = SessionRoom(self._sessions, self._settings.sessions_bytes_max)
        is_new = entry is None or self._is_over(entry, request, now)
        if not room.holds_opened(request.client, request.will or NO_WILL, is_new):
            raise Busy("the limit sessions_bytes_max is reached", hint="raise it")

    def _has_had_time(self, client: str, entry: Entry, now: float) -> bool:
        """Whether the owner was called upon, by whomever, and has not let go for as long as it may."""
        return self._calls.has_had_time(client, entry.epoch, now)

    def _has_living_owner(self, client: str, entry: Entry, now: float) -> bool:
        if not entry.owner or self._is_orphaned(client, entry):
            return False
        return entry.owner in self._leases and self._leases.get(entry.owner) > now

    def _heard(self, owner: str, now: float) -> None:
        """A request shows that its sender lives, where no lease does."""
        if owner not in self._leases:
            self._leases.set(owner, now + self._settings.owner_lease_s)

    def _is_orphaned(self, client: str, entry: Entry) -> bool:
        """Whether the owner was taken for dead, began anew or has called the session lost, and has not shown since that
        it has it. Its earlier gateway epoch is over, and the present one has sent nothing of the session."""
        return entry.epoch in (self._ownerless.get(client), self._duties.get(client))

    def _is_over(self, entry: Entry, request: OpenSession, now: float) -> bool:
        """Whether what was there ends with this opening. A session without expiry ends with its connection."""
        is_without = not request.claim and (request.clean or entry.expiry_s == 0)
        return is_without or self._ends.is_over(request.client, now)

    def _check_user(self, request: OpenSession, entry: Entry, now: float) -> None:
        """A session that a user has made belongs to that user while it lasts; no other user may even end it."""
        is_given_up = request.clean and entry.user == request.instead_of  # a gateway has asked the access rules
        is_anothers = entry.user and entry.user != request.user and not is_given_up
        if is_anothers and not self._ends.is_over(request.client, now):
            raise Fenced("the session of this client id is another user's")

    def _call(self, request: OpenSession, entry: Entry, now: float) -> Outcome:
        """Calls upon the owner; the asker is answered when it has let go, or has had the time for it."""
        client, epoch = request.client, entry.epoch
        until = self._calls.call(entry.owner, SessionCall(client, epoch, request.clean), now)

        def answer(last: bool) -> Result | None:
            return OpenedSession(0, 0, False) if last or self._is_free(client, epoch) else None

        return Parked((client_waker(client),), until, answer)

    def _is_free(self, client: str, epoch: int) -> bool:
        """Whether the session of this epoch has no owner any more."""
        current = self._sessions.get(client)
        return current is None or current.epoch != epoch or current.state == RELEASED

    def _give(self, request: OpenSession, entry: Entry | None, now: float, now_ms: int) -> Outcome:
        client, is_new = request.client, entry is None or self._is_over(entry, request, now)
        expiry_s, will, found = request.expiry_s, request.will or NO_WILL, OpenedSession(0, 0, not is_new)
        gone_ms = self._ends.absent_since_ms(client, now, now_ms) if request.claim else 0
        if entry is not None:  # copied before the record changes it
            found = _found(entry, is_new, self._ends.absence_s(client, now))
            if request.claim:
                expiry_s, will = entry.expiry_s, entry.will
        before = entry.owner if entry is not None else "", entry.epoch if entry is not None else 0
        fact = Sessions.opening(request.owner, client, is_new, expiry_s, will, request.user, gone_ms)
        records = [fact_record(sessions.TOPIC, fact)]
        is_taken = entry is not None and entry.state != RELEASED and not self._is_orphaned(client, entry)
        if is_taken and before[0] != request.owner:
            records += self._end_of_gateway_epoch(before[0])
        self._store.append(records, now_ms)
        if not request.claim:
            self._ends.back(client)
        self._settle(client)
        if not request.claim and before[0] in self._leases and before[0] != request.owner:
            # Too slow to let go: it must hear of it still. Of a claim it hears when it asks, and no sooner than that is
            # durable: called upon, it would take the client for back, and give its will up.
            self._calls.tell(before[0], SessionCall(client, before[1], request.clean))
        given = self._sessions.get(client)
        assert given is not None
        over = self._gateway_epochs.over_after(request.heard)
        reply = replace(found, epoch=given.epoch, generation=given.generation, doubtful_ms=given.doubtful_ms, over=over)
        if entry is None and expiry_s == 0 and will == NO_WILL and not over and not self._settings.has_copies:
            return Now(reply)  # it need outlive nothing; where another node may lead, it could give the same epoch
        return AfterQuorum(reply, self._store.written)

    def _settle(self, client: str) -> None:
        """A session has another owner or is over: no owner is called for it any more."""
        self._ownerless.pop(client, None)
        self._duties.pop(client, None)
        self._calls.settle(client)

    # ------------------------------------------------------------ what its owner says

    @handles(SaveSessions)
    def save(self, request: SaveSessions, now: float, now_ms: int) -> Outcome:
        """Keeps the state of sessions. One that its owner calls lost is as if the owner were dead. What changes
        nothing, as when an owner asks what it still has, needs no record."""
        _check_owner(request.owner)
        saves, fenced, full, changed = list[SessionSave](), list[int](), list[int](), set[str]()
        lost = list[SessionSave]()
        room = SessionRoom(self._sessions, self._settings.sessions_bytes_max)
        for at, save in enumerate(request.saves):
            if save.state not in (CONNECTED, GONE, RELEASED) and (save.state, save.epoch) != (LOST, ANY_EPOCH):
                raise InvalidRequest(
                    f"a session's state is {CONNECTED}, {GONE}, {RELEASED}, without an epoch also {LOST}"
                )
            epoch = self._epoch_of(request.owner, save)
            if not epoch:
                fenced.append(at)
            elif save.state == LOST:
                lost.append(self._losing(save.client, epoch))
            elif not room.holds_saved(save):
                fenced.append(at)
                full.append(at)
            else:
                if save.client in changed or not self._sessions.is_as(save):
                    saves.append(save if save.epoch == epoch else save._replace(epoch=epoch))
                    changed.add(save.client)
                if request.owner in self._lapsed:
                    self._revive(request.owner, save, now)
        if saves or lost:
            self._keep([*saves, *lost], now_ms)
        for save in lost:
            self._ends.went(save.client, now)
            self._released(save.client)
            self._see_to(save.client)
        for save in saves:
            if save.state != CONNECTED:
                self._ends.went(save.client, now)
            if save.state == RELEASED:
                self._released(save.client)
        return AfterQuorum(SavedSessions(tuple(fenced), tuple(full)), self._store.written)

    def _losing(self, client: str, epoch: int) -> SessionSave:
        """The record that a session has no owner any more, without a last word of the owner."""
        entry = self._sessions.get(client)
        assert entry is not None
        return SessionSave(client, epoch, LOST, entry.expiry_s)

    def _see_to(self, client: str) -> None:
        """An owner must see to a session that was lost and has a will; an owner that releases one has done so."""
        entry = self._sessions.get(client)
        if entry is not None and entry.state == RELEASED and not entry.owner and entry.will != NO_WILL:
            self._duties[client] = entry.epoch

    def _revive(self, owner: str, save: SessionSave, now: float) -> None:
        """Its owner was not dead, and may yet die: no other owner need see to the session until then, and the client is
        there if it was before."""
        self._heard(owner, now)
        self._ownerless.pop(save.client, None)
        self._duties.pop(save.client, None)
        entry = self._sessions.get(save.client)
        if entry is not None and save.state == CONNECTED and not entry.gone_ms:
            self._ends.back(save.client)

    def _epoch_of(self, owner: str, save: SessionSave) -> int:
        """The epoch in which a save counts, 0 if the session is not its owner's."""
        entry = self._sessions.get(save.client)
        if entry is None or entry.owner != owner:
            return 0
        if save.epoch and owner not in self._lapsed and self._is_orphaned(save.client, entry):
            return 0  # it was an earlier process of that name
        is_meant = entry.epoch == save.epoch or (save.epoch == ANY_EPOCH and entry.state == CONNECTED)
        return entry.epoch if is_meant else 0

    @handles(EndSession)
    def end(self, request: EndSession, now: float, now_ms: int) -> Outcome:
        """A session is over, for good where it could have come back."""
        entry = self._sessions.get(request.client)
        if entry is None or entry.epoch != request.epoch:
            return AfterQuorum(Fenced("the session is over, or another gateway's"), self._store.written)
        matters = entry.expiry_s > 0 or entry.will != NO_WILL  # one that a power loss brings back, will and all
        self._end(request.client, entry, now_ms)
        return AfterQuorum(Done(), self._store.written) if matters else Now(Done())

    def _end(self, client: str, entry: Entry, now_ms: int) -> None:
        self._store.append([fact_record(sessions.TOPIC, Sessions.ending(client, entry.epoch))], now_ms)
        self._ends.back(client)
        self._settle(client)

    @handles(KeepSessions)
    def keep(self, request: KeepSessions, now: float, now_ms: int) -> Outcome:
        """Renews the lease of an owner; the answer says which sessions it has to see to."""
        _check_owner(request.owner)
        if not 0 < request.lease_s <= LEASE_S_MAX:
            raise InvalidRequest(f"a lease has more than 0 and at most {LEASE_S_MAX:.0f} seconds")
        if request.gateway_epoch:
            _check_gateway_epoch(request.gateway_epoch)
        is_over = request.gateway_epoch in self._gateway_epochs.over
        begins = not is_over and request.gateway_epoch not in ("", self._gateway_epochs.of(request.owner))
        self._gateways.heard(request.owner, now)
        self._leases.set(request.owner, now + request.lease_s)  # also where the log is full
        if begins:
            beginning = GatewayEpochs.beginning(request.owner, request.gateway_epoch, request.fresh)
            self._store.append([fact_record(gateway_epochs.TOPIC, beginning)], now_ms)
            self._begun_until = self._store.written
        elif request.fresh and not request.gateway_epoch:  # a process of an older version
            self._store.append(self._end_of_gateway_epoch(request.owner), now_ms)
        if request.fresh:
            self._bury(request.owner, now)
            self._lapsed.discard(request.owner)
        self._sort_out(now_ms)
        duties = SessionDuties(tuple(list(self._duties)[:DUTIES_MAX]), is_over)
        return AfterRound(duties, self._begun_until)

    @handles(EndGatewayEpochs)
    def end_gateway_epochs(self, request: EndGatewayEpochs, now: float, now_ms: int) -> Outcome:
        """The home of sessions has ended some gateway epochs; nothing that comes later is stored of them."""
        epochs = request.gateway_epochs
        if len(epochs) > GATEWAY_EPOCHS_MAX:
            raise InvalidRequest(f"at most {GATEWAY_EPOCHS_MAX} gateway epochs end at once, not {len(epochs)}")
        for epoch in epochs:
            _check_gateway_epoch(epoch)
        ended = [epoch for epoch in epochs if epoch not in self._gateway_epochs.over]
        if ended:
            self._store.append([fact_record(gateway_epochs.TOPIC, GatewayEpochs.ending(ended))], now_ms)
        return AfterQuorum(Done(), self._store.written)

    def _end_of_gateway_epoch(self, owner: str) -> list[Incoming]:
        """The record that ends an owner's gateway epoch; none if it has none."""
        gateway_epoch = self._gateway_epochs.of(owner)
        return [fact_record(gateway_epochs.TOPIC, GatewayEpochs.ending([gateway_epoch]))] if gateway_epoch else []

    @handles(WatchSessions)
    def watch(self, request: WatchSessions, now: float, now_ms: int) -> Outcome:
        """Waits for calls."""
        _check_owner(request.owner)
        if request.wait_s < 0:
            raise InvalidRequest("wait_s is at least 0")

        def answer(last: bool) -> Result | None:
            calls, asked = self._calls.take(request.owner), self._questions.take(request.owner)
            return SessionCalls(calls, asked) if calls or asked or last else None

        calls = answer(not request.wait_s)
        if calls is not None:
            return Now(calls)
        return Parked((owner_waker(request.owner),), now + min(request.wait_s, WAIT_S_MAX), answer)

    # ------------------------------------------------------------ what an operator asks

    @handles(CloseSession)
    def close(self, request: CloseSession, now: float, now_ms: int) -> Outcome:
        """Ends a session. A living owner is called upon first: it cuts the client off and publishes the will. Where no
        owner does, the will becomes a duty of another one: of a session whose time is over."""
        client, entry = request.client, self._sessions.get(request.client)
        if entry is None and not request.epoch:
            raise SessionNotFound(f"there is no session of {client}", hint="`penstock session list` shows all")
        if entry is None or request.epoch not in (0, entry.epoch):
            return AfterQuorum(ClosedSession(), self._store.written)
        had_time = request.force and self._has_had_time(client, entry, now)
        if self._has_living_owner(client, entry, now) and not had_time:
            return self._call_to_close(client, entry, now)
        owner, epoch = entry.owner, entry.epoch
        is_taken = entry.state != RELEASED and not self._is_orphaned(client, entry)
        if is_taken:
            self._store.append(self._end_of_gateway_epoch(owner), now_ms)
        if entry.will == NO_WILL:
            self._end(client, entry, now_ms)
        else:
            self._keep([self._losing(client, epoch)._replace(expiry_s=0)], now_ms)
            self._ends.went(client, now)
            self._released(client)
            self._see_to(client)
        if is_taken:  # too slow to let go: it must hear of it still
            self._calls.tell(owner, SessionCall(client, epoch, True, True))
        return AfterQuorum(ClosedSession(), self._store.written)

    def _call_to_close(self, client: str, entry: Entry, now: float) -> Outcome:
        epoch = entry.epoch
        until = self._calls.call(entry.owner, SessionCall(client, epoch, True, True), now)

        def answer(last: bool) -> Result | None:
            return ClosedSession(epoch) if last or self._is_free(client, epoch) else None

        return Parked((client_waker(client),), until, answer)

    # ------------------------------------------------------------ time

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Owners that fell silent, and sessions whose time is over. May raise ``StorageFull``."""
        self._ends.judge(now, age_ms)
        silent = self._leases.passed(now)
        ends = [record for owner in silent for record in self._end_of_gateway_epoch(owner)]
        if ends:
            self._store.append_facts(ends, now_ms)
        for owner in self._leases.due(now):
            self._bury(owner, now)
            self._lapsed.add(owner)
        self._lapsed = {owner for owner in self._lapsed if self._sessions.of(owner)}
        self._sort_out(now_ms)
        ended = 0
        for client in self._ends.due(now):
            if ended == DUTIES_MAX:
                break
            entry = self._sessions.get(client)
            if entry is None or not self._ends.is_over(client, now) or self._has_living_owner(client, entry, now):
                continue
            if client not in self._duties:
                self._end(client, entry, now_ms)
            ended += 1

    def _bury(self, owner: str, now: float, until: int = sys.maxsize) -> None:
        """An owner is dead, or begins anew: its sessions have no owner any more. ``until``: the last epoch
        of its earlier process."""
        self._calls.forget(owner)
        for client in self._sessions.of(owner):
            entry = self._sessions.get(client)
            if entry is not None and entry.epoch <= until:
                self._ownerless[client] = entry.epoch
                self._ends.went(client, now)

    def _sort_out(self, now_ms: int) -> None:
        """Some of the dead owners' sessions: those with a will are offered to the living, the others released."""
        released = []
        for client in list(self._ownerless)[:DUTIES_MAX]:
            entry, epoch = self._sessions.get(client), self._ownerless[client]
            if entry is None or entry.epoch != epoch:
                del self._ownerless[client]
            elif entry.will != NO_WILL:
                del self._ownerless[client]
                self._duties[client] = epoch
            else:
                released.append(self._losing(client, epoch))
        if released:
            self._keep(released, now_ms)
        for save in released:
            self._released(save.client)

    def _keep(self, saves: Sequence[SessionSave], now_ms: int) -> None:
        """Stores the state of sessions, in as few records as will hold it. Raises ``TooLarge`` for a session that none
        holds."""
        records: list[Incoming] = []
        start, room = 0, self._store.fact_bytes_max - _HEAD_BYTES
        for save in saves:
            size = len(save.client.encode()) + len(save.will) + len(save.terms) + len(save.flow)
            if size > room:
                raise TooLarge(f"{size} bytes are kept of a session, more than a segment of this broker holds")
        for end in ends_of_parts(saves, room, len(saves)):
            records.append(fact_record(sessions.TOPIC, Sessions.saving(saves[start:end])))
            start = end
        self._store.append_facts(records, now_ms)

    def _released(self, client: str) -> None:
        """The session has no owner any more: it ends when its time has passed."""
        self._settle(client)
        self._ends.watch(client)


def _found(entry: Entry, is_new: bool, absence_s: float) -> OpenedSession:
    """The session as its next owner gets it."""
    return OpenedSession(
        epoch=0,
        generation=0,
        present=not is_new,
        state=entry.state,
        ended=entry.generation if is_new else 0,
        will=b"" if entry.will == NO_WILL else entry.will,
        terms=entry.terms,
        flow=entry.flow,
        expiry_s=entry.expiry_s,
        absence_s=absence_s,
    )


def _check_owner(owner: str) -> None:
    check_text("an owner's name", owner, OWNER_BYTES_MAX)


def _check_gateway_epoch(gateway_epoch: str) -> None:
    check_text("the name of a gateway epoch", gateway_epoch, GATEWAY_EPOCH_BYTES_MAX)
