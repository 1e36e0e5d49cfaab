"""A leader's view of one peer: its log, the entries on their way to it, and the time of its last message.

*Probing*: the leader looks for the position where the logs part, with one empty message at a time. *Streaming*: it
sends new entries at once, as far as the window has room, without waiting for earlier answers.
"""

from __future__ import annotations

from penstock.protocol.requests.replicas import Taken


class Progress:
    """One peer, as its leader knows it.

    Attributes:
        durable: its disk has the leader's log up to there.
        next: the position at which its next entries begin.
        heard: when it answered last.
        round: the latest round of signs of life that it has answered.
        is_probing: whether the leader does not know yet up to where the logs are equal.
    """

    def __init__(self, position: int, now: float) -> None:
        self.durable = 0
        self.next = position
        self.heard = now
        self.round = 0
        self.is_probing = True
        self._waits = False  # for the answer to a probe
        self._moved = now  # when its answers last brought it on

    @property
    def known(self) -> int:
        """Up to there the logs are equal, or are to be compared."""
        return self.next if self.is_probing else self.durable

    @property
    def probe_due(self) -> bool:
        """Whether a probe is to be sent at once."""
        return self.is_probing and not self._waits

    def is_due(self, end: int, window_bytes: int) -> bool:
        """Whether more of the log may be sent."""
        return not self.is_probing and self.next < end and self.next - self.durable < window_bytes

    def probed(self) -> None:
        """A probe is on its way."""
        self._waits = True

    def sent(self, end: int) -> None:
        """Notes that everything before ``end`` is on its way."""
        self.next = end

    def taken(self, reply: Taken, now: float) -> None:
        """The peer has answered in the leader's epoch."""
        self.heard = now
        self.round = max(self.round, reply.round)
        if reply.conflict >= 0:
            self.durable = min(self.durable, reply.durable)  # an old answer, or its disk has lost some: the next tells
            before, was_probing = self.next, self.is_probing
            self._probe(max(self.durable, min(reply.conflict, self.next)), now)
            self._waits = was_probing and self.next == before  # nothing new to ask: the next sign of life does
        elif reply.durable > self.durable or self.is_probing:
            self.is_probing = self._waits = False
            self.durable = max(self.durable, reply.durable)
            self.next = max(self.next, self.durable)
            self._moved = now

    def look_after(self, now: float, patience_s: float) -> None:
        """Handles the passing of time: entries without an answer within ``patience_s`` count as lost."""
        if self.next == self.durable and not self.is_probing:
            self._moved = now
        elif now - self._moved > patience_s:
            self.lost(now)

    def lost(self, now: float) -> None:
        """Notes that entries on their way are lost."""
        self._probe(self.known, now)

    def _probe(self, position: int, now: float) -> None:
        self.next = position
        self.is_probing, self._waits = True, False
        self._moved = now
