"""The way to the broker where the cluster's sessions are at home, and the duties that come with having some.

All sessions live at the broker that holds the topic ``HOME_TOPIC``. What is asked before that broker is known, and has
heard that this gateway begins anew, waits: else it would take what it has just given for what an earlier life has left.
What it cannot be asked ends in the link's error. Saves of a round leave as one request, or as several where they are
many or large; one whose session the wire could not bring back to anybody is refused here. This gateway's lease on its
sessions is renewed at a third of its time; a watch that is always open brings the calls of other gateways that want a
session; each renewal tells of sessions that a dead gateway left with something to be done.

The last word about a session whose client has gone is said again until the home has heard it, and its client is let in
here only after that: a session that nobody has released would stay this gateway's, connected, for as long as the
gateway lives. An opening whose answer was lost is given back in the same way, and so is a claim: it is offered again.

With each renewal goes the name of this gateway's *life*, which the home ends when it gives away what this gateway has
not let go of; ``tenure.py`` sees to what follows. Each opening brings the lives of gateways that are over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from gateway.brokers import Broker, Brokers
from gateway.sessions.session import Session
from gateway.sessions.session_state import encode_terms
from penstock.errors import Busy, Fenced, PenstockError, TooLarge, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.sessions import (
    ANY_EPOCH,
    HOME_TOPIC,
    LOST,
    NO_WILL,
    RELEASED,
    EndSession,
    KeepSessions,
    ListSessions,
    OpenedSession,
    OpenSession,
    SavedSessions,
    SaveSessions,
    SessionCall,
    SessionCalls,
    SessionDuties,
    SessionQuestion,
    SessionSave,
    SessionsPage,
    SessionTerms,
    TellSubscriptions,
    WatchSessions,
    ends_of_parts,
)
from penstock.protocol.wire import HEADER_BYTES_MAX

_log: Final = logging.getLogger(__name__)

WATCH_S: Final = 30.0
SAVES_PER_REQUEST: Final = 1000
SAVES_BYTES_MAX: Final = 1 << 20
"""So much goes into one request, or one save that has more."""
PART_BYTES_MAX: Final = HEADER_BYTES_MAX // 2 - 128 * 1024
"""Of terms, and of flow: they change apart, and whoever opens the session gets both, with its will, in one header."""
NO_ROOM: Final = Busy("the limit sessions_bytes_max is reached")
"""What a save is told, it and no other, if its session would grow beyond what the home keeps: nothing of it was."""
LOST_OPENINGS_MAX: Final = 100_000
"""So many clients' openings are given back when their answers are lost; what is beyond waits for its client."""

OnSaved = Callable[["bool | PenstockError"], None]
"""Told True when the save is durable, False when the session is another's by now, or the error: the link's, the home's
or ``TooLarge`` or ``NO_ROOM``, which are about this save alone."""
OnOpened = Callable[["OpenedSession | PenstockError"], None]


def _nothing() -> None:
    """Nobody wants to know yet."""


class SessionHome:
    """One gateway's dealings with the home of sessions. ``on_call`` and ``on_duty`` are told of calls and duties,
    ``on_lapse`` that the home may have given this gateway's sessions away, ``on_heard`` that something that was said
    again was heard, ``on_over`` of lives of gateways that have ended, before the session that was opened. ``trouble``:
    why it is not known where the home is, empty where it is."""

    def __init__(
        self, brokers: Brokers, owner: str, lease_s: float, wake: Callable[[], None], new_life: Callable[[], str]
    ) -> None:
        """``new_life`` makes names that nothing else ever has."""
        self._brokers = brokers
        self._owner = owner
        self._lease_s = lease_s
        self._wake = wake
        self._new_life = new_life
        self.life = new_life()
        self._on_begun: Callable[[], None] | None = None  # the home has not heard of this life yet
        self._last_over = ""  # the last life that is known to be over
        self._broker: Broker | None = None
        self._is_looking = False
        self.trouble = ""
        self._waiting: dict[str, tuple[OpenSession, OnOpened]] = {}  # client -> what is asked once the home is there
        self._latest: dict[str, OpenSession] = {}  # client -> its last opening, until it is answered
        self._saves: list[tuple[SessionSave, OnSaved]] = []
        # client -> last words about its session, in their order, with who is told if it proves to be another's
        self._unheard: dict[str, dict[SessionSave, Callable[[], None]]] = {}
        self._is_repeating = False
        self._kept_at = float("-inf")
        self._now = self._renewed_at = float("inf")  # there was no tick, and so no lease to lapse
        self._lapsed_at = float("-inf")
        self._is_fresh = True
        self._is_keeping = False
        self._is_watching = False
        self.unanswered = 0
        self.refused = 0  # openings and saves for which the home had no room
        self.on_call: Callable[[SessionCall], None] = _nobody
        self.on_asked: Callable[[SessionQuestion], SessionTerms | None] = _nobody_knows
        self.on_duty: Callable[[str], None] = _nobody
        self.on_lapse: Callable[[], None] = _nothing
        self.on_heard: Callable[[], None] = _nothing
        self.on_over: Callable[[Sequence[str]], None] = _nobody

    @property
    def name(self) -> str:
        """The broker where sessions are at home, once it is known."""
        return self._broker.name if self._broker is not None else ""

    @property
    def is_unsure(self) -> bool:
        """Whether something that is said again may prove to be of a session that was another's already."""
        return any([on_lost is not _nothing for words in self._unheard.values() for on_lost in words.values()])

    # ------------------------------------------------------------ requests

    def open(
        self,
        client: str,
        user: str,
        clean: bool,
        expiry_s: int,
        will: bytes,
        on_opened: OnOpened,
        instead_of: str = "",
    ) -> None:
        """Takes a session over from whoever has it. ``instead_of``: the other user whose session may end for it."""
        request = OpenSession(
            self._owner, client, clean, expiry_s, will, user=user, heard=self._last_over, instead_of=instead_of
        )
        self._latest[client] = request
        if not self._is_fresh:
            self._open(request, on_opened)
            return
        earlier = self._waiting.pop(client, None)
        self._waiting[client] = request, on_opened
        if earlier is not None:
            earlier[1](_superseded())
        self._look()

    def find_user(self, client: str, on_user: Callable[[str], None]) -> None:
        """Whose the session of a client is that has been asked for; empty: nobody's, or that is not known."""

        def answered(result: Result) -> None:
            found = result.sessions if isinstance(result, SessionsPage) else ()
            on_user(found[0].user if found else "")

        self._submit(ListSessions(client=client), answered)

    def withdraw(self, client: str) -> bool:
        """Nobody waits for this session any more: whether it had not been asked for yet, and never will be."""
        if self._waiting.pop(client, None) is None:
            return False
        del self._latest[client]
        return True

    def claim(self, client: str, on_opened: OnOpened) -> None:
        """Takes a dead gateway's session to do what is left to be done."""
        self._open(OpenSession(self._owner, client, False, 0, b"", claim=True, heard=self._last_over), on_opened)

    def _open(self, request: OpenSession, on_opened: OnOpened) -> None:
        """Asks when the home has heard all that was said of the client's session before: that is part of what is
        opened."""
        self.flush()
        words = self._unheard.get(request.client)
        if words is None:
            self._ask(request, on_opened)
            return
        word = next(iter(words))

        def heard(outcome: bool | PenstockError) -> None:
            self._heard(word, outcome)
            self.on_heard()
            if isinstance(outcome, PenstockError) and outcome is not NO_ROOM:
                self._forget(request)
                on_opened(outcome)
            else:
                self._open(request, on_opened)

        self.save(word, heard)
        self.flush()

    def _ask(self, request: OpenSession, on_opened: OnOpened, *, force: bool = False) -> None:
        """Asks, unless a later connection of the client has: it would lose the session to this one."""
        if self._is_superseded(request):
            on_opened(_superseded())
        else:
            asked = replace(request, force=True) if force else request
            self._submit(asked, partial(self._answered, request, on_opened))

    def _answered(self, request: OpenSession, on_opened: OnOpened, result: Result) -> None:
        if isinstance(result, OpenedSession) and not result.epoch:
            self._ask(request, on_opened, force=True)
            self._wake()
            return
        self._forget(request)
        assert isinstance(result, OpenedSession | PenstockError)
        self.refused += isinstance(result, Busy)
        if isinstance(result, OpenedSession):
            self._unheard.pop(request.client, None)  # all that was about what there was before
            if result.over:
                self._last_over = result.over[-1]
                self.on_over(result.over)
        elif result.unknown and len(self._unheard) < LOST_OPENINGS_MAX:
            state, will = (LOST, b"") if request.claim else (RELEASED, NO_WILL)
            self._note_unheard(SessionSave(request.client, ANY_EPOCH, state, request.expiry_s, will))
        on_opened(result)

    def _is_superseded(self, request: OpenSession) -> bool:
        return not request.claim and self._latest.get(request.client) is not request

    def _forget(self, request: OpenSession) -> None:
        if self._latest.get(request.client) is request:
            del self._latest[request.client]

    def save(self, save: SessionSave, on_saved: OnSaved) -> None:
        """Keeps a session's state; leaves with the round."""
        self._saves.append((save, on_saved))
        self.unanswered += 1

    def let_go(self, save: SessionSave, on_lost: Callable[[], None] = _nothing) -> None:
        """The last word about a session: said again until the home has heard it. Where it is too large for that, or
        the home has no room, it is said without what is to be kept, and the session goes on from what was saved
        before. ``on_lost``: it was another's already; nobody can say so any more once an answer was lost on its way,
        for the word may have been heard then."""
        if _is_too_large(save):
            save = _bare(save)
        if save.client in self._unheard:
            self._note_unheard(save, on_lost)
        else:
            self.save(save, partial(self._told, save, on_lost))

    def end(self, client: str, epoch: int, on_lost: Callable[[], None] = _nothing) -> None:
        """A session is over. ``on_lost``: it was already, or was another's."""
        self.flush()
        word = SessionSave(client, epoch, RELEASED, 0)
        self._submit(EndSession(client, epoch), partial(self._ended, word, on_lost))

    def finish(
        self, client: str, epoch: int, expiry_s: int, *, ends: bool, on_lost: Callable[[], None] = _nothing
    ) -> None:
        """Nothing is left to be done here for a session: it is over, or whoever opens it next has it, without its
        will."""
        if ends:
            self.end(client, epoch, on_lost)
        else:
            self.let_go(SessionSave(client, epoch, RELEASED, expiry_s, NO_WILL), on_lost)

    def _submit(self, request: Request, on_result: OnResult) -> None:
        assert self._broker is not None, "nobody has a session before its home is known"
        self._broker.submit(request, on_result)

    # ------------------------------------------------------------ what the home did not hear

    def _ended(self, word: SessionSave, on_lost: Callable[[], None], result: Result) -> None:
        if isinstance(result, Fenced):
            on_lost()
        elif isinstance(result, PenstockError):
            self._told(word, on_lost, result)

    def _told(self, word: SessionSave, on_lost: Callable[[], None], outcome: bool | PenstockError) -> None:
        if outcome is False:
            on_lost()
        elif _is_missed(outcome):
            self._note_unheard(word, _nothing if _may_be_heard(outcome) else on_lost)
        elif isinstance(outcome, PenstockError) and word != _bare(word):  # refused for good
            self.let_go(_bare(word), on_lost)

    def _note_unheard(self, word: SessionSave, on_lost: Callable[[], None] = _nothing) -> None:
        self._unheard.setdefault(word.client, {}).setdefault(word, on_lost)

    def _heard(self, word: SessionSave, outcome: bool | PenstockError) -> None:
        """What became of a word that was said again. One that was missed stands where it stood."""
        words = self._unheard.get(word.client)
        if words is None or next(iter(words)) != word:
            return
        if _is_missed(outcome):
            if _may_be_heard(outcome):
                words[word] = _nothing
            return
        on_lost = words.pop(word)
        if isinstance(outcome, PenstockError) and word != _bare(word):  # refused for good
            self._unheard[word.client] = {_bare(word): on_lost, **words}
            return
        if not words:
            del self._unheard[word.client]
        if outcome is False:
            on_lost()

    def _repeat(self) -> None:
        """Says again what was not heard: the first word about each of some sessions, one request at a time."""
        if not self._unheard or self._is_repeating:
            return
        self._is_repeating = True
        some = [next(iter(words)) for words in islice(self._unheard.values(), SAVES_PER_REQUEST)]
        del some[ends_of_parts(some, SAVES_BYTES_MAX, SAVES_PER_REQUEST)[0] :]
        self._submit(SaveSessions(self._owner, tuple(some)), partial(self._repeated, some))

    def _repeated(self, some: list[SessionSave], result: Result) -> None:
        self._is_repeating = False
        for at, word in enumerate(some):
            self._heard(word, self._outcome(at, result))
        self.on_heard()

    # ------------------------------------------------------------ rounds and time

    def flush(self) -> None:
        """Sends the saves of the round, and refuses those that are too large."""
        while self._saves:  # a refusal may be followed by a last word
            saves, self._saves = self._saves, []
            self._send([one for one in saves if not _is_too_large(one[0])])
            refused = [one for one in saves if _is_too_large(one[0])]
            self.unanswered -= len(refused)
            for save, on_saved in refused:
                on_saved(TooLarge(f"the session of {save.client} is larger than can be kept"))
                self._wake()

    def _send(self, saves: list[tuple[SessionSave, OnSaved]]) -> None:
        start = 0
        for end in ends_of_parts([save for save, _ in saves], SAVES_BYTES_MAX, SAVES_PER_REQUEST):
            some = saves[start:end]
            start = end
            request = SaveSessions(self._owner, tuple([save for save, _ in some]))
            self._submit(request, partial(self._saved, [on_saved for _, on_saved in some]))

    def _saved(self, told: list[OnSaved], result: Result) -> None:
        self.unanswered -= len(told)
        for at, on_saved in enumerate(told):
            on_saved(self._outcome(at, result))
        self._wake()

    def _outcome(self, at: int, result: Result) -> bool | PenstockError:
        """What became of the save at one place of a request."""
        if isinstance(result, SavedSessions):
            if at not in result.full:
                return at not in result.fenced
            self.refused += 1
            return NO_ROOM
        assert isinstance(result, PenstockError)
        return result

    def tick(self, now: float) -> None:
        """Looks for the home, renews the lease, keeps the watch open, says again what was not heard."""
        self._now = now
        self._look()
        if self._broker is None:
            return
        if self._is_unkept(now):
            self._kept_at = now
            self._keep(self._broker)
        if not self._is_watching:
            self._is_watching = True
            self._broker.submit(WatchSessions(self._owner, WATCH_S), self._called)
        self._repeat()

    def _is_unkept(self, now: float) -> bool:
        """Whether it is time to renew the lease. Not only where the last time was answered: the home may be slow to
        answer, and must know who lives."""
        is_new = self._is_fresh or self._on_begun is not None
        return (is_new and not self._is_keeping) or (not self._is_fresh and now - self._kept_at >= self._lease_s / 3)

    def _look(self) -> None:
        is_known = self._broker is not None and self._broker.address  # it is empty where another broker has taken it
        if not is_known and not self._is_looking:
            self._is_looking = True
            self._brokers.find(HOME_TOPIC, self._found)

    def _found(self, found: list[Broker] | PenstockError) -> None:
        self._is_looking = False
        self.trouble = str(found) if isinstance(found, PenstockError) else ""
        if isinstance(found, PenstockError):
            return
        if len(found) > 1:
            _log.error("sessions are at home at %s: only the first is used", ", ".join([one.name for one in found]))
        self._broker = found[0]
        self._keep(found[0])
        self._wake()

    def _keep(self, broker: Broker) -> None:
        self._is_keeping = True
        request = KeepSessions(self._owner, self._lease_s, self._is_fresh, self.life)
        broker.submit(request, partial(self._kept, self._now, self.life))

    def begin_life(self, on_begun: Callable[[], None]) -> None:
        """Another life begins; ``on_begun`` is told when the home knows it, and will end this one for what it takes
        away from then on."""
        self.life = self._new_life()
        self._on_begun = on_begun
        if self._broker is not None:
            self._keep(self._broker)
            self._wake()

    def _kept(self, asked_at: float, life: str, result: Result) -> None:
        self._is_keeping = False
        if isinstance(result, SessionDuties):
            self._is_fresh = False
            is_lapsed = self._now - self._renewed_at >= self._lease_s and asked_at > self._lapsed_at
            if is_lapsed:
                self._lapsed_at = self._now  # what was asked until now, the home has answered before it hears of this
            self._renewed_at = asked_at
            self._judge_life(life, result.is_over, is_lapsed)
            waiting, self._waiting = self._waiting, {}
            for request, on_opened in waiting.values():
                self._open(request, on_opened)
            if self._on_begun is None:  # else some may be our own sessions yet, and are asked about first
                for client in result.clients:
                    self.on_duty(client)
            self._wake()

    def _judge_life(self, life: str, is_over: bool, is_lapsed: bool) -> None:
        """The home has heard of a life. One that is over as it begins is refused by whoever is sent something in it."""
        begun = self._on_begun
        if begun is None:
            if is_lapsed or (is_over and life == self.life):
                self.on_lapse()
        elif life == self.life:
            self._on_begun = None
            begun()

    def leave(self, on_left: Callable[[], None]) -> None:
        """This gateway stops, and all that it had to say is said. The home is told as of a process that begins: what is
        left, wills that wait for their time, is for other gateways, which need not wait until this one's lease is over;
        nor, where the home stops too and starts anew, for as long as it waits for gateways that it had. Where its life
        is over, another process may have its name by now, and its sessions: then nothing is said."""
        broker = self._broker

        def heard(result: Result) -> None:
            if broker is None or not isinstance(result, SessionDuties) or result.is_over:
                on_left()
                return
            anew = KeepSessions(self._owner, self._lease_s, True, self._new_life())
            broker.submit(anew, lambda _: on_left())

        if broker is None:
            on_left()
        else:
            broker.submit(KeepSessions(self._owner, self._lease_s, False, self.life), heard)

    def _tell(self, asked: Sequence[SessionQuestion]) -> None:
        """Answers what an operator asks: counts together, what may be large one by one."""
        told = [found for question in asked if (found := self.on_asked(question)) is not None]
        large = [one for one in told if one.terms]
        for part in ([one for one in told if not one.terms], *[[one] for one in large]):
            if part and self._broker is not None:
                self._broker.submit(TellSubscriptions(self._owner, tuple(part)), _is_told)

    def _called(self, result: Result) -> None:
        self._is_watching = False
        if isinstance(result, SessionCalls):
            for call in result.calls:
                self.on_call(call)
            self._tell(result.asked)
            if (result.calls or result.asked) and self._broker is not None:
                self._is_watching = True
                self._broker.submit(WatchSessions(self._owner, WATCH_S), self._called)
            self._wake()


def _is_told(result: Result) -> None:
    """Nothing follows from it: whoever asked asks again."""


def _nobody_knows(question: SessionQuestion) -> SessionTerms | None:
    """There are no clients yet."""
    return None


def terms_of(session: Session, question: SessionQuestion) -> SessionTerms:
    """What a client here is subscribed to."""
    terms = encode_terms(session.subscriptions.values()) if question.wants_terms else b""
    shown = terms if len(terms) <= PART_BYTES_MAX else b""
    return SessionTerms(question.client, len(session.subscriptions), question.wants_terms, shown)


def _superseded() -> Unavailable:
    return Unavailable("the same client is there on another connection")


def _is_missed(outcome: bool | PenstockError) -> bool:
    return isinstance(outcome, PenstockError) and outcome.retryable and outcome is not NO_ROOM


def _may_be_heard(outcome: bool | PenstockError) -> bool:
    """Whether a word that was missed may have been heard all the same."""
    return isinstance(outcome, PenstockError) and outcome.unknown


def _is_too_large(save: SessionSave) -> bool:
    return len(save.terms) > PART_BYTES_MAX or len(save.flow) > PART_BYTES_MAX


def _bare(save: SessionSave) -> SessionSave:
    """The same without what it keeps; that there is no will stays said. It makes no session larger."""
    return save._replace(will=save.will if save.will == NO_WILL else b"", terms=b"", flow=b"")


def _nobody(_: object) -> None:
    """Nobody wants to know yet."""
