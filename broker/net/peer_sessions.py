"""Connections from the other nodes of a group. Only a node that has proved the key of the cluster is served.

Answers come in no fixed order: a node's core says ``Vote`` or ``Taken`` when its disk is that far. The oldest request
of that kind gets the answer, because each answer stands for itself. Pure: it never waits.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Protocol

from penstock.access.policy import SERVICE, UNPROVEN, Identity
from penstock.errors import NotAuthorized, PenstockError, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.requests.replicas import AskVote, ReplicaHello, ReplicaWelcome, TakeEntries, Taken, Vote
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.wire import FRAME_BYTES_MAX, FrameReader
from penstock.service.cluster_secret import is_replica_proof, replica_proof
from penstock.service.frame_connection import Peer
from penstock.service.guard import LOGIN_S, STRANGER_BYTES_MAX, Limit
from penstock.world import new_secret

WAITING_MAX: Final = 256
"""Maximum number of requests of a kind that wait for an answer. The oldest beyond it are given up: an election has
overtaken them."""
_ANSWERS: Final[dict[type[Request], type[Reply]]] = {AskVote: Vote, TakeEntries: Taken}


class Host(Protocol):
    """The node that is called."""

    def welcome(self, hello: ReplicaHello) -> ReplicaWelcome:
        """The introduction of this node to one with the key. Raises ``PenstockError`` for one that does not belong
        here."""
        ...

    def came(self, session: PeerSession) -> None:
        """A node has proved who it is."""
        ...

    def asked(self, session: PeerSession, request: Request, on_result: OnResult) -> None:
        """A request of that node, and the callback for the answer; not with ``Vote`` and ``Taken``,
        which go to ``PeerSession.answer``."""
        ...

    def flush(self) -> None:
        """Ends the batch of one read."""
        ...

    def left(self, session: PeerSession) -> None:
        """The connection has ended."""
        ...


class PeerSession:
    """One connection from another node.

    Attributes:
        hello: its introduction; None until it has proved that it has the key.
    """

    def __init__(self, host: Host, secret: bytes) -> None:
        self._host = host
        self._secret = secret
        self._nonce = new_secret()
        self._frames: FrameReader | None = None
        self._limit: Limit | None = None
        self._waiting: dict[type[Reply], deque[OnResult]] = {Vote: deque(), Taken: deque()}
        self.hello: ReplicaHello | None = None
        self.identity = UNPROVEN

    def begin(self, frames: FrameReader, limit: Limit) -> None:
        """Begins the session: before the proof its frames are short and its time is bounded."""
        self._frames, self._limit = frames, limit
        frames.bound(STRANGER_BYTES_MAX)
        limit(LOGIN_S)

    def submit(self, request: Request, on_result: OnResult) -> None:
        """Takes one request in."""
        try:
            if isinstance(request, ReplicaHello):
                on_result(self._greet(request))
            elif self.hello is None:
                raise NotAuthorized("this port is for nodes of the group alone", hint="clients come to another one")
            else:
                self._keep(request, on_result)
                self._host.asked(self, request, on_result)
        except PenstockError as error:
            self._forget(request, on_result)
            on_result(error.as_result())

    def _greet(self, hello: ReplicaHello) -> ReplicaWelcome:
        welcome = self._host.welcome(hello)
        if not hello.proof:
            return ReplicaWelcome("", welcome.node, welcome.uuid, "", "", (), self._nonce)
        nonces = hello.nonce, self._nonce
        if not is_replica_proof(hello.proof, self._secret, True, nonces, hello.node, hello.uuid):
            raise NotAuthorized("this node has another key of the cluster", hint="give all nodes the same key")
        self.hello, self.identity = hello, Identity(hello.node, SERVICE)
        if self._frames is not None and self._limit is not None:
            self._frames.bound(FRAME_BYTES_MAX)
            self._limit(math.inf)
        self._host.came(self)
        proof = replica_proof(self._secret, False, nonces, welcome.node, welcome.uuid)
        return ReplicaWelcome(*_told(welcome), self._nonce, proof)

    def _keep(self, request: Request, on_result: OnResult) -> None:
        kind = _ANSWERS.get(type(request))
        if kind is not None:
            waiting = self._waiting[kind]
            waiting.append(on_result)
            if len(waiting) > WAITING_MAX:
                waiting.popleft()(Unavailable("an election has overtaken this"))

    def _forget(self, request: Request, on_result: OnResult) -> None:
        """A request that is refused waits no longer: the next answer is for another one."""
        kind = _ANSWERS.get(type(request))
        waiting = self._waiting[kind] if kind is not None else None
        if waiting and waiting[-1] is on_result:
            waiting.pop()

    def answer(self, reply: Vote | Taken) -> None:
        """The oldest request of its kind is answered."""
        waiting = self._waiting[type(reply)]
        if waiting:
            waiting.popleft()(reply)

    def flush(self) -> None:
        """Ends the batch: all requests of one read were submitted."""
        self._host.flush()

    def hold(self) -> None:
        """Much waits to be sent: it asks for less then by itself."""

    def release(self) -> None:
        """Notes that there is room again."""

    def close(self) -> None:
        """The connection is gone."""
        self._waiting = {Vote: deque(), Taken: deque()}
        if self.hello is not None:
            self._host.left(self)


def _told(welcome: ReplicaWelcome) -> tuple[str, str, str, str, str, tuple[str, ...]]:
    one = welcome
    return one.cluster, one.node, one.uuid, one.leader, one.clients, one.namesrv


class PeerDoor:
    """The entry of other nodes."""

    def __init__(self, host: Host, secret: bytes) -> None:
        self._host = host
        self._secret = secret

    def open_session(self, peer: Peer) -> PeerSession:
        """A session for one connection."""
        return PeerSession(self._host, self._secret)

    def watch(self, session: PeerSession, peer: Peer, frames: FrameReader, limit: Limit) -> PeerSession:
        """The same session, with bounds."""
        session.begin(frames, limit)
        return session
