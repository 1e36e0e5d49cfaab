"""Named positions: how far subscriptions have come in the queues of their topic, kept as offsets of a consumer group.

A subscription with a name commits, for the group of that name, the offset after which nothing of it is unacknowledged:
a message counts with its PUBACK or PUBREC, one of QoS 0 when it is sent. Native consumers of the group begin there, and
whoever subscribes with the name begins where they ended. While a native consumer is a member of the group its queues
are its own: commits from here are refused by the broker, counted, and let go.

A commit goes out with the next tick, many offsets in one request; what is lost with a gateway is delivered again.
"""

from __future__ import annotations

from functools import partial

from gateway.brokers import Broker
from gateway.delivery import Blob
from gateway.envelope import Arrival
from gateway.session import Cursor, Session
from penstock.errors import PenstockError
from penstock.requests.groups import CommitOffsets, QueueOffset
from penstock.requests.request import Result


class Track:
    """One subscription in one queue: what was sent and not acknowledged, and the offset after all that was sent."""

    __slots__ = ("next", "unsettled")

    def __init__(self) -> None:
        self.unsettled: dict[int, None] = {}
        self.next = 0

    def position(self) -> int:
        """Where to begin if the subscription ended now."""
        return min(self.unsettled, default=self.next)


class NamedPositions:
    """All of one gateway."""

    def __init__(self) -> None:
        self._tracks: dict[Cursor, dict[str, Track]] = {}
        self._changed: dict[tuple[Broker, str], dict[str, int]] = {}
        self.commits = 0
        self.refused = 0

    def sent(self, cursor: Cursor, arrival: Arrival, qos: int) -> None:
        """A message of this cursor's subscription left, with this QoS."""
        tracks = self._tracks.get(cursor)
        if tracks is None:
            tracks = self._tracks[cursor] = {}
            session = cursor.session
            if session.settled is None:
                session.settled = {}
            session.settled[self] = partial(self._settled, session)
        queue, offset = arrival.queue, arrival.queue_offset
        track = tracks.get(queue)
        if track is None:
            track = tracks[queue] = Track()
        track.next = max(track.next, offset + 1)
        if qos:
            track.unsettled[offset] = None
        else:
            self._note(cursor, queue, track)

    def _settled(self, session: Session, made: Blob) -> None:
        queue, offset = made.arrival.queue, made.arrival.queue_offset
        for cursor in session.overlap.cursors:
            track = self._tracks.get(cursor, {}).get(queue)
            if track is not None and offset in track.unsettled:
                del track.unsettled[offset]
                self._note(cursor, queue, track)

    def _note(self, cursor: Cursor, queue: str, track: Track) -> None:
        group = (cursor.feed.broker, cursor.subscription.name)
        self._changed.setdefault(group, {})[queue] = track.position()

    def stop(self, cursor: Cursor) -> None:
        """The subscription is over, or its connection is."""
        self._tracks.pop(cursor, None)

    def commit(self) -> None:
        """Has the brokers keep what has changed; to be called about twice a second, and at the end."""
        changed, self._changed = self._changed, {}
        for (broker, name), offsets in changed.items():
            self.commits += 1
            rows = tuple([QueueOffset(queue, offset) for queue, offset in offsets.items()])
            broker.submit(CommitOffsets(name, "", 0, rows), partial(self._committed, broker, name, offsets))

    def _committed(self, broker: Broker, name: str, offsets: dict[str, int], result: Result) -> None:
        if isinstance(result, PenstockError):
            if result.retryable:
                self._changed[broker, name] = offsets | self._changed.get((broker, name), {})
            else:
                self.refused += 1
