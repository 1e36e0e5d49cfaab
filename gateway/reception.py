"""Who comes and who goes: admits clients, hands sessions over, and sees to wills, keep-alive and expiry.

The order of an admission: identity first, then what the will may do, then room; only then is anything of the old
state touched. So a failed login neither disturbs the client that it names nor publishes its will. A client that
comes while another connection holds its session takes it over: that connection is told 0x8E and closed before the
new one is answered (MQTT-3.1.4-3). A will is published when the connection ends without a normal DISCONNECT, after
its delay or when the session ends, whichever is first (MQTT-3.1.2-8); a client that is back in time cancels it.

Time comes with ``tick`` and from the round. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gateway.auth import Authenticator, Credentials, Identity
from gateway.deadlines import Deadlines
from gateway.downstream import Downstream
from gateway.mqtt.reason_codes import ReasonCode
from gateway.quotas import Quotas
from gateway.rates import Door, Pacing
from gateway.rounds import Rounds
from gateway.session import Session, Will
from gateway.session_table import SessionTable
from gateway.settings import GatewaySettings
from gateway.upstream import Upstream
from penstock.world import Rng
from topicmap.names import InvalidName, check_name

if TYPE_CHECKING:
    from gateway.device import Device


class Arriving(NamedTuple):
    """What a CONNECT asks for, whatever its version."""

    client_id: str
    user_name: str | None
    password: bytes | None
    clean_start: bool
    expiry_s: int
    keep_alive_s: int
    receive_max: int
    will: Will | None
    is_v5: bool


class Admitted(NamedTuple):
    """What came of it."""

    session: Session
    identity: Identity
    present: bool
    keep_alive_s: int
    was_assigned: bool


OnAdmitted = Callable[[Admitted | int], None]


class Reception:
    """Sessions and connections of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        authenticator: Authenticator,
        upstream: Upstream,
        downstream: Downstream,
        quotas: Quotas,
        rounds: Rounds,
        rng: Rng,
    ) -> None:
        self.settings = settings
        self.authenticator = authenticator
        self.upstream = upstream
        self.downstream = downstream
        self.quotas = quotas
        self.rounds = rounds
        self.sessions = SessionTable(settings.sessions_max, settings.in_flight_max)
        self.pacing = Pacing(settings, quotas)
        self._door = Door(settings)
        self._rng = rng
        self._keep_alive: Deadlines[Device] = Deadlines()
        self._half_open: Deadlines[Device] = Deadlines()
        self._wills: Deadlines[Session] = Deadlines()
        self._devices: dict[Device, None] = {}
        self.half_open = 0

    @property
    def connections(self) -> int:
        return len(self._devices)

    # ------------------------------------------------------------ coming

    def opened(self, device: Device) -> None:
        """A connection stands; its CONNECT must come soon."""
        self._devices[device] = None
        self.half_open += 1
        self._half_open.add(self.rounds.now + self.settings.connect_wait_s, device)

    def admit(self, device: Device, asked: Arriving, done: OnAdmitted) -> None:
        """Gives the client its session, or the reason code of the refusal, through ``done``."""
        client_id = asked.client_id or self.sessions.new_client_id(self._rng)
        limit = self._door.over(device.peer, self.rounds.now)
        refusal = self.quotas.refuse(limit) if limit else self._unfit(asked)
        if refusal:
            done(refusal)
            return
        shown = Credentials(client_id, asked.user_name, asked.password, device.peer)

        def identified(identity: Identity | int) -> None:
            if device in self._devices:  # it may have gone meanwhile
                done(identity if isinstance(identity, int) else self._admit(device, asked, identity))
                self.rounds.wake()

        self.authenticator.connect(shown, identified)

    def _admit(self, device: Device, asked: Arriving, identity: Identity) -> Admitted | int:
        client_id = identity.client_id
        refusal = self._unfit_will(identity, asked.will)
        if refusal:
            return refusal
        if not self.sessions.has_room(client_id):
            return self.quotas.refuse("sessions_max")
        session, present = self._take(device, client_id, asked)
        keep_alive_s = self._agreed_keep_alive(asked.keep_alive_s)
        if keep_alive_s:
            self._keep_alive.add(self.rounds.now + keep_alive_s * 1.5, device)
        self.half_open -= 1
        return Admitted(session, identity, present, keep_alive_s, not asked.client_id)

    def _unfit(self, asked: Arriving) -> int:
        if not asked.client_id:  # (MQTT-3.1.3-7, -8) of 3.1.1
            return 0 if asked.is_v5 or asked.clean_start else ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        if len(asked.client_id.encode()) > self.settings.client_id_bytes_max:
            return self.quotas.refuse("client_id_bytes_max")
        return 0 if asked.client_id.isprintable() else ReasonCode.CLIENT_IDENTIFIER_NOT_VALID

    def _unfit_will(self, identity: Identity, will: Will | None) -> int:
        if will is None:
            return 0
        try:
            check_name(will.name)
            self.upstream.route(will.name, identity.client_id)
        except InvalidName:
            return ReasonCode.TOPIC_NAME_INVALID
        return 0 if self.authenticator.may_publish(identity, will.name) else ReasonCode.NOT_AUTHORIZED

    def _take(self, device: Device, client_id: str, asked: Arriving) -> tuple[Session, bool]:
        known = self.sessions.get(client_id)
        if known is not None and known.device is not None:
            known.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=asked.clean_start)
        entry = self.sessions.enter(client_id, asked.clean_start, self.rounds.now)
        if entry.ended is not None:
            self._end(entry.ended)
        session = entry.session
        session.device = device
        session.expiry_s = min(asked.expiry_s, self.settings.session_expiry_s_max)
        session.window = min(asked.receive_max, self.settings.in_flight_max)
        session.will, session.will_due = asked.will, -1.0
        return session, entry.present

    def _agreed_keep_alive(self, asked_s: int) -> int:
        cap = self.settings.keep_alive_s_max
        return min(asked_s or cap, cap) if cap else asked_s

    # ------------------------------------------------------------ going

    def left(self, device: Device, *, is_normal: bool, ends_session: bool = False) -> None:
        """A connection is over. ``is_normal``: its client took leave, so its will is void (MQTT-3.1.2-10)."""
        if self._devices.pop(device, 0) == 0:
            return
        session = device.session
        if session is None:
            self.half_open -= 1
            return
        session.device = None
        self.downstream.detach(session)
        if is_normal:
            session.will = None
        if self.sessions.leave(session, self.rounds.now) or ends_session:
            self._end(session)
        elif session.will is not None:
            self._schedule_will(session, session.will)
        self.rounds.wake()

    def _schedule_will(self, session: Session, will: Will) -> None:
        if will.delay_s == 0:
            self._publish_will(session)
        else:
            session.will_due = self.rounds.now + will.delay_s
            self._wills.add(session.will_due, session)

    def _publish_will(self, session: Session) -> None:
        will, session.will, session.will_due = session.will, None, -1.0
        if will is not None:
            self.upstream.publish_will(session.client_id, will)
            self.rounds.wake()

    def _end(self, session: Session) -> None:
        self.sessions.remove(session)
        self._publish_will(session)
        self.downstream.end(session)

    # ------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Everything that is due; to be called about twice a second."""
        self.pacing.tick(now)
        for device in self._half_open.take(now):
            if device.session is None and device in self._devices:
                self.quotas.refuse("connect_wait_s")
                device.drop()
        for device in self._keep_alive.take(now):
            if device in self._devices:
                self._check_alive(device, now)
        for session in self._wills.take(now):
            if session.device is None and 0 <= session.will_due <= now:
                self._publish_will(session)
        for session in self.sessions.take_ended(now):
            self._end(session)

    def _check_alive(self, device: Device, now: float) -> None:
        due = device.heard_at + device.keep_alive_s * 1.5
        if device.is_held:  # we do not read it, so its silence says nothing
            due = now + 1.0
        if due <= now:  # (MQTT-3.1.2-22)
            device.fail(ReasonCode.KEEP_ALIVE_TIMEOUT)
        else:
            self._keep_alive.add(due, device)

    def close(self) -> None:
        """The gateway stops: every client is told, every will is published."""
        for device in list(self._devices):
            device.fail(ReasonCode.SERVER_SHUTTING_DOWN)
        for session in [one for one in self.sessions if one.will is not None]:
            self._publish_will(session)
