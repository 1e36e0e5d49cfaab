"""Named positions: how far subscriptions have come in the queues of their topic, kept as offsets of a consumer group.

A subscription with a name commits, for the group of that name, the offset after which nothing of it is unacknowledged:
first where it begins, in every queue of the topic, then as its client acknowledges. A message counts with its PUBACK or
PUBREC, one of QoS 0 when it is sent, and only for the subscription that it was sent for. Where several subscriptions
of this gateway have the same name, the one that has come least far decides. Native consumers of the group begin there,
and whoever subscribes with the name begins where they ended. While a native consumer is a member of the group its
queues are its own: commits from here are refused by the broker, counted, and let go.

A commit goes out with the next tick, many offsets in one request; what is lost with a gateway is delivered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gateway.brokers import Broker
from gateway.delivery import Blob
from gateway.envelope import Arrival
from gateway.session import Cursor, Session
from penstock.errors import PenstockError
from penstock.requests.groups import CommitOffsets, QueueOffset
from penstock.requests.request import Result
from topicmap.names import matches

Group = tuple[Broker, str]


class Track:
    """One subscription in one queue: the offset after all that was sent, and what of it is not acknowledged, with the
    filter through which it went."""

    __slots__ = ("next", "unsettled")

    def __init__(self, begin: int) -> None:
        self.unsettled: dict[int, str] = {}
        self.next = begin

    def position(self) -> int:
        """Where to begin if the subscription ended now."""
        return min(self.unsettled, default=self.next)


class NamedPositions:
    """All of one gateway."""

    def __init__(self) -> None:
        self._tracks: dict[Group, dict[Cursor, dict[str, Track]]] = {}
        self._group_of: dict[Cursor, Group] = {}
        self._stirred: dict[Group, dict[str, None]] = {}  # queues whose position has to be worked out again
        self._changed: dict[Group, dict[str, int]] = {}
        self.commits = 0
        self.refused = 0

    def begin(self, cursor: Cursor, offsets: Mapping[str, int]) -> None:
        """A subscription begins at these offsets; the whole position is kept from now on, not only where something
        comes."""
        tracks = self._tracks_of(cursor)
        for queue, offset in offsets.items():
            tracks[queue] = Track(offset)
            self._note(self._group_of[cursor], queue)

    def resume(self, session: Session) -> None:
        """What an earlier connection of the session was sent, and is not acknowledged, stays before its positions."""
        named = [cursor for cursor in session.overlap.cursors if cursor.subscription.name]
        for _, made in session.sent() if named else ():
            for cursor in named:
                if _counts(cursor, made.arrival):
                    self.sent(cursor, made.arrival, made.qos)

    def sent(self, cursor: Cursor, arrival: Arrival, qos: int) -> None:
        """A message left for this cursor's subscription, with this QoS."""
        tracks, queue, offset = self._tracks_of(cursor), arrival.queue, arrival.queue_offset
        track = tracks.get(queue)
        if track is None:
            track = tracks[queue] = Track(offset)
        track.next = max(track.next, offset + 1)
        if qos:
            track.unsettled[offset] = _way(arrival)
        else:
            self._note(self._group_of[cursor], queue)

    def _tracks_of(self, cursor: Cursor) -> dict[str, Track]:
        group = (cursor.feed.broker, cursor.subscription.name)
        if self._group_of.get(cursor) != group:
            self.stop(cursor)
            self._group_of[cursor] = group
            self._tracks.setdefault(group, {})[cursor] = {}
            cursor.session.tell_settled(self, partial(self._settled, cursor.session))
        return self._tracks[group][cursor]

    def _settled(self, session: Session, made: Blob) -> None:
        arrival = made.arrival
        queue, offset, way = arrival.queue, arrival.queue_offset, _way(arrival)
        for cursor in session.overlap.cursors:
            group = self._group_of.get(cursor)
            track = self._tracks[group][cursor].get(queue) if group is not None else None
            if group is not None and track is not None and track.unsettled.get(offset) == way:
                del track.unsettled[offset]
                self._note(group, queue)

    def _note(self, group: Group, queue: str) -> None:
        self._stirred.setdefault(group, {})[queue] = None

    def _work_out(self, group: Group) -> None:
        """How far the subscription of a name that has come least far has come, where anything has changed."""
        tracks = self._tracks[group].values()
        for queue in self._stirred.pop(group, ()):
            positions = [track[queue].position() for track in tracks if queue in track]
            self._changed.setdefault(group, {})[queue] = min(positions)

    def replaced(self, cursor: Cursor) -> None:
        """The subscription has other options: the position that it had moves by it no more, if it has another name."""
        if self._group_of.get(cursor) != (cursor.feed.broker, cursor.subscription.name):
            self.stop(cursor)

    def stop(self, cursor: Cursor) -> None:
        """The subscription is over, or its connection is."""
        group = self._group_of.pop(cursor, None)
        if group is not None:
            self._work_out(group)
            del self._tracks[group][cursor]
            if not self._tracks[group]:
                del self._tracks[group]

    def commit(self) -> None:
        """Has the brokers keep what has changed; to be called about twice a second, and at the end."""
        for group in list(self._stirred):
            self._work_out(group)
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


def _way(arrival: Arrival) -> str:
    """The filter through which a message came to its session: a message of several has a copy of its own for each
    history."""
    return arrival.origin.filter if arrival.origin is not None else ""


def _counts(cursor: Cursor, arrival: Arrival) -> bool:
    """Whether a message on its way is of this cursor's subscription, too: one that came live through another one may
    be."""
    origin, filter = arrival.origin, cursor.subscription.filter
    if origin is None or origin.broker is not cursor.feed.broker:
        return False
    has_begun = cursor.next >= 0 and arrival.position >= cursor.start and origin.is_light
    return origin.filter == filter or (has_begun and matches(filter, arrival.name))
