"""One leadership: the progress of its peers, the committed position by that, and whether a majority still answers.

Only frames of the leader's own epoch are committed by counting; earlier ones are committed with them (Figure 8 of
Raft's paper). So the leader begins with a frame of its own. There is no lease: to prove that this node leads *now*, a
caller begins a round and waits until a majority has answered it.
"""

from __future__ import annotations

from typing import Final

from broker.replica.commit_rule import agreed
from broker.replica.end_times import EndTimes
from broker.replica.epochs import begun_within
from broker.replica.events import Ask, Peer, Read, Timing, ToPeer
from broker.replica.members import why_not
from broker.replica.own_log import OwnLog
from broker.replica.progress import Progress
from penstock.protocol.requests.replicas import Members, TakeEntries, TakeLead, Taken

UNDER_WAY_MAX: Final = 1 << 20
"""Bytes that a node which is level may lack: they are on their way to it."""


class Leading:
    """A leader's knowledge of its group, in one epoch.

    Attributes:
        epoch: the leader's.
        first: where its first frame stands or will stand.
        round: the latest round of signs of life.
    """

    def __init__(self, node: str, epoch: int, log: OwnLog, timing: Timing, now: float) -> None:
        self.epoch = epoch
        self.first = log.end
        self.round = 0
        self._node = node
        self._log = log
        self._timing = timing
        self._peers: dict[str, Progress] = {}
        self._beat_at = now
        self._moves_to = ""
        self._moves_until = 0.0
        self._ends = EndTimes()
        self._ticked = now
        self.look(now)

    # ------------------------------------------------------------ committing

    @property
    def committed(self) -> int:
        """The committed position, by the disks of the nodes."""
        point = agreed(self._log.members, self._durables())
        return max(self._log.committed, point) if point > self.first else self._log.committed

    def _durables(self) -> dict[str, int]:
        return {self._node: self._log.durable, **{node: peer.durable for node, peer in self._peers.items()}}

    @property
    def is_settled(self) -> bool:
        """Whether something of this epoch is committed: only then the leader knows all that is."""
        return self._log.committed > self.first

    @property
    def confirmed(self) -> int:
        """The latest round that a majority has answered; 0 until the leader knows all that is committed."""
        if not self.is_settled:
            return 0
        rounds = sorted([self._round_of(node) for node in self._log.members.voters])
        return rounds[-(len(rounds) // 2 + 1)] if rounds else 0

    def _round_of(self, node: str) -> int:
        peer = self._peers.get(node)
        return peer.round if peer else self.round if node == self._node else 0

    def begin_round(self, now: float) -> int:
        """The next signs of life are a new round; they leave at once."""
        self.round += 1
        self._beat_at = now
        return self.round

    # ------------------------------------------------------------ presence of peers

    def look(self, now: float) -> None:
        """Brings the peers into line with the members."""
        names = [one.node for one in self._log.members.nodes if one.node != self._node]
        if list(self._peers) != names:
            self._peers = {name: self._peers.get(name) or Progress(self._log.end, now) for name in names}

    def has_majority(self, now: float) -> bool:
        """Whether a majority of voters was heard within the time of an election."""
        members = self._log.members
        return sum(self._is_there(node, now) for node in members.voters) >= members.majority

    def _is_there(self, node: str, now: float) -> bool:
        peer = self._peers.get(node)
        return now - peer.heard <= self._timing.election_s if peer else node == self._node

    def peers(self, now: float) -> list[Peer]:
        """The other nodes of the group, by name."""
        end = self._log.end
        return [
            Peer(node, one.durable, now - one.heard, self._ends.behind_s(one.durable, end, now))
            for node, one in self._peers.items()
        ]

    def refusal(self, now: float) -> str:
        """The reason why nothing can be appended now; empty if it can."""
        if self._moves_to:
            return f"the lead moves to {self._moves_to}"
        nodes = self._log.members.nodes
        there = sum(self._is_there(one.node, now) for one in nodes)
        if there < self._log.members.copies or not self.has_majority(now):
            return f"{there} of {len(nodes)} nodes are there"
        return ""

    def change_refusal(self, after: Members) -> str:
        """The reason why the members may not become these now; empty if they may."""
        before = self._log.members
        if self._moves_to:
            return f"the lead moves to {self._moves_to}"
        if not self.is_settled:
            return "the leader does not know the committed position yet"
        if self._log.has_open_change:
            return "another change is not committed yet"
        lacking = [one for one in set(after.voters) - set(before.voters) if not self._is_level(one)]
        return self._lack_of(lacking[0]) if lacking else why_not(before, after)

    def _lack_of(self, node: str) -> str:
        peer = self._peers.get(node)
        lacks = f"{self._log.committed - peer.durable:,} bytes" if peer else "all"
        return f"node {node} lacks {lacks} of the committed log: a voter has all of it"

    def _is_level(self, node: str) -> bool:
        """Whether it has everything that was committed an election time ago. Newer entries are on their way to it."""
        peer = self._peers.get(node)
        if peer is None or self._log.committed - peer.durable > UNDER_WAY_MAX:
            return False
        behind_s = self._ends.behind_s(peer.durable, self._log.committed, self._ticked)
        return behind_s <= self._timing.election_s

    # ------------------------------------------------------------ moving the lead

    def move(self, node: str, now: float) -> None:
        """A voter is to lead as soon as it has all of the log; given up after the time of an election."""
        self._moves_to = node if node in self._peers and self._log.members.is_voter(node) else ""
        self._moves_until = now + self._timing.election_s
        self._beat_at = now

    def _take_lead(self) -> ToPeer | None:
        peer = self._peers.get(self._moves_to)
        return ToPeer(self._moves_to, TakeLead(self.epoch)) if peer and peer.durable == self._log.end else None

    # ------------------------------------------------------------ sending

    def tick(self, now: float) -> list[ToPeer]:
        """The messages that are due."""
        self.look(now)
        self._ends.note(self._log.end, now)
        self._ticked = now
        if self._moves_to and now >= self._moves_until:
            self._moves_to = ""
        sent: list[ToPeer] = []
        is_beat = now >= self._beat_at
        if is_beat:
            self._beat_at = now + self._timing.heartbeat_s
            if message := self._take_lead():
                sent.append(message)
        for node, peer in self._peers.items():
            peer.look_after(now, self._timing.election_s)
            if is_beat or peer.probe_due:
                peer.probed()
                sent.append(ToPeer(node, self._entries(peer.known, peer.known)))
        return sent

    def asks(self) -> list[Ask]:
        """The parts to read for peers that have room."""
        end, window = self._log.end, self._timing.window_bytes
        return [Ask(node, peer.next) for node, peer in self._peers.items() if peer.is_due(end, window)]

    def read(self, event: Read) -> ToPeer | None:
        """Handles a stretch that was read for a peer; it is sent unless the peer is at another position by now."""
        peer = self._peers.get(event.peer)
        if peer is None or peer.is_probing or peer.next != event.position or event.end <= event.position:
            return None
        peer.sent(event.end)
        return ToPeer(event.peer, self._entries(event.position, event.end, event.body))

    def _entries(self, position: int, end: int, body: bytes = b"") -> TakeEntries:
        log = self._log
        return TakeEntries(
            self.epoch,
            self._node,
            position,
            log.epoch_at(position),
            end,
            log.committed,
            self.round,
            begun_within(log.epochs, position, end),
            tuple(one for one in log.changes if position <= one.position < end),
            body,
        )

    # ------------------------------------------------------------ messages of peers

    def taken(self, node: str, reply: Taken, now: float) -> None:
        """A peer has answered."""
        if peer := self._peers.get(node):
            peer.taken(reply, now)
            if node == self._moves_to and peer.durable == self._log.end:
                self._beat_at = now

    def lost(self, node: str, now: float) -> None:
        """Notes that messages on their way to a peer are lost."""
        if peer := self._peers.get(node):
            peer.lost(now)
