"""One node of a group at work: feeds its replica with events of other nodes and of its broker, and sends its messages.

All events go through ``_do``, one after the other, because an answer that the replica causes may append again at once.
After a disk failure or a defect it does nothing more, and the next ``tick`` ends the node. Pure: ``group.py`` drives
it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.kernel.fold import fact_record
from broker.net.confirmations import Confirmations
from broker.net.lead_watch import DiskState, LeadWatch
from broker.net.office import NodeOffice, OpenLog
from broker.net.peer_sessions import PeerSession
from broker.net.peers import Introduction, PeerLink
from broker.net.registration import Rank
from broker.replica import members
from broker.replica.core import Core
from broker.replica.describing import described, figures_of
from broker.replica.events import Event, Lost, MoveLead, Received, Tick, ToPeer
from broker.replica.log_face import ReplicaLog
from broker.replica.members import MembersFold
from broker.replica.membership import forced, with_node
from broker.replica.repair import Repair
from broker.replica.replica import Replica
from broker.replica.requests import Change
from broker.store.raw import BadPlace
from penstock.clock import Clock
from penstock.errors import (
    Busy,
    Damaged,
    InvalidRequest,
    NoQuorum,
    NotAuthorized,
    NotLeader,
    PenstockError,
    StorageFailed,
    Unavailable,
    UnknownRequest,
)
from penstock.protocol.link import OnResult
from penstock.protocol.requests.replicas import (
    SPEAKS,
    SPEAKS_FROM,
    AddReplica,
    AskVote,
    FetchLog,
    LogStretch,
    Members,
    ReplicaHello,
    Replicas,
    ReplicaWelcome,
    TakeEntries,
    TakeLead,
    Taken,
    Vote,
)
from penstock.protocol.requests.request import Done, Request, Result

FETCH_BYTES_MAX: Final = 4 << 20

_log = logging.getLogger(__name__)


class Ways(Protocol):
    """The connections to other nodes (``peers.Peers``)."""

    @property
    def there(self) -> list[PeerLink]:
        """The connected nodes."""
        ...

    def to(self, node: str) -> PeerLink | None:
        """The one to a node."""
        ...

    def know(self, address: str) -> None:
        """Notes that there may be a node."""
        ...

    def forget_all_but(self, addresses: Collection[str]) -> None:
        """Forgets all other addresses: no node of the group is there."""
        ...


class RunningCopy(NamedTuple):
    """A node's copy of the log while its replica runs. ``on_received``: called when something was written to the log
    that another node leads: it is to be synced."""

    opened: OpenLog
    core: Core
    replica: Replica
    office: NodeOffice
    on_received: Callable[[], None]


class Node:
    """One node of a group, for as long as its process lives.

    Args:
        introduction: what it says of itself.
        clock: seconds that never go back, and the wall clock.
        log_id: gives the id of the log.

    Attributes:
        introduction: what it says of itself.
        repaired: how often something of its log was written again.
        handed_over: how often it has handed the lead over because of its disk.
    """

    def __init__(self, introduction: Introduction, clock: Clock, log_id: Callable[[], str]) -> None:
        self.introduction = introduction
        self._clock = clock
        self._log_id = log_id
        self._copy: RunningCopy | None = None
        self._shown: tuple[OpenLog, ReplicaLog] | None = None
        self._has_received = False
        self._ways: Ways | None = None
        self._sessions: dict[str, PeerSession] = {}
        self._todo: deque[Callable[[], list[ToPeer]]] = deque()
        self._is_busy = False
        self._confirmations = Confirmations()
        self._failed: Exception | None = None
        self._namesrv: dict[str, None] = {}  # of the nodes that it has met
        self._committed = 0  # as leaders have said
        self._watch = LeadWatch()
        self.repaired = self.handed_over = 0

    # ------------------------------------------------------------ its life

    def connect(self, ways: Ways) -> None:
        """Sets the connections to other nodes."""
        self._ways = ways

    def show(self, opened: OpenLog, log: ReplicaLog) -> None:
        """Other nodes may read this log before its replica runs."""
        self._shown = opened, log

    def begin(self, copy: RunningCopy) -> None:
        """Its replica runs."""
        self._copy = copy

    def end(self) -> None:
        """Its replica does not run any more."""
        self._copy = self._shown = None
        self._todo.clear()

    @property
    def replica(self) -> Replica | None:
        """The running replica."""
        return self._copy.replica if self._copy else None

    @property
    def log(self) -> ReplicaLog | None:
        """Its log, also before its replica runs; None before it is shown."""
        if self._copy is not None:
            return self._copy.replica.log
        return self._shown[1] if self._shown else None

    def leads(self) -> bool:
        """Whether this node leads."""
        return self._copy is not None and self._copy.replica.leads > 0

    @property
    def leader(self) -> str:
        """The name of the node that leads, empty where that is not known."""
        if self._copy is None:
            return ""
        return self._copy.replica.role.leader

    @property
    def members(self) -> Members:
        """The members of the group, as this node knows them."""
        return self._copy.replica.members if self._copy else Members()

    @property
    def lag(self) -> int:
        """The number of committed bytes that this copy lacks."""
        return max(0, self._committed - self._copy.replica.log.end) if self._copy else 0

    # ------------------------------------------------------------ one thing after the other

    def _do(self, work: Callable[[Replica, float], list[ToPeer]]) -> None:
        copy = self._copy
        if copy is None:
            return
        if self._failed is not None:
            raise self._failed
        self._todo.append(lambda: work(copy.replica, self._clock.monotonic()))
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._todo:
                self._post(self._todo.popleft()())
                copy.office.answer()
                self._confirmations.answer(copy.replica.leads, copy.replica.confirmed)
                if self._confirmations.is_due():
                    self._todo.append(lambda: self._begin_round(copy.replica))
        except Exception as error:
            if isinstance(error, StorageFailed) or not isinstance(error, PenstockError):
                self._end_for(error)
            raise
        finally:
            self._is_busy = False

    def _end_for(self, error: Exception) -> None:
        """The core counts on what the disk has not, or a defect has stopped it half way: nothing more is sent or
        answered, and the next tick ends this node. Its next start finds the durable log."""
        if not isinstance(error, StorageFailed):
            _log.critical("a defect ends this node; please report it", exc_info=error)
        self._failed = error

    def confirm(self, on_confirmed: Callable[[], None]) -> None:
        """Calls back when a majority has said, since this call, that this node leads; never where it does not."""
        if self.leads():
            self._confirmations.wait(on_confirmed)
            self._do(lambda replica, now: [])

    def _begin_round(self, replica: Replica) -> list[ToPeer]:
        if not (replica.leads and self._confirmations.is_due()):
            return []
        number, messages = replica.begin_round(self._clock.monotonic())
        self._confirmations.begun(replica.leads, number)
        return messages

    def _step(self, event: Event) -> None:
        self._do(lambda replica, now: replica.step(event, now))

    def _post(self, messages: list[ToPeer]) -> None:
        for node, message in messages:
            if isinstance(message, Taken) and self._copy is not None:
                disk = self._copy.opened.disk_state()
                message = replace(message, is_full=disk.is_full, sync_s=disk.sync_s)
            if isinstance(message, Vote | Taken):
                session = self._sessions.get(node)
                if session is not None:
                    session.answer(message)
                continue
            link = self._ways.to(node) if self._ways else None
            if link is not None and link.welcome is not None:  # else it was told that the connection is lost
                link.ask(message, partial(self._answered, node, link.welcome.uuid))

    def _answered(self, node: str, uuid: str, result: Result) -> None:
        if isinstance(result, Taken):
            self._watch.heard(node, DiskState(result.is_full, result.sync_s))
        if isinstance(result, Vote | Taken):
            self._step(Received(node, uuid, result))

    # ------------------------------------------------------------ what its broker brings

    def appended(self) -> None:
        """Requests may have written to the log that this node leads."""
        copy = self._copy
        if copy is not None and copy.replica.leads and copy.replica.has_grown:
            self._do(lambda replica, now: replica.appended(now) if replica.leads else [])

    def synced(self, point: int) -> None:
        """This disk has the log up to there."""
        self._do(lambda replica, now: replica.synced(point, now))

    def tick(self) -> None:
        """Time has passed; several in the time between two signs of life. Raises ``StorageFailed``, and what a defect
        raises, also where it came at another call, whose caller may have answered it as a refusal."""
        if self._ways is not None:
            addresses = [one.address for one in self.members.nodes]
            for one in addresses:
                self._ways.know(one)
            if self.members.get(self.introduction.node) is not None:
                self._ways.forget_all_but(addresses)
        self._step(Tick())

    def refusal(self) -> PenstockError | None:
        """The reason why nothing may be appended now, where this node leads."""
        copy = self._copy
        if copy is None or not copy.replica.leads:
            return None
        why = copy.replica.refusal(self._clock.monotonic())
        return NoQuorum(f"broker {self.introduction.group} takes nothing now: {why}") if why else None

    def not_leader(self) -> NotLeader:
        """The error while another node leads."""
        leader = self.leader
        if not leader or leader == self.introduction.node:
            return NotLeader(f"broker {self.introduction.group} has no leader just now")
        return NotLeader(f"node {leader} leads broker {self.introduction.group}", hint=self._clients_of(leader))

    def _clients_of(self, node: str) -> str:
        link = self._ways.to(node) if self._ways else None
        if link is not None and link.welcome is not None:
            return link.welcome.clients
        session = self._sessions.get(node)
        return session.hello.clients if session and session.hello else ""

    # ------------------------------------------------------------ repair

    def wanted(self, repair: Repair) -> FetchLog | None:
        """The damaged part of this copy, to be requested from another node."""
        wanted = repair.wanted()
        return None if wanted is None else FetchLog(wanted.position, FETCH_BYTES_MAX)

    def count_repair(self) -> None:
        """Counts a repaired part of its log."""
        self.repaired += 1

    def repair(self) -> None:
        """Notes that damage was repaired."""
        self._do(lambda replica, now: replica.repaired(now))

    # ------------------------------------------------------------ other nodes

    def met(self, link: PeerLink) -> None:
        """A connection to another node stands: messages sent before it are lost."""
        if link.welcome is not None:
            self._namesrv.update(dict.fromkeys(link.welcome.namesrv))
            self._step(Lost(link.welcome.node))

    def lost(self, node: str) -> None:
        """It has ended."""
        self._step(Lost(node))

    def learn_cluster(self, cluster: str) -> None:
        """The id of the group has become known."""
        self.introduction = self.introduction._replace(cluster=cluster)

    def heirs(self) -> list[str]:
        """The voters that could lead in place of this node, which leads: the best first."""
        copy = self._copy
        if copy is None or not copy.replica.leads or self._failed is not None:
            return []
        peers = {one.node: one.durable for one in copy.core.peers(self._clock.monotonic())}
        there = [link.welcome.node for link in self._ways.there if link.welcome] if self._ways else []
        fit = [one for one in self.members.voters if one in peers and one in there]
        return sorted(fit, key=lambda one: (self._watch.has_room(one), peers[one]), reverse=True)

    def look_at_disk(self) -> None:
        """Hands the lead over where this disk is full or far slower than another voter's: to be called once a second.
        Raises ``StorageFailed``."""
        copy = self._copy
        if copy is None:
            return
        own, now = copy.opened.worst_disk_state(), self._clock.monotonic()
        better = self._watch.look(copy.replica.leads, own, self.heirs(), now)
        if better is not None:
            self.handed_over += 1
            _log.warning("the lead goes to node %s: %s", better.node, better.why)
            self._step(MoveLead(better.node))

    def welcome(self, hello: ReplicaHello) -> ReplicaWelcome:
        """The introduction of this node. Raises ``NotAuthorized`` for a node of another group, ``InvalidRequest`` for
        an incompatible version."""
        own = self.introduction
        if hello.speaks < SPEAKS_FROM or hello.speaks_from > SPEAKS:
            raise InvalidRequest(
                f"node {hello.node} speaks version {hello.speaks} of the replication and none before"
                f" {hello.speaks_from}; this one speaks {SPEAKS} and none before {SPEAKS_FROM}",
                hint="upgrade the older of the two by way of the versions in between",
            )
        if hello.group != own.group:
            raise NotAuthorized(f"this is a node of broker {own.group}, not of {hello.group}")
        if hello.cluster and own.cluster and hello.cluster != own.cluster:
            raise NotAuthorized(f"this is a node of another group that is called {own.group} too")
        if hello.node == own.node and hello.uuid != own.uuid:
            raise NotAuthorized(f"this node is called {own.node} too", hint="give each node a name of its own: --node")
        leader = self.members.get(self.leader)
        at = own.address if self.leads() else leader.address if leader else ""
        return ReplicaWelcome(own.cluster, own.node, own.uuid, at, own.clients, own.namesrv)

    def came(self, session: PeerSession) -> None:
        """Another node has proved who it is."""
        assert session.hello is not None
        self._sessions[session.hello.node] = session
        if self._ways is not None:
            self._ways.know(session.hello.address)

    def left(self, session: PeerSession) -> None:
        """Its connection has ended."""
        if session.hello is not None and self._sessions.get(session.hello.node) is session:
            del self._sessions[session.hello.node]

    def asked(self, session: PeerSession, request: Request, on_result: OnResult) -> None:
        """Handles a request of another node. Raises ``PenstockError``."""
        if isinstance(request, FetchLog):
            on_result(self._fetch(request))
        elif self._copy is None:
            raise Unavailable("this node is starting")
        elif isinstance(request, AddReplica):
            self._add(request)
            on_result(Done())
        elif session.hello is not None and isinstance(request, AskVote | TakeEntries | TakeLead):
            if isinstance(request, TakeLead):
                on_result(Done())
            elif isinstance(request, TakeEntries):
                self._committed = max(self._committed, request.committed)
            self._sessions[session.hello.node] = session  # a node that knows two addresses of this one has two
            self._step(Received(session.hello.node, session.hello.uuid, request))
            if isinstance(request, TakeEntries) and request.end > request.position:
                self._has_received = True
        else:
            raise UnknownRequest(f"the port for replicas does not serve {type(request).__name__}")

    def flush(self) -> None:
        """Ends the batch of one read."""
        if self._has_received and self._copy is not None:
            self._has_received = False
            self._copy.on_received()

    def _fetch(self, request: FetchLog) -> LogStretch:
        log = self.log
        if self._shown is None or log is None:
            raise Unavailable("this node is starting")
        until = min(log.committed, log.durable)
        start = self._shown[0].store.start
        if not start <= request.position < until:
            return LogStretch(request.position, 0, start, until)
        if request.is_raw:
            size = min(request.bytes_max, FETCH_BYTES_MAX, until - request.position)
            return LogStretch(request.position, 0, start, until, log.raw(request.position, size), is_raw=True)
        try:
            found = log.stretch(request.position, until, min(request.bytes_max, FETCH_BYTES_MAX))
        except BadPlace as bad:
            raise Damaged(f"this copy is damaged at position {bad.position} too") from None
        return LogStretch(request.position, found.before, start, until, found.data)

    def _add(self, request: AddReplica) -> None:
        if not self.leads():
            leader = self.members.get(self.leader)
            raise NotLeader("this node does not lead", hint=leader.address if leader else "")
        known = self.members.get(request.node)
        if known is not None and (known.uuid, known.address) == (request.uuid, request.address):
            return
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        self.change(lambda one: with_node(one, request.node, request.uuid, request.address), now, now_ms)
        _log.warning("node %s at %s joins the group, as an observer", request.node, request.address)

    # ------------------------------------------------------------ what operators ask (``replica.requests.Group``)

    def describe(self, now: float) -> Replicas:
        """The group as this node knows it."""
        own, copy = self.introduction, self._copy
        if copy is None:
            raise Unavailable("this node is starting")
        others = (one.node for one in self.members.nodes if one.node != own.node)
        clients = {own.node: own.clients, **{name: self._clients_of(name) for name in others}}
        damaged = len(copy.opened.store.damage)
        return described(copy.core, own.group, clients, now, damaged=damaged, repaired=self.repaired)

    def namesrv(self, own: tuple[str, ...]) -> tuple[str, ...]:
        """The name servers of this node, and of all nodes that it has met."""
        return tuple(dict.fromkeys((*own, *[one for one in self._namesrv if one not in self.introduction.namesrv])))

    def figures(self) -> dict[str, float]:
        """Gauges and counters of the replication."""
        if self._copy is None:
            return {}
        said = figures_of(self.describe(self._clock.monotonic()))
        return {**said, "penstock_replica_handed_over_total": self.handed_over} if said else {}

    @property
    def rank(self) -> Rank:
        """This node's place in its group, as its registration says."""
        copy = self._copy
        if copy is None:
            return Rank()
        return Rank(copy.core.role.epoch, not self.leads(), copy.replica.log.committed, self._log_id())

    def change(self, change: Change, now: float, now_ms: int) -> int:
        """Changes the members, while this node leads: see ``replica.requests.Group``."""
        copy = self._copy
        if copy is None or not copy.replica.leads:
            raise self.not_leader()
        before = self.members
        after = change(before)
        store = copy.opened.store
        if after == before:
            return store.written
        why = copy.replica.change_refusal(after)
        if why:
            raise Busy(f"the members cannot change now: {why}")
        store.log.hold_back(None)  # fewer copies may be what makes a quorum
        store.append([fact_record(members.TOPIC, MembersFold.fact(after))], now_ms)
        point = store.written
        self.appended()
        return point

    def move_lead(self, node: str, now: float) -> None:
        """Begins to move the lead to a voter."""
        if not self.leads():
            raise self.not_leader()
        if node == self.introduction.node:
            return
        if not self.members.is_voter(node):
            raise InvalidRequest(f"node {node} is no voter", hint="penstock replica promote makes it one")
        self._step(MoveLead(node))

    def force_lead(self, lost: tuple[str, ...], now: float) -> None:
        """Leads without a majority."""
        if self._copy is None:
            raise Unavailable("this node is starting")
        after = forced(self.members, self.introduction.node, lost)
        _log.warning("this node leads by force; %s are given up", ", ".join(lost))
        self._do(lambda replica, at: replica.force(after, at))

    def reasons(self) -> list[str]:
        """The reasons why it is not ready."""
        if self.leads() or (self.leader and self.leader != self.introduction.node):
            return []
        return [f"no leader of broker {self.introduction.group} is known here"]
