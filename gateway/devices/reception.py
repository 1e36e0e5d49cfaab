"""Who comes and who goes: admits clients, hands sessions over, and sees to wills, keep-alive and expiry.

The order of an admission: identity first, then what the will may do, then the session, from its home, with a new epoch;
only then is anything of the old state touched. So a failed login neither disturbs the client that it names nor
publishes its will. A client that comes while another connection holds its session takes it over: that connection is
told 0x8E and closed before the new one is answered (MQTT-3.1.4-3), also where it is another gateway's. A will is
published when the connection ends without a normal DISCONNECT, after its delay or when the session ends, whichever is
first (MQTT-3.1.2-8); a client that is back in time cancels it.

A session that outlives its connection is saved and released when the connection ends and comes back from its home with
the next one, wherever that is; this gateway holds nothing of it meanwhile but a will that waits.

Time comes with ``tick`` and from the round. Nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from gateway.brokers import Brokers
from gateway.devices.client_ids import ClientIds, is_anothers
from gateway.devices.guests import Admitted, Arriving, Grant, Guest, OnAdmitted
from gateway.devices.journal import Journal
from gateway.devices.patience import Patience, Proving, Stay
from gateway.devices.rejudging import Rejudging
from gateway.devices.removals import Removals
from gateway.devices.telling import Telling
from gateway.devices.turns import Turns, Waiter
from gateway.downstream import Downstream
from gateway.homes.admissions import Admissions
from gateway.homes.exchanges import ExchangeIds
from gateway.homes.home import SessionHome
from gateway.homes.keeping import Keeping
from gateway.homes.resuming import OTHER_MOUNT, Resuming, is_foreign
from gateway.homes.tenure import Tenure
from gateway.homes.wills import Wills
from gateway.limits.creations import Creations
from gateway.limits.half_open import HalfOpens
from gateway.limits.limits import Limits, Stalls
from gateway.limits.quotas import Quotas
from gateway.limits.rates import Crowd, Door, Pacing, Takeovers
from gateway.limits.room import Room
from gateway.limits.tallies import Tallies
from gateway.login.auth import Authenticator, Credentials, Identity
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.publishing.judging import Judge
from gateway.publishing.upstream import Upstream
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Overlap, Session
from gateway.sessions.session_state import decode_flow, decode_terms, encode_will
from gateway.settings import GatewaySettings
from gateway.shards.rounds import Rounds
from penstock.errors import Busy, Fenced, PenstockError
from penstock.protocol.requests.sessions import GONE, NO_WILL, RELEASED, OpenedSession, SessionCall, SessionSave
from penstock.protocol.requests.topics import DescribeTopic
from penstock.world import Rng

_log: Final = logging.getLogger(__name__)
_CLOSED: Final = Told(ReasonCode.ADMINISTRATIVE_ACTION, "an operator has ended the session")


class SessionParts(NamedTuple):
    """What the reception needs for sessions."""

    home: SessionHome
    keeping: Keeping
    exchanges: ExchangeIds
    wills: Wills
    brokers: Brokers


def _nothing() -> None:
    """It is for nobody to know."""


class Reception:
    """Connections of one gateway, and their sessions. ``turns_away``: the reason why nobody is let in, 0 if there is
    none. ``failures``: clients that an unforeseen error has ended."""

    def __init__(
        self,
        settings: GatewaySettings,
        authenticator: Authenticator,
        upstream: Upstream,
        downstream: Downstream,
        parts: SessionParts,
        quotas: Quotas,
        rounds: Rounds,
        rng: Rng,
    ) -> None:
        self.settings = settings
        self.unstored_bytes_max = settings.unstored_bytes_max
        self.authenticator = authenticator
        self.upstream = upstream
        self.downstream = downstream
        self.home, self.keeping, self.exchanges, self.wills, self._brokers = parts
        self.quotas = quotas
        self.rounds = rounds
        self.sessions: dict[str, Session] = {}
        self.tallies = Tallies()
        self.journal = Journal(settings.connection_log)
        self.limits = Limits(settings, quotas)
        self.pacing = Pacing(settings, quotas)
        self._stalls = Stalls(settings, quotas)
        self.room = Room(settings, quotas)
        self._door = Door(settings)
        self.takeovers = Takeovers(settings.takeovers_per_min_max)
        self.creations = Creations(settings, quotas)
        self.crowd = Crowd(settings.address_connections_max)
        self.client_ids = ClientIds(settings, authenticator, self.home, quotas, rng)
        self._admissions = Admissions(self.home, self.wills)
        self.patience = Patience(settings.connect_wait_s, quotas, rounds)
        self.failures = 0
        self._devices: dict[Guest, Stay] = {}
        self.half_opens = HalfOpens()
        self.turns_away: Reason = ReasonCode.SERVER_MOVED if settings.has_moved else 0
        self.home.on_call = self._called
        self.home.on_asked = Telling(self.sessions, self._devices, rounds).answer
        self.home.on_duty = self.wills.claim
        self.keeping.on_fenced = self._fenced
        self.keeping.on_room = downstream.pump_later
        self.tenure = Tenure(self.home, upstream, self.wills, self._admissions, self._connected, self._fenced)
        self.judge = Judge(authenticator, upstream, self.limits)
        self.rejudging = Rejudging(self.judge, authenticator.may_stay, downstream, rounds.wake)
        self.turns = Turns(rounds, self.failed)
        self.removals = Removals(authenticator.is_gone)
        self.wills.is_allowed = self.judge.may_leave
        self.wills.ask_to_make = self.ask_to_make
        self.downstream.retained.may_publish = authenticator.may_publish

    def ask_to_make(self, topic: str, client_id: str, user: str, address: str = "") -> DescribeTopic | PenstockError:
        """The request with which a topic is made for a client, or why it is not."""
        return self.creations.take(topic, client_id, user, address, self.rounds.now)

    @property
    def connections(self) -> int:
        return len(self._devices)

    @property
    def half_open(self) -> int:
        return len(self.half_opens)

    def admitted(self, count: int) -> list[Guest]:
        """So many of the clients that have a session here, the oldest connections first."""
        return list(islice((device for device in self._devices if device.session is not None), count))

    def _connected(self) -> list[Session]:
        return [session for session in self.sessions.values() if session.device is not None]

    # ------------------------------------------------------------ coming

    def opened(self, device: Guest) -> None:
        """A connection stands; its CONNECT must come soon."""
        self._devices[device] = self.patience.opened(device)
        self.tallies.entered(device.tally, len(self._devices))
        self.crowd.enter(device.peer.address)
        self.half_opens.enter(device.peer.address, device)

    def admit(self, device: Guest, asked: Arriving, done: OnAdmitted) -> None:
        """Gives the client its session, or the reason code of the refusal, through ``done``."""
        refusal = self.refusal(device, asked)
        if refusal:
            done(refusal)
            return
        client_id = asked.client_id or self.client_ids.new()
        shown = Credentials(client_id, asked.user_name, asked.password, device.peer)

        def identified(identity: Identity | Reason) -> None:
            if device in self._devices:  # it may have gone meanwhile
                self._open(device, asked, identity, done)
                self.rounds.wake()

        self.authenticator.connect(shown, identified)

    def admit_proven(self, device: Guest, asked: Arriving, user_name: str, done: OnAdmitted) -> None:
        """The same for a client that was not refused and has proven by an exchange who it is."""
        identity = Identity(asked.client_id or self.client_ids.new(), user_name, is_listed=True)
        self._open(device, asked, identity, done)
        self.rounds.wake()

    def refusal(self, device: Guest, asked: Arriving) -> Reason:
        """Why a client is not even asked who it is, 0 if it is; to be called once for a CONNECT."""
        limit = self._door.over(device.peer, self.rounds.now)
        if self.crowd.is_over(device.peer.address):
            limit = "address_connections_max"
        return self.turns_away or (self.quotas.refuse(limit) if limit else self._unfit(asked))

    def _unfit(self, asked: Arriving) -> Reason:
        unsupported = self.limits.unsupported(asked.level, asked.keep_alive_s, asked.will)
        if unsupported:
            return unsupported
        if asked.misuse:
            return Told(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, asked.misuse)
        return self.client_ids.unfit(asked.client_id, takes_id=asked.takes_id)

    def _open(self, device: Guest, asked: Arriving, identity: Identity | Reason, done: OnAdmitted) -> None:
        """Has the session handed over; whoever has it here lets go of it first."""
        if not isinstance(identity, Identity):
            done(identity)
            return
        if not self.authenticator.may_connect(identity, device.peer):
            done(ReasonCode.NOT_AUTHORIZED)
            return
        if asked.will is not None:
            retains = asked.will.retain and self.settings.retained_messages
            will = asked.will._replace(user=identity.user_name, retain=retains)
            unfit = self.judge.unfit_will(identity, will)
            if unfit:
                done(unfit)
                return
            asked = asked._replace(will=will)
        client_id = identity.client_id
        expiry_s = min(asked.expiry_s, self.settings.session_expiry_s_max)
        grant = Grant(
            identity, self.limits.keep_alive_s(asked.keep_alive_s, asked.is_v5), expiry_s, not asked.client_id
        )
        if not device.accepts(asked, grant):
            done(ReasonCode.PACKET_TOO_LARGE)
            return
        known = self.sessions.get(client_id)
        others = (self._admissions.holder(client_id), known.device if known is not None else None)
        if self.client_ids.is_kept_by(others, identity):
            done(ReasonCode.NOT_AUTHORIZED)
            return
        if self.takeovers.are_over(client_id, self.rounds.now):
            done(self.quotas.refuse("takeovers_per_min_max"))
            return
        if any(others):
            self.takeovers.note(client_id, self.rounds.now)
        device.identity = identity
        if known is not None and known.device is not None:
            ends = asked.clean_start or is_anothers(known.device, identity)
            known.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=ends)
        self._admissions.begin(client_id, device)
        self._ask_home(device, asked, grant, done)

    def _ask_home(self, device: Guest, asked: Arriving, grant: Grant, done: OnAdmitted, instead_of: str = "") -> None:
        """``instead_of``: the other user whose session ends."""
        opened = partial(self._opened, device, asked, grant, done, instead_of)
        kept, clean = encode_will(asked.will), asked.clean_start or bool(instead_of)
        client_id, user_name, _, _ = grant.identity
        self.home.open(client_id, user_name, clean, grant.expiry_s, kept, opened, instead_of)

    def _answered(self, device: Guest, asked: Arriving, grant: Grant, done: OnAdmitted, instead_of: str) -> None:
        """The session is another user's, and it is known whether that one loses it."""
        client_id = grant.identity.client_id
        if instead_of and self._is_awaited(device, client_id):
            self._ask_home(device, asked, grant, done, instead_of)
            self.rounds.wake()
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
            self.client_ids.ask_back(grant.identity, partial(self._answered, device, asked, grant, done))
            return
        if isinstance(result, PenstockError):
            self._turn_away(device, client_id, done, _reason_of(result))
            return
        past = self._admissions.settle(client_id, result, encode_will(asked.will))
        if result.ended:
            self._forget_ended(client_id, result)
        release = partial(self._admissions.give_back, client_id, device, past, expiry_s)
        if not self._is_awaited(device, client_id):
            release()
            self._turn_away(device, client_id, done, ReasonCode.SESSION_TAKEN_OVER)
            return
        window = min(asked.receive_max, self.settings.in_flight_max)
        session = Session(client_id, window, self.settings.in_flight_bytes_max)
        session.epoch, session.expiry_s, session.will = result.epoch, expiry_s, asked.will
        if expiry_s or result.present:
            session.lasting = Lasting(result.incarnation, self.home.name)
        mount = device.tally.mount
        if is_foreign(result, mount):
            release()
            self._turn_away(device, client_id, done, OTHER_MOUNT)
            return
        if session.lasting is None or not result.present:
            self._admit(device, grant, result, session, done, release, None)
            return
        flow = decode_flow(result.flow)
        session.lasting.doubtful_ms = result.doubtful_ms
        session.lasting.places = dict(flow.places)
        session.lasting.owed = dict(flow.owed)
        session.lasting.closing = {filter: [] for filter in flow.closing}
        session.overlap.restore(flow.ended)
        resumed = partial(self._admit, device, grant, result, session, done, release)
        Resuming(session, flow, self._brokers, asked.is_v5, self.rounds.now_ms, mount).begin(self.exchanges, resumed)
        self.rounds.wake()

    def _is_awaited(self, device: Guest, client_id: str) -> bool:
        """Whether it is still there, no other connection of its client, here or elsewhere, has come since, and this
        gateway has not stood still meanwhile."""
        is_holder = device in self._devices and self._admissions.holder(client_id) is device
        return is_holder and self._admissions.is_sure(client_id)

    def _turn_away(self, device: Guest, client_id: str, done: OnAdmitted, reason: Reason) -> None:
        """Something came between a client and its session."""
        if self._admissions.holder(client_id) is device:
            self._admissions.forget(client_id)
        if device in self._devices:
            done(reason)

    def expect(self, device: Guest, proving: Proving) -> float:
        """A connected client begins to authenticate again: when it must have done so."""
        return self.patience.expect(self._devices[device], proving)

    def failed(self, device: Waiter) -> None:
        """An error that nobody has foreseen has come of what a client sent, as an answer was taken in: its connection
        ends, and no other. To be called where the error was caught."""
        self.failures += 1
        _log.exception("an error that nobody has foreseen; the connection that brought it is closed")
        device.drop()

    def _forget_ended(self, client_id: str, found: OpenedSession) -> None:
        """Nothing of an earlier session stays anywhere."""
        old = Lasting(found.ended, self.home.name)
        old.held = dict.fromkeys([one.filter for one in decode_terms(found.terms) if one.qos])
        self.downstream.holds.forget(old)
        self.exchanges.forget(client_id, found.ended)

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
        self._admissions.forget(client_id)
        self.sessions[session.client_id] = session
        session.device = device
        identity = grant.identity
        self.patience.admitted(self._devices[device], grant.keep_alive_s, identity.until)
        self.half_opens.leave(device.peer.address, device)
        terms = identity.user_name, device.is_v5, grant.keep_alive_s
        self.journal.connected(device.peer, client_id, *terms, self.rounds.now)
        if found.present:
            self.downstream.resume(session, decode_terms(found.terms))
            self.downstream.holds.resume(session)
            self._judge_subscriptions(session, identity)  # they were allowed when it subscribed
        done(Admitted(session, grant, found.present))

    def _judge_subscriptions(self, session: Session, identity: Identity) -> None:
        for one in list(session.subscriptions.values()):
            self.rejudging.judge(session, identity, one)

    def judge_again(self) -> None:
        """The rules have changed: what a connected client may no longer do ends."""
        self.rejudging.begin(self._devices)

    def users_changed(self) -> None:
        """There is another password file: who is not in it any more has to go."""
        self.removals.users_changed(self.rounds.now)

    # ------------------------------------------------------------ going

    def left(
        self,
        device: Guest,
        why: Reason | str,
        *,
        is_normal: bool = False,
        ends_session: bool = False,
        is_taken: bool = False,
    ) -> None:
        """A connection is over, and ``why``. ``is_normal``: its client took leave, so its will is void (MQTT-3.1.2-10).
        ``is_taken``: its client has another connection, which goes on with the session unless that ends."""
        stay = self._devices.pop(device, None)
        if stay is None:
            return
        stay.end()
        device.tally.connected -= 1
        self.crowd.leave(device.peer.address)
        session, now = device.session, self.rounds.now
        if session is None:
            self.half_opens.leave(device.peer.address, device)
            self._withdraw(device)
            self.journal.turned_away(device.peer, device.named, why, now)
            return
        user = device.identity.user_name if device.identity is not None else ""
        self.journal.disconnected(device.peer, session.client_id, user, why, now - stay.since, now)
        ends = ends_session or session.expiry_s == 0
        will, session.will = session.will, None
        if is_normal:
            will = None
        waits = will is not None and will.delay_s > 0 and not ends
        if will is None or is_taken:
            on_lost = _nothing
            if will is not None and not waits:
                on_lost = self.wills.publish(session.client_id, will)
            self._put_away(session, RELEASED, ends=ends, on_lost=on_lost)
        else:  # the home keeps it until it is stored
            self._put_away(session, GONE, ends=ends)
            if waits:
                self.wills.wait(session.client_id, session.epoch, will, session.expiry_s)
            else:
                last_word = partial(self.home.finish, session.client_id, session.epoch, session.expiry_s, ends=ends)
                held = SessionSave(session.client_id, session.epoch, GONE, session.expiry_s)
                self.wills.publish(session.client_id, will, last_word, held)
        self.rounds.wake()

    def _withdraw(self, device: Guest) -> None:
        """A connection is over that had no session yet: if its home was not asked for one, it need not be."""
        client_id = device.identity.client_id if device.identity is not None else ""
        if self._admissions.holder(client_id) is device and self.home.withdraw(client_id):
            self._admissions.forget(client_id)

    def _put_away(self, session: Session, state: int, *, ends: bool, on_lost: Callable[[], None] = _nothing) -> None:
        """Nothing of the session stays here. ``GONE``: its home keeps it until its will is stored. ``on_lost``: it was
        another's already."""
        del self.sessions[session.client_id]
        session.device = None
        self.downstream.holds.part(session, ends=ends)
        if ends:
            if session.lasting is not None:
                self.upstream.flush()  # an exchange that is stored behind its session's end would never be forgotten
                self.exchanges.forget(session.client_id, session.lasting.incarnation)
            self.downstream.leave(session, ends=True)
            if state == RELEASED:
                self.home.end(session.client_id, session.epoch, on_lost)
        else:
            self.keeping.leave(session, state, b"" if state == GONE else NO_WILL, on_lost)
            self.downstream.leave(session, ends=False)
        # its cursors know it, and it them: in this circle what is in flight would wait for the collector; and with who
        # waits for a save that never comes its device would, with all that it has read
        session.overlap, session.in_flight, session.settled = Overlap(), {}, None
        if session.lasting is not None:
            session.lasting.unsaved, session.lasting.when_saved = [], []

    # ------------------------------------------------------------ what the home says

    def _called(self, call: SessionCall) -> None:
        """Another gateway has a client whose session is here."""
        session = self.sessions.get(call.client)
        if session is not None and session.epoch == call.epoch and session.device is not None:
            self.takeovers.note(call.client, self.rounds.now)
            if call.closes:
                session.device.fail(_CLOSED, ends_session=True)
            else:
                session.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=call.clean)
            return
        self._admissions.forget(call.client)  # one that is just on its way here is turned away when it is known
        self.wills.hand_over(call)

    def _fenced(self, session: Session) -> None:
        """The session is somebody else's: its client here is told, and nothing of it is touched any more."""
        if session.device is not None:
            session.will = None
            if session.lasting is not None:
                session.lasting.is_lost = True
                session.lasting.held.clear()  # it has these open still, or again
            session.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=False)

    # ------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Everything that is due; to be called about twice a second."""
        self._stalls.tick(self._devices, now)
        self.room.tick(self._devices, now)
        self.unstored_bytes_max = self.room.unstored_bytes_max
        self.removals.tick(self._devices, now)
        self.keeping.tick()
        self.tenure.tick()
        for tick in (self.pacing.tick, self.journal.tick, self.patience.tick, self.wills.tick, self.home.tick):
            tick(now)

    def close(self) -> None:
        """The gateway stops: every client is told, every will without a delay is published."""
        for device in list(self._devices):
            device.fail(ReasonCode.SERVER_SHUTTING_DOWN)


def _reason_of(error: PenstockError) -> Reason:
    """Why the home of sessions did not give one, as the CONNACK says it. A limit of the home's is told by its name."""
    if isinstance(error, Busy):
        return Told(ReasonCode.QUOTA_EXCEEDED, error.message)
    return ReasonCode.NOT_AUTHORIZED if isinstance(error, Fenced) else ReasonCode.SERVER_UNAVAILABLE
