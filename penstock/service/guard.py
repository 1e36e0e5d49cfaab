"""Checks logins and requests between a native connection and its server.

A server of frames wraps the session of each connection (``frame_server.py``). At a port that asks for no login,
requests pass as they are. Otherwise each must meet its row of ``penstock/access/needs.py``; a connection's permissions
are cached until users or rules change, so that a check costs microseconds. A batch with forbidden topics is split: its
other messages are stored, and the reply lists those that were refused.

Until a connection has logged in, its frames are short and its time is bounded; failures per address and minute are
limited. A failed login ends the connection, and the reply gives no cause. Pure: it never waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.access.acl import PRODUCE
from penstock.access.authority import EAVESDROPPED, GONE, NO_MECHANISM, Authority, Exchange, Known
from penstock.access.needs import OPEN, Need, needs_of, of_topic
from penstock.access.policy import ANONYMOUS, AT_OPEN_PORT, LOCAL, SCRAM, SERVICE, UNPROVEN, Identity
from penstock.access.scram_exchange import Denied
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError
from penstock.protocol.link import OnResult
from penstock.protocol.requests.messages import Appended, AppendRuns, PlacedRun, Refused
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Login, LoginStep
from penstock.protocol.runs import checksum_of, topics_of_runs
from penstock.protocol.wire import FRAME_BYTES_MAX, FrameReader
from penstock.service.audit import Audit
from penstock.service.buckets import Buckets, host_of
from penstock.service.frame_connection import Peer, Session
from penstock.service.permissions import Permissions

STRANGER_BYTES_MAX: Final = 16 * 1024
"""Frames of a connection that has not logged in: a login has a few hundred bytes, a token a few thousand."""
LOGIN_S: Final = 10.0
GOODBYE_S: Final = 1.0
"""Seconds that a connection stays open after a failed login, so that its peer reads the reply."""
STEPS_MAX: Final = 4
_WORDS: Final = "the server did not accept this login"
_HINT: Final = "check user and password, token or certificate; `penstock user list` names the users"

Limit = Callable[[float], None]
"""Ends the connection this many seconds from now, in place of an earlier deadline."""


class Asker(NamedTuple):
    """The client whose request is carried out. ``user``: empty for one without a user name. ``host``: its address."""

    user: str
    host: str


class Guard:
    """The guard of a server, for all its connections.

    Args:
        authority: users, keys and the policy in force.
        audit: the log of logins, refusals and acts of administration.
        clock: seconds that never go back.
        wall_s: seconds since 1970.
        failures_per_min_max: maximum failed logins per address and minute; 0: no limit.

    Attributes:
        strangers: connections that have yet to log in.
    """

    def __init__(
        self,
        authority: Authority,
        audit: Audit,
        clock: Callable[[], float],
        wall_s: Callable[[], float],
        failures_per_min_max: int = 20,
    ) -> None:
        self.authority = authority
        self.audit = audit
        self._clock = clock
        self.wall_s = wall_s
        self._addresses = Buckets(failures_per_min_max / 60, failures_per_min_max)
        self.strangers = 0
        self._asking: GuardedSession | None = None

    def watch(self, session: Session, peer: Peer, frames: FrameReader, limit: Limit) -> GuardedSession:
        """The session of one connection, guarded. ``frames``: cuts its bytes into frames."""
        return GuardedSession(self, session, peer, frames, limit)

    def came(self) -> None:
        """Counts a connection that has yet to log in."""
        self.strangers += 1

    def settled(self) -> None:
        """Counts one less: it has logged in, or is closed."""
        self.strangers -= 1

    def begin(self, session: GuardedSession) -> None:
        """A request of this session is carried out until ``end``."""
        self._asking = session

    def end(self) -> None:
        """It is over."""
        self._asking = None

    def asker(self) -> Asker | None:
        """The client whose request is carried out now; ``None`` if there is none, or it is one that may do everything:
        a service of the cluster, or anything at a port that asks for no login."""
        session = self._asking
        if session is None or session.identity.how in (SERVICE, LOCAL):
            return None
        return Asker(session.identity.user, session.host)

    def may_try(self, peer: Peer) -> bool:
        """Whether an address is below its limit of failed logins."""
        return self._addresses.has(host_of(peer.host), self._clock())

    def failed(self, peer: Peer) -> None:
        """Counts a failed login against the limit of its address."""
        self._addresses.spend(host_of(peer.host), self._clock())

    def figures(self, prefix: str) -> dict[str, float]:
        """Counters since start, and gauges."""
        return {
            f"{prefix}_access_allowed_total": self.audit.allowed,
            f"{prefix}_access_refused_total": self.audit.refused,
            f"{prefix}_audit_left_out_total": self.audit.trail.left_out,
            f"{prefix}_connections_not_logged_in": self.strangers,
        }


class GuardedSession:
    """A ``Session`` that passes on allowed requests to the session within."""

    def __init__(self, guard: Guard, session: Session, peer: Peer, frames: FrameReader, limit: Limit) -> None:
        self._guard = guard
        self._authority = guard.authority
        self._session = session
        self._peer = peer
        self._frames = frames
        self._limit = limit
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._steps = 0
        self._is_over = False
        self._version = self._authority.version
        self._asks = self._authority.asks
        self._is_stranger = self._asks
        identity = UNPROVEN if self._asks else AT_OPEN_PORT
        self._permissions = Permissions(guard.authority, guard.audit, peer.address, identity)
        if self._asks:
            guard.came()
            frames.bound(STRANGER_BYTES_MAX)
            limit(LOGIN_S)
            shown = self._authority.of_certificate(peer.certificate, peer.ends_s)
            if shown is not UNPROVEN:
                self._mechanism = "CERTIFICATE"
                self.become(Known(shown))

    @property
    def identity(self) -> Identity:
        """The identity that the peer has proved."""
        return self._permissions.identity

    @property
    def host(self) -> str:
        """The address of the peer, without its port."""
        return self._peer.host

    # ------------------------------------------------------------ Session

    def submit(self, request: Request, on_result: OnResult) -> None:
        """Passes one request on, or answers it with ``NotAuthorized``."""
        self._guard.begin(self)
        try:
            self._submit(request, on_result)
        finally:
            self._guard.end()

    def _submit(self, request: Request, on_result: OnResult) -> None:
        if type(request) is Login:
            on_result(self._log_in(request))
            return
        if self._authority.version != self._version:
            self._renew()
        if not self._asks or self.identity.is_service:
            self._session.submit(request, on_result)
            return
        try:
            if self._is_over:
                raise NotAuthorized(_WORDS, hint=_HINT)
            if type(request) is AppendRuns:
                self._append(request, on_result)
                return
            for need in needs_of(request):
                self._check(request, need)
        except PenstockError as error:
            on_result(error.as_result())
        else:
            self._session.submit(request, on_result)

    def flush(self) -> None:
        self._session.flush()

    def hold(self) -> None:
        self._session.hold()

    def release(self) -> None:
        self._session.release()

    def close(self) -> None:
        self._settle()
        self._session.close()

    # ------------------------------------------------------------ logins

    def _log_in(self, request: Login) -> Result:
        self._steps += 1
        if self._is_over or self._steps > STEPS_MAX or not self._guard.may_try(self._peer):
            return self._denied("too_many")
        if self._exchange is None:
            begun = self._authority.begin(request.mechanism, self._peer.is_private)
            if isinstance(begun, Denied):
                self._mechanism = "unknown"
                return self._denied(begun.cause, request.mechanism)
            self._exchange, self._mechanism = begun, request.mechanism
        elif request.mechanism not in ("", self._mechanism):
            return self._denied("other_mechanism")
        step = self._exchange.receive(bytes(request.data))
        if isinstance(step, Denied):
            return self._denied(step.cause)
        if isinstance(step, Known):
            return self.become(step)
        return LoginStep(step.data)

    def become(self, known: Known) -> LoginStep:
        """Takes over a proven identity, and gives the answer to its login."""
        self._exchange, self._steps = None, 0
        identity = known.identity
        if identity.how == ANONYMOUS:  # the mechanism proves nothing here
            return LoginStep(known.data, True)
        self._permissions.become(identity)
        self._settle()
        self._limit(max(identity.until_s - self._guard.wall_s(), 0.0))
        self._guard.audit.note(identity, self._peer.address, "Login", self._mechanism, allowed=True)
        return LoginStep(known.data, True, identity.user)

    def _denied(self, cause: str, mechanism: str = "") -> PenstockError:
        """Ends a failed login, and gives its answer. Only operators see the cause, except of mechanisms that the server
        does not take."""
        who = UNPROVEN if self._exchange is None else self._authority.claimed(self._exchange.claimed, SCRAM)
        self._exchange, self._is_over = None, True
        self._permissions.become(UNPROVEN)
        self._guard.failed(self._peer)
        self._guard.audit.note(who, self._peer.address, "Login", self._mechanism, allowed=False, why=cause)
        self._limit(GOODBYE_S)
        hint, words = _HINT, _WORDS
        if cause == NO_MECHANISM:
            words = f"this server takes no login by {mechanism or 'that mechanism'!s:.40}"
            hint = "for passwords its settings name a password_file, for tokens a jwt_key_file"
        elif cause == EAVESDROPPED:
            hint = "a token goes over TLS only: connect with tls, or from the server's own machine"
        return NotAuthorized(words, hint=hint).as_result()

    def _settle(self) -> None:
        """Lifts the limits of a connection that has yet to log in."""
        if self._is_stranger:
            self._is_stranger = False
            self._guard.settled()
            self._frames.bound(FRAME_BYTES_MAX)
            self._limit(math.inf)

    def _renew(self) -> None:
        """Judges the connection anew after a change of users, tokens or rules."""
        self._version = self._authority.version
        if not self._asks and self._authority.asks:
            self._asks = True
            self._permissions.become(UNPROVEN)
        elif self._asks and self.identity is not UNPROVEN and not self._authority.still(self.identity):
            audit, address = self._guard.audit, self._peer.address
            audit.note(self.identity, address, "Login", self._mechanism, allowed=False, why=GONE)
            self._is_over = True
            self._permissions.become(UNPROVEN)
            self._limit(GOODBYE_S)

    # ------------------------------------------------------------ requests

    def _check(self, request: Request, need: Need) -> None:
        """Raises ``NotAuthorized`` unless a need is met."""
        self._permissions.check(type(request).__name__, need)
        if self._is_stranger and need.actions != (OPEN,):
            self._settle()

    # ------------------------------------------------------------ batches of several topics

    def _append(self, request: AppendRuns, on_result: OnResult) -> None:
        """Passes on the runs whose topics are allowed. If some are not, the others go in pieces of adjacent runs, and
        their answers are made into one."""
        if type(request.body) is not bytes:
            request = replace(request, body=bytes(request.body))
        body = bytes(request.body)
        found = topics_of_runs(body)
        topics = {topic for topic, *_ in found}
        refusals: dict[bytes, NotAuthorized] = {}
        for topic in topics:
            try:
                self._check(request, of_topic((PRODUCE,), topic.decode(errors="replace")))
            except NotAuthorized as error:
                refusals[topic] = error
        if not refusals:
            self._session.submit(request, on_result)
            return
        if checksum_of(body) != request.checksum or sum([count for _, count, _, _ in found]) != request.count:
            raise InvalidRequest(f"the {len(body)} bytes of runs are not {request.count} messages; nothing was stored")
        if len(refusals) == len(topics):
            raise next(iter(refusals.values()))
        pieces = _Pieces(on_result)
        kept: list[tuple[int, int, int, int]] = []  # first message, messages, where its bytes begin and end
        first = 0
        for topic, count, begin, end in found:
            if topic in refusals:
                pieces.refuse(first, count, refusals[topic])
            elif kept and kept[-1][0] + kept[-1][1] == first:
                at, before, began, _ = kept[-1]
                kept[-1] = (at, before + count, began, end)
            else:
                kept.append((first, count, begin, end))
            first += count
        pieces.expect(len(kept))
        for at, count, begin, end in kept:
            piece = body[begin:end]
            part = replace(request, count=count, checksum=checksum_of(piece), body=piece)
            self._session.submit(part, pieces.of(at, count))


class _Pieces:
    """The answers to the pieces of a batch, made into one."""

    def __init__(self, on_result: OnResult) -> None:
        self._on_result = on_result
        self._left = 0
        self._level = ""
        self._refused: list[Refused] = []
        self._runs: list[PlacedRun] = []

    def refuse(self, first: int, count: int, error: PenstockError) -> None:
        """Adds messages that are not stored."""
        self._refused += [Refused(at, error.code, error.message) for at in range(first, first + count)]

    def expect(self, count: int) -> None:
        """Sets the number of answers to wait for."""
        self._left = count

    def of(self, first: int, count: int) -> OnResult:
        """The callback for the answer to the piece that begins with this message."""

        def on_result(result: Result) -> None:
            if isinstance(result, Appended):
                self._level = result.level
                self._refused += [one._replace(at=one.at + first) for one in result.refused]
                self._runs += [one._replace(at=one.at + first) for one in result.runs]
            elif isinstance(result, PenstockError):
                self.refuse(first, count, result)
            self._left -= 1
            if not self._left:
                runs, refused = sorted(self._runs), sorted(self._refused)
                self._on_result(Appended(self._level or "cache", (), tuple(refused), tuple(runs)))

        return on_result
