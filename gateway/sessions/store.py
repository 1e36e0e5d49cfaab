"""The session store: requests to the broker that is the home of the cluster's sessions.

The home is the broker with the topic ``HOME_TOPIC``. Requests wait until it is known and has the gateway's new epoch; a
request that cannot be sent ends in the link's error. Saves of a round leave as one request, or as several if they are
many or large.

The last word about a session whose client has gone is repeated until the home has it, and its client is admitted here
only after that: otherwise the session would stay this gateway's, as connected, for ever. An opening or a claim whose
answer was lost is given back in the same way. ``lease.py`` has the lease, ``watch.py`` the requests of other gateways
and operators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from gateway.brokers import Broker, Brokers
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
    ListSessions,
    OpenedSession,
    OpenSession,
    SavedSessions,
    SaveSessions,
    SessionSave,
    SessionsPage,
    ends_of_parts,
)
from penstock.protocol.wire import HEADER_BYTES_MAX

_log: Final = logging.getLogger(__name__)

SAVES_PER_REQUEST: Final = 1000
SAVES_BYTES_MAX: Final = 1 << 20
"""Bytes of one request; a larger save is a request of its own."""
PART_BYTES_MAX: Final = HEADER_BYTES_MAX // 2 - 128 * 1024
"""Of terms, and of flow: they change apart, and the next owner of the session gets both, with its will, in one
header."""
NO_ROOM: Final = Busy("the limit sessions_bytes_max is reached")
"""The error of a save whose session would grow beyond the home's limit: nothing of it was saved, others were."""
LOST_OPENINGS_MAX: Final = 100_000
"""Number of clients whose openings are given back when their answers are lost; further ones wait for their clients."""

OnSaved = Callable[["bool | PenstockError"], None]
"""Told True when the save is durable, False when the session is another's by now, or the error: the link's, the home's
or ``TooLarge`` or ``NO_ROOM``, which are about this save alone."""
OnOpened = Callable[["OpenedSession | PenstockError"], None]


def ignore_loss() -> None:
    """Takes nothing back: what is called where nothing depends on whose a session was. There is one such function, by
    which ``SessionStore`` knows that it need not hold publications back until it is sure."""


class SessionStore:
    """One gateway's requests to the home of sessions.

    Attributes:
        broker: the broker where sessions are at home, ``None`` until the lease has been asked for there.
        found: where it was found last.
        trouble: why it is not found, empty where it is.
        unanswered: saves that the home has not answered.
        refused: openings and saves for which the home had no room.
    """

    def __init__(
        self,
        brokers: Brokers,
        owner: str,
        wake: Callable[[], None],
        note_over: Callable[[Sequence[str]], None],
    ) -> None:
        """``note_over`` takes epochs of gateways that have ended, before the session is given that was opened."""
        self._brokers = brokers
        self.owner = owner
        self._wake = wake
        self._note_over = note_over
        self._last_over = ""  # the last epoch that is known to be over
        self.broker: Broker | None = None
        self.found: Broker | None = None
        self._is_looking = False
        self.trouble = ""
        self._waiting: dict[str, tuple[OpenSession, OnOpened]] = {}  # client -> what the home is asked for later
        self._later: list[Callable[[], None]] = []
        self._latest: dict[str, OpenSession] = {}  # client -> its last opening, until it is answered
        self._saves: list[tuple[SessionSave, OnSaved]] = []
        # client -> last words about its session, in order, with the callback if it is another gateway's
        self._unheard: dict[str, dict[SessionSave, Callable[[], None]]] = {}
        self._is_repeating = False
        self._is_ready = False  # the home has heard of this gateway
        self.unanswered = 0
        self.refused = 0

    @property
    def name(self) -> str:
        """The broker where sessions are at home, once it is known."""
        return self.broker.name if self.broker is not None else ""

    @property
    def is_unsure(self) -> bool:
        """Whether something that is said again may prove to be of a session that was another's already."""
        return any([on_lost is not ignore_loss for words in self._unheard.values() for on_lost in words.values()])

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
        """Takes a session over from its owner. ``instead_of``: the other user whose session may end for it."""
        request = OpenSession(
            self.owner, client, clean, expiry_s, will, user=user, heard=self._last_over, instead_of=instead_of
        )
        self._latest[client] = request
        if self._is_ready:
            self._open(request, on_opened)
            return
        earlier = self._waiting.pop(client, None)
        self._waiting[client] = request, on_opened
        if earlier is not None:
            earlier[1](_superseded())
        self._look()

    def find_user(self, client: str, on_user: Callable[[str], None]) -> None:
        """The user of a client's session that was asked for; empty without one, or if it is unknown."""

        def answered(result: Result) -> None:
            found = result.sessions if isinstance(result, SessionsPage) else ()
            on_user(found[0].user if found else "")

        self._submit(ListSessions(client=client), answered)

    def ask_later(self, error: PenstockError, ask: Callable[[], None]) -> bool:
        """Has an opening that ended in this error asked again in a moment. False if that is of no use: no other broker
        takes the home's place."""
        if self.broker is None or not self.broker.has_copies or not isinstance(error, Unavailable):
            return False
        self._later.append(ask)
        return True

    def withdraw(self, client: str) -> bool:
        """Cancels an opening. Returns whether it was not sent yet, and never will be."""
        if self._waiting.pop(client, None) is None:
            return False
        del self._latest[client]
        return True

    def claim(self, client: str, on_opened: OnOpened) -> None:
        """Takes a dead gateway's session to do what is left to be done."""
        self._open(OpenSession(self.owner, client, False, 0, b"", claim=True, heard=self._last_over), on_opened)

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
            self._wake()
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
                self._note_over(result.over)
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

    def let_go(self, save: SessionSave, on_lost: Callable[[], None] = ignore_loss) -> None:
        """The last word about a session: said again until the home has heard it. Where it is too large for that, or
        the home has no room, it is said without the state, and the session continues from the last save. ``on_lost``:
        it was another gateway's already; after a lost answer that is unknown, because the home may have heard the word
        then."""
        if _is_too_large(save):
            save = _bare(save)
        if save.client in self._unheard:
            self._note_unheard(save, on_lost)
        else:
            self.save(save, partial(self._told, save, on_lost))

    def end(self, client: str, epoch: int, on_lost: Callable[[], None] = ignore_loss) -> None:
        """A session is over. ``on_lost``: it was already, or was another's."""
        self.flush()
        word = SessionSave(client, epoch, RELEASED, 0)
        self._submit(EndSession(client, epoch), partial(self._ended, word, on_lost))

    def finish(
        self, client: str, epoch: int, expiry_s: int, *, ends: bool, on_lost: Callable[[], None] = ignore_loss
    ) -> None:
        """A session is done here: it is over, or the next gateway that opens it has it, without its will."""
        if ends:
            self.end(client, epoch, on_lost)
        else:
            self.let_go(SessionSave(client, epoch, RELEASED, expiry_s, NO_WILL), on_lost)

    def _submit(self, request: Request, on_result: OnResult) -> None:
        assert self.broker is not None, "no session is open before its home is known"
        self.broker.submit(request, on_result)

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
            self._note_unheard(word, ignore_loss if _may_be_heard(outcome) else on_lost)
        elif isinstance(outcome, PenstockError) and word != _bare(word):  # refused for good
            self.let_go(_bare(word), on_lost)

    def _note_unheard(self, word: SessionSave, on_lost: Callable[[], None] = ignore_loss) -> None:
        self._unheard.setdefault(word.client, {}).setdefault(word, on_lost)

    def _heard(self, word: SessionSave, outcome: bool | PenstockError) -> None:
        """Handles the answer to a repeated word. One that was missed stands where it stood."""
        words = self._unheard.get(word.client)
        if words is None or next(iter(words)) != word:
            return
        if _is_missed(outcome):
            if _may_be_heard(outcome):
                words[word] = ignore_loss
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
        self._submit(SaveSessions(self.owner, tuple(some)), partial(self._repeated, some))

    def _repeated(self, some: list[SessionSave], result: Result) -> None:
        self._is_repeating = False
        for at, word in enumerate(some):
            self._heard(word, self._outcome(at, result))
        self._wake()

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
            request = SaveSessions(self.owner, tuple([save for save, _ in some]))
            self._submit(request, partial(self._saved, [on_saved for _, on_saved in some]))

    def _saved(self, told: list[OnSaved], result: Result) -> None:
        self.unanswered -= len(told)
        for at, on_saved in enumerate(told):
            on_saved(self._outcome(at, result))
        self._wake()

    def _outcome(self, at: int, result: Result) -> bool | PenstockError:
        """Handles the result of the save at one index of a request."""
        if isinstance(result, SavedSessions):
            if at not in result.full:
                return at not in result.fenced
            self.refused += 1
            return NO_ROOM
        assert isinstance(result, PenstockError)
        return result

    def tick(self) -> None:
        """Looks for the home, and says again what was not heard."""
        self._look()
        if self.broker is not None:
            self._repeat()
        later, self._later = self._later, []
        for ask in later:
            ask()
        if later:
            self._wake()

    def _look(self) -> None:
        is_known = self.broker is not None and self.broker.address  # it is empty where another broker has taken it
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
        self.found = found[0]
        self._wake()

    def use(self, broker: Broker) -> None:
        """Requests go there from now on, behind the lease."""
        self.broker, self.found = broker, None

    def begin(self) -> None:
        """The home knows this gateway: waiting requests are sent."""
        self._is_ready = True
        waiting, self._waiting = self._waiting, {}
        for request, on_opened in waiting.values():
            self._open(request, on_opened)


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
