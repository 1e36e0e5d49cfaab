"""Publications of a connected client: accepted or refused, and answered in the order of the PUBLISHes.

Each PUBLISH that needs an answer has the next number (``Publisher.sequence``). Brokers answer in any order, and
refusals are known at once; an answer that comes early waits in ``_later`` until all before it are sent (MQTT-4.6.0-2,
-3). Waiting answers are bounded like unstored messages: the receive maximum counts them, and so do their bytes
(``owed``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mypy_extensions import mypyc_attr

from gateway.connections.acknowledging import REASONS, note_stored
from gateway.connections.connect_mapping import stored_form
from gateway.connections.services import Services
from gateway.login.auth import Identity, Peer
from gateway.messages.mounts import mounted_name
from gateway.messages.outgoing import PACKET_ID_MAX
from gateway.mqtt.answers import mark
from gateway.mqtt.connection import Connection
from gateway.mqtt.packets import Publish
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told, code_of
from gateway.publishing.broker_batch import NameRoute
from gateway.publishing.intake import Sender
from gateway.sessions.inbound import STORED
from gateway.sessions.session import Session
from penstock.errors import Busy, Fenced, InvalidMessage

_LATER_BYTES: Final = 400
"""What an answer takes that waits for its turn, and so many more bytes for each further packet of it:"""
_MARK_BYTES: Final = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Incoming(Sender):
    """The publishing side of a connection (``gateway.connections.device.Device``).

    Attributes:
        identity, session: once it is admitted.
        peer: where the connection comes from.
        owed: bytes of what it waits for beside its records: filters that it asked for, and answers to its PUBLISHes
            that wait for earlier ones.
    """

    __slots__ = (
        "_connection",
        "_is_behind",
        "_is_stuffed",
        "_later",
        "_reached",
        "_routes",
        "_services",
        "_unanswered",
        "identity",
        "owed",
        "peer",
        "session",
    )
    identity: Identity | None
    peer: Peer
    owed: int
    session: Session | None
    _services: Services
    _connection: Connection
    _routes: dict[bytes, NameRoute] | None
    _is_behind: bool
    _is_stuffed: bool
    _unanswered: int
    _reached: int
    _later: dict[int, tuple[int, Callable[[], None]]] | None

    def __init__(self, services: Services) -> None:
        self._services = services
        self._connection = services.limits.connection()
        self._routes = None
        self._is_behind = False  # it waits to subscribe until what it has published is stored
        self._is_stuffed = False  # it is not read because too much of it is unstored or owed
        self._unanswered = 0  # QoS 1 publications that have not been acknowledged
        self._reached = 0  # the number of the PUBLISH that is to be answered next
        self._later = None  # by their first numbers, answers before their turn: to how many, and what gives them
        self.session = None
        self.identity = None
        self.route = None
        self.owed = self.unstored = self.kept = self.sequence = 0
        self.is_over = self.is_v5 = False

    # ------------------------------------------------------------ what a device does

    def send(self, data: bytes, count: int = 1, *, at_once: bool = False) -> None:
        """Sends so many packets. ``at_once``: nothing is added to them in this round."""
        raise NotImplementedError

    def fail(self, reason: Reason) -> None:
        """Closes for a reason, told where the version can tell it."""
        raise NotImplementedError

    def released(self, packet_id: int) -> None:
        """A PUBREL that has come before its message was stored counts from now on."""
        raise NotImplementedError

    def eased(self) -> None:
        """Less of a device that waits for that is unstored or owed."""
        raise NotImplementedError

    # ------------------------------------------------------------ PUBLISH

    def on_publish(self, packet: Publish, broken: Reason) -> None:
        """``broken``: a limit that it breaks. Then it is not taken, but its alias and its open exchange stand."""
        name = self._connection.name_of(packet, self._services.settings.topic_alias_max)
        if isinstance(name, int):
            self.fail(self._services.limits.fault(name, True))
            return
        name, mount = mounted_name(self.tally.mount, name), self.tally.mount
        self.tally.publications_in += 1
        if self.pace is not None:
            self.pace.published += 1
        if not self._may_begin(packet):
            return
        assert self.session is not None
        assert self.identity is not None
        reason = broken or self._services.judge.unfit_name(self.identity, name)
        if reason:
            if not broken and code_of(reason) == ReasonCode.NOT_AUTHORIZED:
                self._services.connections.journal.denied("Publish", self.peer, self.identity, name)
            self._decline(packet, reason)
            return
        route, upstream = self._route(name), self._services.upstream
        try:
            retains = packet.retain and self._services.settings.retained_messages
            flag, properties = stored_form(packet, retains, route, self.session, self.identity, upstream, mount)
        except InvalidMessage as error:
            self._decline(packet, Told(ReasonCode.QUOTA_EXCEEDED, error.message))
            return
        self._unanswered += packet.qos == 1
        upstream.publish(self, route, packet.payload, flag, mark(packet.qos, packet.packet_id), properties)

    def _may_begin(self, packet: Publish) -> bool:
        """Whether this is a new message, within what the client may have open (MQTT-3.3.4-7)."""
        session = self.session
        assert session is not None
        beyond = self._services.limits.beyond(packet.qos, retain=packet.retain, is_v5=self.is_v5)
        if beyond:  # (MQTT-3.2.2-11, -14)
            self.fail(beyond)
        elif packet.qos == 2 and packet.packet_id in session.incoming:
            if session.begin_incoming(packet.packet_id) == STORED:
                self._answer_in_turn(partial(self.send, mark(2, packet.packet_id)))
        elif packet.qos and self.room_for_publications(session) <= 0:
            self.fail(self._services.quotas.refuse("receive_max"))
        elif packet.qos == 2 and self.is_v5 and len(session.incoming) >= 2 * self._services.settings.receive_max:
            # earlier connections have left too many open
            self._decline(packet, Told(ReasonCode.QUOTA_EXCEEDED, self._services.quotas.refuse("receive_max").why))
        else:
            if packet.qos == 2:
                session.begin_incoming(packet.packet_id)
            return True
        return False

    def room_for_publications(self, session: Session) -> int:
        """How many more QoS 1 and 2 publications it may have open on this connection (MQTT 5, 4.9). Before MQTT 5, and
        at a lenient listener, bytes bound it."""
        if not self.is_v5:
            return PACKET_ID_MAX
        room = self._services.settings.receive_max - self._unanswered - len(session.incoming) + session.inherited
        return room if room > 0 else self.tally.room_beyond()

    def forget_routes(self) -> None:
        """Whether it may publish to a name is to be asked again."""
        self._routes = self.route = None

    def _route(self, name: str) -> NameRoute:
        """The route of a name, made when it is first used. Known ones open the straight way."""
        assert self.session is not None
        if self._routes is None:
            self._routes = {}
        return self._services.upstream.route_among(self._routes, name, self.session.client_id, self.tally.mount)

    def _decline(self, packet: Publish, reason: Reason) -> None:
        """The message is not taken. MQTT 5 says why; before that it is acknowledged and forgotten, or the
        connection closes where the name is at fault (MQTT-3.3.5-2 of 3.1.1)."""
        self._services.upstream.drop(1, unauthorized=code_of(reason) == ReasonCode.NOT_AUTHORIZED)
        if not self.is_v5 and code_of(reason) != ReasonCode.NOT_AUTHORIZED:
            self.fail(reason)
        elif packet.qos:
            answer = mark(packet.qos, packet.packet_id)
            self._unanswered += packet.qos == 1
            if self.is_v5:
                self._answer_in_turn(partial(self._tell_refused, answer, reason))
            else:
                self._answer_in_turn(partial(self._tell_stored, [answer], packet.qos == 2, ""))

    # ------------------------------------------------------------ answers

    def stored(self, first: int, marks: list[bytes], size: int, exact: bool) -> None:
        self.answered(size)
        if b"" in marks:  # of QoS 0
            marks = [one for one in marks if one]
        count = len(marks)
        if not count:
            return
        level = self._services.upstream.level if self._connection.tells_level else ""
        if first == self._reached:
            self._reached += count
            self._tell_stored(marks, exact, level)
            if self._later is not None:
                self._catch_up()
        else:
            self._wait(first, count, partial(self._tell_stored, marks, exact, level))

    def stored_one(self, first: int, mark: bytes, size: int) -> None:
        if self._connection.tells_level or self._later is not None or first != self._reached:
            self.stored(first, [mark], size, False)
            return
        self.unstored -= size
        if self._is_stuffed or self._is_behind:
            self.eased()
        if mark:
            self._reached += 1
            self._unanswered -= 1
            self.send(mark, at_once=True)

    def answered(self, size: int) -> None:
        self.unstored -= size
        if self._is_stuffed or self._is_behind:
            self.eased()

    def refused(self, first: int, mark: bytes, code: int, why: str = "") -> None:
        """A broker has refused one record of this device, for good."""
        self._services.upstream.drop(1)
        if not mark:
            return
        assert self.session is not None
        if code == Fenced.code:  # its client says it again where the session is
            self.session.lose()
            return
        reason = REASONS.get(code, ReasonCode.QUOTA_EXCEEDED) if self.is_v5 else ReasonCode.UNSPECIFIED_ERROR
        if code == Busy.code and why:  # a limit, and the log has the words where the client cannot be told
            reason = Told(code_of(reason), why)
        self._in_turn(first, partial(self._tell_refused, mark, reason))

    def fate_unknown(self, marks: list[bytes]) -> None:
        """It is unknown whether these records are stored: the client must send again, on a new connection."""
        if any(marks):
            self.fail(ReasonCode.SERVER_BUSY)

    def _answer_in_turn(self, give: Callable[[], None]) -> None:
        """Answers the PUBLISH that is being carried out, without a broker."""
        first = self.sequence
        self.sequence += 1
        self._in_turn(first, give)

    def _in_turn(self, first: int, give: Callable[[], None]) -> None:
        if first == self._reached:
            self._reached += 1
            give()
            if self._later is not None:
                self._catch_up()
        else:
            self._wait(first, 1, give)

    def _wait(self, first: int, count: int, give: Callable[[], None]) -> None:
        if self.is_over:
            return
        if self._later is None:
            self._later = {}
        self._later[first] = (count, give)
        self.owed += _LATER_BYTES + count * _MARK_BYTES

    def _catch_up(self) -> None:
        """Gives the answers whose turn it is now."""
        while self._later:
            one = self._later.pop(self._reached, None)
            if one is None:
                return
            count, give = one
            self._reached += count
            self.owed -= _LATER_BYTES + count * _MARK_BYTES
            give()
        self._later = None
        self.eased()

    def _tell_stored(self, marks: list[bytes], exact: bool, level: str) -> None:
        """Acknowledges publications. ``exact``: some of these are PUBRECs. ``level``: what they say, if anything."""
        released: Sequence[int] = ()
        count = len(marks)
        if exact:
            assert self.session is not None
            released, count = note_stored(self.session, marks)
        self._unanswered -= count
        if level:
            marks = self._connection.with_level(marks, level)
        self.send(b"".join(marks), len(marks), at_once=True)
        for packet_id in released:
            if not self.is_over:
                self.released(packet_id)

    def _tell_refused(self, mark: bytes, reason: Reason) -> None:
        """A publication is not stored, for good."""
        assert self.session is not None
        if mark[0] == 0x50:
            self.session.forget_incoming(int.from_bytes(mark[2:4], "big"))
        else:
            self._unanswered -= 1
        if self.is_v5:
            self.send(self._connection.refusal(mark, reason))
        else:
            self.fail(reason)
