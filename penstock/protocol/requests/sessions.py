"""MQTT sessions and their open QoS 2 exchanges. Codes 100 to 119."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

import msgpack

from penstock.errors import Damaged
from penstock.protocol.requests.request import Done, Reply, Request, value
from topicmap.queues import EVENTS_TOPIC, SYS_TOPIC

CONNECTED: Final = 0
GONE: Final = 1
RELEASED: Final = 2
LOST: Final = 3
ANY_EPOCH: Final = 0
"""In a save: that of a session which its owner has, connected, without having been told so."""
NO_WILL: Final = b"\xc0"
"""msgpack's nil, where a will would stand: there is none. An empty one in a save leaves what there is."""
NEVER_ENDS: Final = 0xFFFF_FFFF
"""An expiry interval that never passes."""
HOME_TOPIC: Final = "mqtt|sessions"
"""The broker that holds this topic is the home of all MQTT sessions; no device can name it."""
GATEWAYS_TOPICS: Final = (SYS_TOPIC, HOME_TOPIC, EVENTS_TOPIC)
"""Only services of the cluster publish to these."""
UNREADABLE_HINT: Final = "a newer gateway has written it, or the broker's log is damaged"
_ROW_BYTES: Final = 64  # what a save has beside its client's name and its parts


class SessionSave(NamedTuple):
    """The state of an MQTT session that its owner saves. ``will``, ``terms`` (subscriptions) and ``flow`` (places and
    open exchanges) are the gateway's own bytes; empty ones stay as they were. ``state``: ``CONNECTED``; ``GONE``: the
    client is gone, the owner still has something to do; ``RELEASED``: the next gateway that opens it gets it; ``LOST``:
    the same, after the owner died. An owner also says ``LOST`` of a session that it may have claimed, to have it
    offered anew."""

    client: str
    epoch: int
    state: int
    expiry_s: int
    will: bytes = b""
    terms: bytes = b""
    flow: bytes = b""


def ends_of_parts(saves: Sequence[SessionSave], bytes_max: int, count_max: int) -> list[int]:
    """The ends of the parts into which saves are divided, for requests or records: each part has a bounded number of
    bytes, or one larger save. Empty without saves."""
    ends: list[int] = []
    count = size = 0
    for at, save in enumerate(saves):
        added = _ROW_BYTES + 4 * len(save.client) + len(save.will) + len(save.terms) + len(save.flow)
        if count == count_max or (count and size + added > bytes_max):
            ends.append(at)
            count = size = 0
        count += 1
        size += added
    return [*ends, len(saves)] if saves else ends


def saved_places(flow: bytes) -> list[tuple[str, str, int]]:
    """Filter, broker and next offset of each place in the bytes of a flow (docs/formats/mqtt.md), to count how far
    sessions are behind. Raises ``Damaged`` for bytes that have another shape."""
    if not flow:
        return []
    try:
        return [(str(filter), str(broker), int(at)) for filter, broker, at, *_ in msgpack.unpackb(flow)[0]]
    except (ValueError, TypeError, IndexError, KeyError, msgpack.UnpackException):
        raise Damaged("the saved state of a session cannot be read", hint=UNREADABLE_HINT) from None


class SessionCall(NamedTuple):
    """Another gateway asks for a session that the caller has; ``clean``: to end it. ``closes``: an operator ends it,
    and it has no owner afterwards."""

    client: str
    epoch: int
    clean: bool
    closes: bool = False


class SessionFilters(NamedTuple):
    """The filters that are open for an MQTT session, by its generation."""

    generation: int
    filters: tuple[str, ...]


@value
class OpenedSession(Reply):
    """A session has a new owner and a new epoch. Of an existing session: its saved state, and in ``state`` whether its
    client was still connected when its owner died. ``present``: the session continues; else it is new, ``generation``
    is its epoch, and the old one (``ended``: its generation) has ended. ``epoch`` 0: the owner was called upon, now ask
    with ``force``. ``doubtful_ms``: messages stored until this wall-clock time may have been sent to the client by a
    lost owner; 0: by none. ``absence_s``: for how long the client of the existing session had been gone, 0 if it had
    not. ``over``: epochs of gateways that have ended since the one that the asker has heard of last. No broker is to
    store anything of them behind what the session's new owner publishes (``EndGatewayEpochs``)."""

    epoch: int
    generation: int
    present: bool
    state: int = RELEASED
    ended: int = 0
    will: bytes = b""
    terms: bytes = b""
    flow: bytes = b""
    expiry_s: int = 0
    doubtful_ms: int = 0
    absence_s: float = 0.0
    over: tuple[str, ...] = ()


@value
class OpenSession(Request):
    """Takes an MQTT session over, or makes it; the former owner is fenced. A living owner is first asked to save and
    release it; after a short while it is taken all the same (``force``). ``claim``: takes it as it is, and only if its
    owner is dead and it has something to be done, else ``Fenced``. Another user's is ``Fenced`` too, unless it is that
    of ``instead_of`` and is to end (``clean``): access rules give the client id to ``user`` and not to that one.
    ``heard``: the last of the gateway epochs that the asker knows to be over."""

    code: ClassVar[int] = 100
    reply: ClassVar[type[Reply]] = OpenedSession
    owner: str
    client: str
    clean: bool
    expiry_s: int
    will: bytes
    claim: bool = False
    force: bool = False
    user: str = ""
    heard: str = ""
    instead_of: str = ""


@value
class SavedSessions(Reply):
    """The saves, by their places, of which nothing was kept. ``fenced``: all of them; their sessions are not the
    caller's any more but for those in ``full``, which would have grown beyond the home's limit: they are as they were.
    A gateway that does not know of these takes the session for lost, and not for saved."""

    fenced: tuple[int, ...]
    full: tuple[int, ...] = ()


@value
class SaveSessions(Request):
    """Keeps the state of sessions; answered when it is durable."""

    code: ClassVar[int] = 101
    reply: ClassVar[type[Reply]] = SavedSessions
    owner: str
    saves: tuple[SessionSave, ...]


@value
class EndSession(Request):
    """A session is over; ``Fenced``, and nothing happens, where the epoch is not its own any more."""

    code: ClassVar[int] = 102
    reply: ClassVar[type[Reply]] = Done
    client: str
    epoch: int


@value
class SessionDuties(Reply):
    """Sessions of dead owners with something left to be done, to be opened with ``claim``. ``is_over``: the gateway
    epoch that the asker has named is: it may have lost sessions, and must begin another."""

    clients: tuple[str, ...]
    is_over: bool = False


@value
class KeepSessions(Request):
    """An owner lives for another ``lease_s`` seconds. ``fresh``: it has just begun, and what was its own before is
    not any more. ``gateway_epoch``: a name that nothing else ever has; one that is new begins, durably, and the one
    before it is over. Empty where the owner is of an older version."""

    code: ClassVar[int] = 103
    reply: ClassVar[type[Reply]] = SessionDuties
    owner: str
    lease_s: float
    fresh: bool = False
    gateway_epoch: str = ""


class SessionQuestion(NamedTuple):
    """Asks for a client's subscriptions: the number of filters, or with ``wants_terms`` the filters. ``disconnects``:
    and has it disconnected. ``watch_after``: and, unless it is negative, follows its packets after that number."""

    client: str
    wants_terms: bool
    disconnects: bool = False
    watch_after: int = -1


@value
class SessionCalls(Reply):
    """The requests of others about an owner's sessions. ``asked``: to be answered with ``TellSubscriptions``."""

    calls: tuple[SessionCall, ...]
    asked: tuple[SessionQuestion, ...] = ()


@value
class WatchSessions(Request):
    """Waits up to ``wait_s`` for others to ask for sessions of this owner."""

    code: ClassVar[int] = 104
    reply: ClassVar[type[Reply]] = SessionCalls
    owner: str
    wait_s: float


@value
class Exchanges(Reply):
    """Packet ids of open QoS 2 exchanges."""

    ids: tuple[int, ...]


@value
class FetchExchanges(Request):
    """The packet ids under which this broker has stored a session's QoS 2 messages and that are not released. From now
    on such messages of earlier epochs, from a gateway that had the session before, are refused (``Fenced``)."""

    code: ClassVar[int] = 105
    reply: ClassVar[type[Reply]] = Exchanges
    client: str
    generation: int
    epoch: int


@value
class ReleaseExchanges(Request):
    """The ids may stand for other messages from now on; none: all ids of the session. Answered when that is
    durable. ``is_over``: the session has ended and nothing late of it is expected: nothing is kept of it. ``epoch``:
    the asker's; ``Fenced`` if it has lost the session since, because the ids may stand for other messages by now."""

    code: ClassVar[int] = 106
    reply: ClassVar[type[Reply]] = Done
    client: str
    generation: int
    ids: tuple[int, ...]
    is_over: bool = False
    epoch: int = 0


@value
class SessionFiltersPage(Reply):
    """Sessions with the filters that are open for them, oldest first; ``after`` continues, 0 at the end."""

    sessions: tuple[SessionFilters, ...]
    after: int


@value
class ListSessionFilters(Request):
    """Asks for the filters that the home holds open for sessions whose generation is beyond ``after``.
    ``TopicNotFound`` where sessions are not at home."""

    code: ClassVar[int] = 107
    reply: ClassVar[type[Reply]] = SessionFiltersPage
    is_repeatable: ClassVar[bool] = True
    after: int = 0
    count_max: int = 1000


@value
class EndedSessions(Reply):
    """Generations of sessions that are over."""

    generations: tuple[int, ...]


@value
class FindEndedSessions(Request):
    """Asks which of these sessions are over: a generation never comes back. Only their home knows; others answer
    ``TopicNotFound``."""

    code: ClassVar[int] = 108
    reply: ClassVar[type[Reply]] = EndedSessions
    is_repeatable: ClassVar[bool] = True
    generations: tuple[int, ...]


class SessionRow(NamedTuple):
    """The state of a session. ``gone_ms``: since when its client is away, 0 while it is connected. ``terms`` and
    ``flow`` as its owner saved them last."""

    client: str
    generation: int
    owner: str
    state: int
    user: str
    gone_ms: int
    expiry_s: int
    terms: bytes
    flow: bytes


@value
class SessionsPage(Reply):
    """Sessions, oldest first; ``after`` continues, 0 at the end."""

    sessions: tuple[SessionRow, ...]
    after: int


@value
class ListSessions(Request):
    """Asks for the states of sessions whose generation is beyond ``after``, or of one ``client``. ``TopicNotFound``
    where sessions are not at home. ``contains``: only those with this in their client ids; a reply is the outcome of
    bounded work then, and may have few or none before its end."""

    code: ClassVar[int] = 109
    reply: ClassVar[type[Reply]] = SessionsPage
    is_repeatable: ClassVar[bool] = True
    after: int = 0
    count_max: int = 1000
    client: str = ""
    contains: str = ""


class SeenPacket(NamedTuple):
    """An MQTT packet of a client that an operator follows.

    Attributes:
        number: its number among those of the client, from 1; a gap: what lay between is lost.
        at_ms: wall-clock milliseconds since 1970.
        is_sent: whether it went to the client.
        kind: ``PUBLISH`` and so on.
        packet_id: 0 for none.
        name: the topic, or the filters.
        payload_bytes: of a PUBLISH.
        reasons: reason codes other than a single 0.
    """

    number: int
    at_ms: int
    is_sent: bool
    kind: str
    packet_id: int = 0
    name: str = ""
    qos: int = 0
    payload_bytes: int = 0
    retain: bool = False
    dup: bool = False
    reasons: tuple[int, ...] = ()


class SessionTerms(NamedTuple):
    """The number of ``filters`` that a connected client is subscribed to. ``terms``: the filters, if ``with_terms``,
    which means that they were requested and fit into a reply. ``address``, ``protocol``: those of its connection.
    ``connected_s``: for how long it has been connected. ``watch_after``, ``packets``: the answer to
    ``SessionQuestion.watch_after``."""

    client: str
    filters: int
    with_terms: bool
    terms: bytes = b""
    address: str = ""
    protocol: str = ""
    connected_s: float = 0.0
    watch_after: int = -1
    packets: tuple[SeenPacket, ...] = ()


@value
class Subscriptions(Reply):
    """The answers that came from gateways in time."""

    told: tuple[SessionTerms, ...]


@value
class AskSubscriptions(Request):
    """Asks for the connections and subscriptions of clients, which only their gateways know: answered when all have
    answered or ``wait_s`` is over. ``wants_terms``: also for the filters. ``disconnects``: they are disconnected, with
    the reason *administrative action*; their sessions stay. ``watch_after``: unless it is negative, the packets of a
    single client after that number; it is followed from the first such request on, until none has come for a while."""

    code: ClassVar[int] = 118
    reply: ClassVar[type[Reply]] = Subscriptions
    clients: tuple[str, ...]
    wants_terms: bool
    wait_s: float
    disconnects: bool = False
    watch_after: int = -1


@value
class TellSubscriptions(Request):
    """A gateway's answers to the questions of ``SessionCalls``."""

    code: ClassVar[int] = 119
    reply: ClassVar[type[Reply]] = Done
    owner: str
    told: tuple[SessionTerms, ...]


@value
class EndGatewayEpochs(Request):
    """Ends epochs of gateways: nothing that names one of them is stored from here on. Answered when that is
    durable."""

    code: ClassVar[int] = 110
    reply: ClassVar[type[Reply]] = Done
    gateway_epochs: tuple[str, ...]


@value
class ClosedSession(Reply):
    """``epoch`` 0: the session is over, or ends as soon as its will is published. Else its owner was called upon, and
    has let go or has had the time for it: now ask with this epoch and ``force``."""

    epoch: int = 0


@value
class CloseSession(Request):
    """An operator ends a session: its client, if it is connected, is cut off, and its will published. ``epoch``: of the
    session that is meant, 0: whatever there is; another one is left alone. ``SessionNotFound`` where there is none."""

    code: ClassVar[int] = 111
    reply: ClassVar[type[Reply]] = ClosedSession
    client: str
    epoch: int = 0
    force: bool = False
