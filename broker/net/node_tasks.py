"""The tasks of a node of a group: they repair its log, tick its core, sync the log and scrub it for damage.

A run of the node begins with the log on its disk: other nodes send damaged parts first, then the core begins. The run
ends with the process, or when the log is behind the beginning of all others: then the node fetches a whole copy and
begins again. The reasons: decisions 86 and 87.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from broker.net.flusher import Flusher
from broker.net.lead import Lead
from broker.net.node import Node, RunningCopy
from broker.net.office import NodeOffice, OpenLog
from broker.net.peers import ASK_S, MEND_S, Peers, ask
from broker.net.whole_copy import copy_whole
from broker.replica.core import Core
from broker.replica.events import Timing
from broker.replica.hard_state import HardStateFile
from broker.replica.log_face import HardState, Stretch
from broker.replica.own_log import OwnLog
from broker.replica.repair import Repair
from broker.replica.replica import Replica
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.disk import Disk
from penstock.errors import InvalidConfig, InvalidRequest, NotLeader, PenstockError
from penstock.protocol.requests.replicas import AddReplica, FetchLog, LogStretch, Member, Members, MembersAt
from penstock.world import World

TICK_S: Final = 0.05
JOIN_S: Final = 0.5
LOOK_S: Final = 1.0
"""How often a node looks whether it is too far behind, and goes over a little of its log."""

_log = logging.getLogger(__name__)


class TooFarBehind(Exception):
    """This node needs a whole copy of the log."""


class GroupNode:
    """The tasks of one node of a group.

    Args:
        peers: its connections to other nodes.
        offload: runs a sync beside the loop.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        world: World,
        disk: Disk,
        state: BrokerState,
        opened: OpenLog,
        file: HardStateFile,
        hard: HardState,
        node: Node,
        peers: Peers,
        lead: Lead,
        flusher: Flusher,
        on_role: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._world = world
        self._disk = disk
        self._state = state
        self._opened = opened
        self._file = file
        self._hard = hard
        self._node = node
        self._peers = peers
        self._lead = lead
        self._flusher = flusher
        self._on_role = on_role
        self._repair = Repair(opened.store)
        self._looked_at = -1  # where the log ended at the last look
        self._is_level = True

    async def run(self, offload: Any, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Lives until cancelled. Started when its first core has begun. Raises ``StorageFailed``, and ``InvalidConfig``
        where the group does not take this node."""
        while True:
            try:
                async with trio.open_nursery() as life:
                    await self._begin()
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    life.start_soon(self._flusher.run, self._lead, offload)
                    life.start_soon(self._tick)
                    life.start_soon(self._look)
                    life.start_soon(self._look_at_disk)
                    life.start_soon(self._keep_joined)
            except* TooFarBehind:
                self._node.end()
                self._lead.let_go()
                self._opened.let_go()
                await copy_whole(self._settings, self._disk, self._peers, self._world)
                self._opened.begin_anew()
                self._lead.follow(self._opened.store)

    async def _begin(self) -> None:
        """Repairs the log, then begins the core."""
        log = self._opened.follower()
        self._repair = Repair(self._opened.store)
        self._node.show(self._opened, log)
        while not self._repair.is_sound:
            if await self._mend():
                log.repaired()
            else:
                await trio.sleep(MEND_S)
        settings, clock = self._settings, self._world.clock
        changes = log.changes or self._founders()
        own = OwnLog(log.end, log.durable, log.committed, log.epochs if log.end else [], changes)
        timing = Timing(settings.election_s, settings.election_s / 10, settings.election_s / 5)
        hard = self._file.load() or self._hard
        core = Core(hard, own, timing, self._world.rng, clock.monotonic())
        node = self._node
        office = NodeOffice(
            self._opened,
            self._state,
            self._lead,
            clock,
            self._world.rng,
            node.not_leader,
            lambda: core.log.members,
            self._on_role,
        )
        need = partial(self._flusher.need, is_waited_for=True, is_whole=True)
        node.begin(RunningCopy(self._opened, core, Replica(core, log, self._file, office), office, need))

    def _founders(self) -> list[MembersAt]:
        """The members of a group that begins: this node, unless it is to join others. Files of the log have the size
        that its first node's settings say, independent of the leader."""
        own = self._node.introduction
        if self._settings.join:
            return []
        return [MembersAt(-1, Members((Member(own.node, own.uuid, own.address),), 1, self._settings.segment_bytes))]

    async def _mend(self) -> bool:
        """Asks other nodes for the first bad place. Returns whether something is good again."""
        wanted = self._node.wanted(self._repair)
        if wanted is None:
            return False
        for link in self._peers.there:
            try:
                found = await ask(link, wanted, ASK_S)
                if isinstance(found, LogStretch) and found.body:
                    return self._write_again(found)
            except PenstockError as error:
                _log.info("no repair from %s: %s", link.address, error)
        return False

    def _write_again(self, found: LogStretch) -> bool:
        """Raises ``ProtocolError``, ``StorageFailed``."""
        log = self._node.log
        assert log is not None, "it is shown before anything of it is repaired"
        stretch = Stretch(found.position, found.before, bytes(found.body))
        before = log.epoch_at(found.position)
        is_better = self._repair.take(stretch, before) > found.position
        if is_better:
            self._node.count_repair()
            _log.warning("the log is repaired from position %d on, from another node", found.position)
        return is_better

    async def _tick(self) -> None:
        node, lead = self._node, self._lead
        while True:
            node.tick()
            lead.hold_back(node.refusal())
            lead.refuse(node.not_leader())
            await trio.sleep(min(TICK_S, self._settings.election_s / 20))

    async def _look(self) -> None:
        """Looks again and again whether the log is damaged, and whether this node is too far behind."""
        while True:
            await trio.sleep(LOOK_S)
            if self._repair_is_old():
                self._repair = Repair(self._opened.store)
            repair, replica = self._repair, self._node.replica
            repair.scrub()
            if repair.wanted() is not None and await self._mend() and replica is not None:
                if not self._node.leads():
                    replica.log.repaired()
                if repair.is_sound:
                    self._node.repair()
            await self._look_behind()

    async def _look_at_disk(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            self._node.look_at_disk()

    def _repair_is_old(self) -> bool:
        return self._repair.store is not self._opened.store

    async def _look_behind(self) -> None:
        """Raises ``TooFarBehind``."""
        replica, node = self._node.replica, self._node
        end = replica.log.end if replica else -1
        was_there, self._looked_at = self._looked_at, end
        link = self._peers.to(node.leader)
        if node.leads() or not node.lag or end != was_there or link is None:
            return
        try:
            found = await ask(link, FetchLog(end, 1), ASK_S)
        except PenstockError:
            return
        if isinstance(found, LogStretch) and found.start > end:
            _log.warning("the leader's log begins at %d, and this copy ends at %d: all of it comes", found.start, end)
            raise TooFarBehind

    # ------------------------------------------------------------ the group

    async def _keep_joined(self) -> None:
        """Asks the leader to let this node in, until it does; says when its copy is level."""
        node = self._node
        while True:
            await trio.sleep(JOIN_S)
            own, replica = node.introduction, node.replica
            me = node.members.get(own.node)
            if me is not None and me.uuid != own.uuid:
                raise _made_anew(own.node)
            if me is None or (me.address != own.address and not node.leads()):
                await self._ask_in()
                self._is_level = False
            elif replica is not None:
                self._learn_cluster(replica)
                self._say_level(replica)

    def _learn_cluster(self, replica: Replica) -> None:
        known = next((link.welcome.cluster for link in self._peers.there if link.welcome and link.welcome.cluster), "")
        if known and not replica.state.cluster:
            replica.joined(known)
            self._node.learn_cluster(known)

    def _say_level(self, replica: Replica) -> None:
        if not self._is_level and replica.log.committed and not self._node.lag:
            self._is_level = True
            _log.warning("node %s is level: it has all of the log", self._node.introduction.node)

    async def _ask_in(self) -> None:
        own = self._node.introduction
        for link in self._peers.there:
            try:
                await ask(link, AddReplica(own.node, own.uuid, own.address), ASK_S)
            except NotLeader as error:
                self._peers.know(error.leader)
            except InvalidRequest as error:
                if self._node.members.get(own.node) is None:
                    raise InvalidConfig(error.message, hint=error.hint) from None
                _log.warning("the group does not take this node's address: %s", error)
            except PenstockError as error:
                _log.info("%s does not let this node in: %s", link.address, error)


def _made_anew(node: str) -> InvalidConfig:
    return InvalidConfig(
        f"the group knows node {node} with another data folder: this one was made anew",
        hint="give this node another name, and let it replace the lost one: penstock replica replace",
    )
