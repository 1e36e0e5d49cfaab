"""CONNECT handling: identifies the client, opens its session, and admits it.

The order is: identity; rights of the will; the session, from its home, with a new epoch; then the old state. So a
failed login neither disturbs the client that it names nor publishes its will. If another connection has the session,
also at another gateway, that connection gets 0x8E and is closed before the new one is answered (MQTT-3.1.4-3). Nothing
here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.brokers import Brokers
from gateway.connections.client_ids import ClientIds, is_anothers
from gateway.connections.connections import Connections
from gateway.connections.guests import Admitted, Arriving, Grant, Guest, OnAdmitted
from gateway.connections.pending_connects import PendingConnects
from gateway.connections.refusals import Refusals
from gateway.connections.rejudging import Rejudging
from gateway.delivery.downstream import Downstream
from gateway.limits.limits import Limits
from gateway.limits.quotas import Quotas
from gateway.limits.rates import Takeovers
from gateway.login.auth import Authenticator, Credentials, Identity
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.net.rounds import Rounds
from gateway.publishing.judging import Judge
from gateway.sessions.exchange_ids import ExchangeIds
from gateway.sessions.lasting import Lasting
from gateway.sessions.resuming import OTHER_MOUNT, Resuming, is_foreign
from gateway.sessions.session import Session
from gateway.sessions.session_state import decode_flow, decode_terms, encode_will
from gateway.sessions.store import SessionStore
from gateway.settings import GatewaySettings
from penstock.errors import Busy, Fenced, PenstockError
from penstock.protocol.requests.sessions import OpenedSession


class Rules(NamedTuple):
    """The parts that judge a CONNECT. ``takeovers``: the rate at which one client id may be taken over."""

    refusals: Refusals
    authenticator: Authenticator
    client_ids: ClientIds
    judge: Judge
    rejudging: Rejudging
    takeovers: Takeovers
    limits: Limits
    quotas: Quotas


class SessionParts(NamedTuple):
    """The parts that open a session and resume it."""

    home: SessionStore
    pending_connects: PendingConnects
    exchanges: ExchangeIds
    brokers: Brokers
    downstream: Downstream


class Connecting:
    """The CONNECTs of one gateway. ``sessions``: those with a connection here, by client."""

    def __init__(
        self,
        settings: GatewaySettings,
        rules: Rules,
        parts: SessionParts,
        connections: Connections,
        sessions: dict[str, Session],
        rounds: Rounds,
    ) -> None:
        self._settings = settings
        self._refusals = rules.refusals
        self._authenticator = rules.authenticator
        self._client_ids = rules.client_ids
        self._judge = rules.judge
        self._rejudging = rules.rejudging
        self._takeovers = rules.takeovers
        self._limits = rules.limits
        self._quotas = rules.quotas
        self._home = parts.home
        self._pending_connects = parts.pending_connects
        self._exchanges = parts.exchanges
        self._brokers = parts.brokers
        self._downstream = parts.downstream
        self._connections = connections
        self._sessions = sessions
        self._rounds = rounds

    def refusal(self, device: Guest, asked: Arriving) -> Reason:
        """The reason code of a refusal before the login, 0 for none; to be called once for a CONNECT."""
        return self._refusals.of(device, asked)

    def admit(self, device: Guest, asked: Arriving, done: OnAdmitted) -> None:
        """Gives the client its session, or the reason code of the refusal, through ``done``."""
        refusal = self._refusals.of(device, asked)
        if refusal:
            done(refusal)
            return
        client_id = asked.client_id or self._client_ids.new()
        shown = Credentials(client_id, asked.user_name, asked.password, device.peer)

        def identified(identity: Identity | Reason) -> None:
            if device in self._connections:  # it may have gone meanwhile
                self._open(device, asked, identity, done)
                self._rounds.wake()

        self._authenticator.connect(shown, identified)

    def admit_proven(self, device: Guest, asked: Arriving, user_name: str, done: OnAdmitted) -> None:
        """The same for a client that was not refused and has proven by an exchange who it is."""
        identity = Identity(asked.client_id or self._client_ids.new(), user_name, is_listed=True)
        self._open(device, asked, identity, done)
        self._rounds.wake()

    # ------------------------------------------------------------ the session

    def _open(self, device: Guest, asked: Arriving, identity: Identity | Reason, done: OnAdmitted) -> None:
        """Has the session handed over; a connection that has it here releases it first."""
        if not isinstance(identity, Identity):
            done(identity)
            return
        if not self._authenticator.may_connect(identity, device.peer):
            done(ReasonCode.NOT_AUTHORIZED)
            return
        if asked.will is not None:
            retains = asked.will.retain and self._settings.retained_messages
            will = asked.will._replace(user=identity.user_name, retain=retains)
            unfit = self._judge.unfit_will(identity, will)
            if unfit:
                if unfit == ReasonCode.NOT_AUTHORIZED:
                    self._connections.journal.denied("Will", device.peer, identity, will.name)
                done(unfit)
                return
            asked = asked._replace(will=will)
        client_id = identity.client_id
        expiry_s = min(asked.expiry_s, self._settings.session_expiry_s_max)
        grant = Grant(
            identity, self._limits.keep_alive_s(asked.keep_alive_s, asked.is_v5), expiry_s, not asked.client_id
        )
        if not device.accepts(asked, grant):
            done(ReasonCode.PACKET_TOO_LARGE)
            return
        known = self._sessions.get(client_id)
        others = (self._pending_connects.holder(client_id), known.device if known is not None else None)
        if self._client_ids.is_kept_by(others, identity):
            done(ReasonCode.NOT_AUTHORIZED)
            return
        if self._takeovers.are_over(client_id, self._rounds.now):
            done(self._quotas.refuse("takeovers_per_min_max"))
            return
        if any(others):
            self._takeovers.note(client_id, self._rounds.now)
        device.identify(identity)
        if known is not None and known.device is not None:
            ends = asked.clean_start or is_anothers(known.device, identity)
            known.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=ends)
        self._pending_connects.begin(client_id, device)
        self._ask_home(device, asked, grant, done)

    def _ask_home(self, device: Guest, asked: Arriving, grant: Grant, done: OnAdmitted, instead_of: str = "") -> None:
        """``instead_of``: the other user whose session ends."""
        opened = partial(self._opened, device, asked, grant, done, instead_of)
        kept, clean = encode_will(asked.will), asked.clean_start or bool(instead_of)
        client_id, user_name, _, _ = grant.identity
        self._home.open(client_id, user_name, clean, grant.expiry_s, kept, opened, instead_of)

    def _answered(self, device: Guest, asked: Arriving, grant: Grant, done: OnAdmitted, instead_of: str) -> None:
        """The session is another user's, and it is known whether that one loses it."""
        client_id = grant.identity.client_id
        if instead_of and self._is_awaited(device, client_id):
            self._ask_home(device, asked, grant, done, instead_of)
            self._rounds.wake()
        else:
            self._turn_away(device, client_id, done, ReasonCode.NOT_AUTHORIZED)

    def _opened(
        self,
        device: Guest,
        asked: Arriving,
        grant: Grant,
        done: OnAdmitted,
        instead_of: str,
        result: OpenedSession | PenstockError,
    ) -> None:
        client_id, expiry_s = grant.identity.client_id, grant.expiry_s
        if isinstance(result, Fenced) and not instead_of and grant.identity.user_name:
            self._client_ids.ask_back(grant.identity, partial(self._answered, device, asked, grant, done))
            return
        if isinstance(result, PenstockError):
            again = partial(self._ask_again, device, asked, grant, done, instead_of)
            if not (self._is_awaited(device, client_id) and self._home.ask_later(result, again)):
                self._turn_away(device, client_id, done, _reason_of(result))
            return
        past = self._pending_connects.settle(client_id, result, encode_will(asked.will))
        if result.ended:
            self._forget_ended(client_id, result)
        release = partial(self._pending_connects.give_back, client_id, device, past, expiry_s)
        if not self._is_awaited(device, client_id):
            release()
            self._turn_away(device, client_id, done, ReasonCode.SESSION_TAKEN_OVER)
            return
        window = min(asked.receive_max, self._settings.in_flight_max)
        lasting = Lasting(result.generation, self._home.name) if expiry_s or result.present else None
        session = Session(
            client_id, window, self._settings.in_flight_bytes_max, result.epoch, expiry_s, asked.will, lasting
        )
        mount = device.tally.mount
        if is_foreign(result, mount):
            release()
            self._turn_away(device, client_id, done, OTHER_MOUNT)
            return
        if lasting is None or not result.present:
            self._admit(device, grant, result, session, done, release, None)
            return
        flow = decode_flow(result.flow)
        lasting.restore(flow, result.doubtful_ms)
        session.overlap.restore(flow.ended)
        resumed = partial(self._admit, device, grant, result, session, done, release)
        Resuming(session, flow, self._brokers, asked.is_v5, self._rounds.now_ms, mount).begin(self._exchanges, resumed)
        self._rounds.wake()

    def _ask_again(self, device: Guest, asked: Arriving, grant: Grant, done: OnAdmitted, instead_of: str) -> None:
        """No node has led the log of sessions when they were asked for: another one may by now."""
        client_id = grant.identity.client_id
        if self._is_awaited(device, client_id):
            self._ask_home(device, asked, grant, done, instead_of)
        else:
            self._turn_away(device, client_id, done, ReasonCode.SESSION_TAKEN_OVER)

    def _is_awaited(self, device: Guest, client_id: str) -> bool:
        """Whether it is still there, no other connection of its client, here or elsewhere, has come since, and this
        gateway has not stood still meanwhile."""
        is_holder = device in self._connections and self._pending_connects.holder(client_id) is device
        return is_holder and self._pending_connects.is_sure(client_id)

    def _turn_away(self, device: Guest, client_id: str, done: OnAdmitted, reason: Reason) -> None:
        """Something came between a client and its session."""
        if self._pending_connects.holder(client_id) is device:
            self._pending_connects.forget(client_id)
        if device in self._connections:
            done(reason)

    def _forget_ended(self, client_id: str, found: OpenedSession) -> None:
        """Removes everything of an earlier session."""
        held = [one.filter for one in decode_terms(found.terms) if one.qos]
        old = Lasting(found.ended, self._home.name, held)
        self._downstream.holds.forget(old)
        self._exchanges.forget(client_id, found.ended)

    def _admit(
        self,
        device: Guest,
        grant: Grant,
        found: OpenedSession,
        session: Session,
        done: OnAdmitted,
        release: Callable[[], None],
        error: PenstockError | None,
    ) -> None:
        """The session stands: the client is answered."""
        client_id = session.client_id
        if error is not None or not self._is_awaited(device, client_id):
            release()
            reason = ReasonCode.SESSION_TAKEN_OVER if error is None else ReasonCode.SERVER_UNAVAILABLE
            self._turn_away(device, client_id, done, reason)
            return
        self._pending_connects.forget(client_id)
        self._sessions[client_id] = session
        session.attach(device)
        identity = grant.identity
        self._connections.admitted_one(device, grant.keep_alive_s, identity.until, self._rounds.now)
        terms = identity.user_name, device.is_v5, grant.keep_alive_s
        self._connections.journal.connected(device.peer, client_id, *terms, self._rounds.now)
        if found.present:
            self._downstream.resume(session, decode_terms(found.terms))
            self._downstream.holds.resume(session)
            self._judge_subscriptions(session, identity)  # they were allowed when it subscribed
        done(Admitted(session, grant, found.present))

    def _judge_subscriptions(self, session: Session, identity: Identity) -> None:
        for one in list(session.subscriptions.values()):
            self._rejudging.judge(session, identity, one)


def _reason_of(error: PenstockError) -> Reason:
    """The CONNACK's reason why the home gave no session. It names a limit of the home."""
    if isinstance(error, Busy):
        return Told(ReasonCode.QUOTA_EXCEEDED, error.message)
    return ReasonCode.NOT_AUTHORIZED if isinstance(error, Fenced) else ReasonCode.SERVER_UNAVAILABLE
