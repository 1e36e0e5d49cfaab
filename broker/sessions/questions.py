"""Questions that only gateways can answer: subscriptions of connected clients whose sessions are not saved.

An operator's command asks the home (``AskSubscriptions``). The home passes the question on with the answer to a
gateway's ``WatchSessions`` and gets ``TellSubscriptions``. Nothing of it is stored. At most ``ASKS_MAX`` questions wait
at a time, and each ends at its deadline with the answers until then.
"""

from __future__ import annotations

from typing import Final

from broker.kernel.handler import handles
from broker.kernel.outcomes import Now, Outcome, Parked
from broker.kernel.theme import Wakers
from broker.sessions.calls import owner_waker
from broker.sessions.fold import Sessions
from broker.state import BrokerState
from penstock.errors import Busy, InvalidRequest, TopicNotFound
from penstock.protocol.requests.request import Done, Result
from penstock.protocol.requests.sessions import (
    CONNECTED,
    HOME_TOPIC,
    AskSubscriptions,
    SessionQuestion,
    SessionTerms,
    Subscriptions,
    TellSubscriptions,
)

ASKS_MAX: Final = 100
CLIENTS_MAX: Final = 1000
WAIT_S_MAX: Final = 30.0


class _Ask:
    """A question that waits. ``left``: clients without an answer yet, with their gateways."""

    def __init__(self, left: dict[str, str], request: AskSubscriptions, waker: str) -> None:
        self.left = left
        self.wants_terms = request.wants_terms
        self.disconnects = request.disconnects
        self.watch_after = max(-1, request.watch_after)
        self.waker = waker
        self.told: list[SessionTerms] = []

    def about(self, client: str) -> SessionQuestion:
        """The questions to a client's gateway."""
        return SessionQuestion(client, self.wants_terms, self.disconnects, self.watch_after)


class SessionQuestions:
    """The questions that wait at one broker."""

    def __init__(self, state: BrokerState, wakers: Wakers) -> None:
        self._sessions: Sessions = state.sessions
        self._topics = state.topics
        self._asks: list[_Ask] = []
        self._asked: dict[str, dict[SessionQuestion, None]] = {}  # gateway -> what it is to be asked
        self._number = 0
        self._wakers = wakers

    @handles(AskSubscriptions)
    def ask(self, request: AskSubscriptions, now: float, now_ms: int) -> Outcome:
        """Has the gateways of these clients asked, and waits for their answers."""
        if self._topics.get(HOME_TOPIC) is None:
            raise TopicNotFound(f"{HOME_TOPIC}: sessions are not at home at this broker")
        if len(request.clients) > CLIENTS_MAX or not 0 <= request.wait_s <= WAIT_S_MAX:
            raise InvalidRequest(f"at most {CLIENTS_MAX} clients are asked for, within 0 to {WAIT_S_MAX:g} s")
        if request.watch_after >= 0 and len(request.clients) != 1:
            raise InvalidRequest("the packets of one client are followed at a time")
        if len(self._asks) >= ASKS_MAX:
            raise Busy(f"{ASKS_MAX} questions about sessions wait already")
        self._number += 1
        ask = _Ask(self._gateways_of(request.clients), request, f"question {self._number}")
        for client, gateway in ask.left.items():
            self._asked.setdefault(gateway, {})[ask.about(client)] = None
        for gateway in ask.left.values():
            self._wakers[owner_waker(gateway)] = None
        self._asks.append(ask)

        def answer(last: bool) -> Result | None:
            if ask.left and not last:
                return None
            self._end(ask)
            return Subscriptions(tuple(ask.told))

        found = answer(not request.wait_s)
        return Now(found) if found is not None else Parked((ask.waker,), now + request.wait_s, answer)

    def _gateways_of(self, clients: tuple[str, ...]) -> dict[str, str]:
        """The gateway of each of these clients that is connected."""
        found: dict[str, str] = {}
        for client in clients:
            entry = self._sessions.get(client)
            if entry is not None and entry.owner and entry.state == CONNECTED:
                found[client] = entry.owner
        return found

    def _end(self, ask: _Ask) -> None:
        if ask in self._asks:
            self._asks.remove(ask)
        for client, gateway in ask.left.items():
            waiting = self._asked.get(gateway)
            if waiting is not None:
                waiting.pop(ask.about(client), None)
                if not waiting:
                    del self._asked[gateway]

    def take(self, gateway: str) -> tuple[SessionQuestion, ...]:
        """The questions to send to a gateway now."""
        return tuple(self._asked.pop(gateway, ()))

    @handles(TellSubscriptions)
    def tell(self, request: TellSubscriptions, now: float, now_ms: int) -> Outcome:
        """Takes in what a gateway says of its clients."""
        for ask in self._asks:
            for one in request.told:
                is_its = one.watch_after == ask.watch_after and one.with_terms >= ask.wants_terms
                if is_its and ask.left.get(one.client) == request.owner:
                    del ask.left[one.client]
                    ask.told.append(one)
            if not ask.left:
                self._wakers[ask.waker] = None
        return Now(Done())
