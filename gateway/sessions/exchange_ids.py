"""The inbound QoS 2 exchanges of lasting sessions, as the brokers know them.

A broker stores the message of an exchange once and remembers its packet id until it is released, so the ids survive
this gateway. ``fetch`` asks all brokers which ids of a session are open; ``release`` frees ids at all of them, one
request per session and broker and round, and the PUBCOMPs leave when that is durable everywhere: an id that a client
believes free may never hide a new message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.brokers import Brokers
from gateway.mqtt.answers import PUBCOMP, answer
from gateway.mqtt.reason_codes import ReasonCode
from gateway.net.rounds import Stage
from gateway.sessions.session import Session
from penstock.errors import PenstockError
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.sessions import Exchanges, FetchExchanges, ReleaseExchanges

OnFetched = Callable[["list[int] | PenstockError"], None]


class ExchangeIds(Stage):
    """Fetches and releases for all sessions of one gateway."""

    def __init__(self, brokers: Brokers, wake: Callable[[], None]) -> None:
        self._brokers = brokers
        self._wake = wake
        self._to_release: dict[Session, list[int]] = {}

    def fetch(self, client: str, generation: int, epoch: int, on_fetched: OnFetched) -> None:
        """The open ids of a session at all brokers; earlier epochs of it are fenced off there."""
        brokers = self._brokers.known
        if not brokers:
            on_fetched([])
        left, ids, errors = len(brokers), list[int](), list[PenstockError]()

        def answered(result: Result) -> None:
            nonlocal left
            left -= 1
            if isinstance(result, Exchanges):
                ids.extend(result.ids)
            elif isinstance(result, PenstockError):
                errors.append(result)
            if not left:
                on_fetched(errors[0] if errors else ids)

        for broker in brokers:
            broker.submit(FetchExchanges(client, generation, epoch), answered)

    def release(self, session: Session, packet_id: int) -> None:
        """A PUBREL came: its PUBCOMP leaves when the id is free everywhere."""
        if not self._to_release:
            self._wake()
        self._to_release.setdefault(session, []).append(packet_id)

    def forget(self, client: str, generation: int) -> None:
        """The session is over: all its ids are free."""
        for broker in self._brokers.known:
            broker.submit(ReleaseExchanges(client, generation, ()), _ignore)

    def flush(self) -> None:
        """Sends the releases of the round."""
        if not self._to_release:
            return
        to_release, self._to_release = self._to_release, {}
        for session, ids in to_release.items():
            assert session.lasting is not None
            brokers, generation = self._brokers.known, session.lasting.generation
            answered = partial(self._released, session, ids, [len(brokers)])
            for broker in brokers:
                request = ReleaseExchanges(session.client_id, generation, tuple(ids), epoch=session.epoch)
                broker.submit(request, answered)

    @staticmethod
    def _released(session: Session, ids: list[int], left: list[int], result: Result) -> None:
        left[0] -= 1
        device = session.device
        if device is None:
            return
        if isinstance(result, PenstockError):
            device.fail(ReasonCode.SERVER_BUSY)  # the client asks again on its next connection
        elif not left[0]:
            for packet_id in ids:
                session.forget_incoming(packet_id)
            device.send(b"".join([answer(PUBCOMP, packet_id) for packet_id in ids]))


def _ignore(result: Result) -> None:
    """Ids of a session that is over mean nothing any more; a later one replaces them."""
