"""Named positions: the progress of subscriptions in the queues of their topic, kept as offsets of a consumer group.

docs/protocols/named-positions.md has the rules. A subscription with a name reports the offset after which nothing of it
is unacknowledged: first its beginning in every queue, then as its client acknowledges and as its filter passes messages
(``gateway/delivery/filter_progress.py``). Of all subscriptions with a name the slowest decides, at this gateway here
and over all gateways at the broker (``broker/groups/holders.py``). A position that is set back, as by a native
consumer, is lost to the present subscriptions: they move it no more in that queue, until they are made again.

A message that a client gets through an older subscription of its session counts for one with a name too, when the
latter meets it in its own queue; if the older one is not there yet (``Left``), the position waits.

Invariants: a position never passes a message that was sent for one of its subscriptions and is not acknowledged, nor
one that is still to be sent for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from gateway.delivery.filter_progress import FilterProgress
from gateway.delivery.position_holds import UNKNOWN, Group, PositionHolds
from gateway.messages.envelope import Arrival
from gateway.messages.outgoing import Blob
from gateway.sessions.options import EVERY_QUEUE, NOW, OFFSET, Start
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from penstock.protocol.requests.groups import FetchOffsets, GroupOffsets, HeldOffsets, HoldOffsets, Progress
from penstock.protocol.requests.request import Result
from topicmap.names import matches

LEFT_MAX: Final = 256
"""Number of messages left to other subscriptions that are known one by one in a queue; those behind them are known
together."""


class Left(NamedTuple):
    """A message that another cursor of the session, its primary, is yet to deliver; or the last of several. ``offset``:
    in the own light queue."""

    primary: Cursor
    position: int
    offset: int

    def is_open(self, cursor: Cursor) -> bool:
        """Whether it is still to be delivered, by the primary or, where that does not come to it any more, by the
        cursor itself."""
        primary = self.primary
        if primary.next < 0 or self.position < primary.start:
            return cursor.next <= self.offset
        return primary.reached < self.position


class Track:
    """One subscription in one queue: the offset after all that it has passed, ``UNKNOWN`` if its beginning is unknown;
    what of it is not acknowledged, with the filter through which it went; what is left to others."""

    __slots__ = ("left", "next", "unsettled")

    def __init__(self, begin: int = UNKNOWN) -> None:
        self.unsettled: dict[int, str] = {}
        self.left: dict[int, Left] = {}
        self.next = begin

    def floor(self) -> int:
        """The offset to begin at if the subscription ended now."""
        return min(self.next, min(self.unsettled, default=self.next), min(self.left, default=self.next))

    def come_past(self, offset: int) -> None:
        self.next = max(self.next, offset)

    def leave(self, offset: int, left: Left) -> None:
        """A message is left to another one: with those before it, where there are many."""
        if len(self.left) >= LEFT_MAX:
            for first in reversed(self.left):
                before = self.left[first]
                if before.primary is left.primary and first < offset and before.position < left.position:
                    self.left[first] = left
                    return
        self.left[offset] = left

    def take_over(self, offset: int, arrival: Arrival) -> None:
        """It has delivered a message itself, also where that was left to another one."""
        left = self.left.get(offset)
        if left is not None and left.position == arrival.position:
            del self.left[offset]
        self.come_past(offset + 1)

    def go_back(self) -> None:
        """Takes back messages that were left to others: they are not sent for it any more."""
        self.next = min(self.next, min(self.left, default=self.next))
        self.left = {}


class Course:
    """The way of one subscription, also after it has ended (``is_over``), as long as something that was sent is not
    acknowledged. ``void``: queues in which the position was set back since it began. ``begin``: where it began
    in queues that it has not met yet: they had nothing, if it has begun here. ``is_cut_off``: the broker had closed its
    filter, and it has not gone on yet."""

    __slots__ = ("begin", "group", "is_cut_off", "is_over", "session", "tracks", "void")

    def __init__(self, group: Group, session: Session) -> None:
        self.group = group
        self.session = session
        self.begin = UNKNOWN
        self.is_over = False
        self.is_cut_off = False
        self.tracks: dict[str, Track] = {}
        self.void: set[str] = set()

    def track(self, queue: str) -> Track | None:
        """Its track in a queue, if it has a say there."""
        if queue in self.void:
            return None
        track = self.tracks.get(queue)
        if track is None:
            track = self.tracks[queue] = Track(self.begin)
        return track

    @property
    def is_settled(self) -> bool:
        """Whether all that was sent is acknowledged."""
        return not any([track.unsettled for track in self.tracks.values()])


class NamedPositions:
    """All of one gateway, which brokers know as ``holder``. ``is_coming`` says whether a subscription does not stand
    yet: its name counts only when it does, and until then the one that it replaces."""

    def __init__(
        self,
        holder: str,
        topic_of: Callable[[str], str | None],
        is_coming: Callable[[Subscription], bool],
        wake: Callable[[], None],
    ) -> None:
        self._topic_of = topic_of
        self._is_coming = is_coming
        self._wake = wake
        self._has_last_words = False
        self._holds = PositionHolds(holder, self._floor, self._set_back)
        self._passing = FilterProgress(topic_of, self._found, self._passed)
        self._courses: dict[Cursor, Course] = {}  # of subscriptions that stand
        self._of_session: dict[Session, dict[Course, None]] = {}  # the others, too
        self._of_group: dict[Group, dict[Course, None]] = {}
        self._leaving: dict[Cursor, None] = {}  # they have left messages to others

    @property
    def commits(self) -> int:
        """How often changes were reported to brokers."""
        return self._holds.commits

    @property
    def refused(self) -> int:
        """How often that was refused."""
        return self._holds.refused

    # ------------------------------------------------------------ where subscriptions begin

    def find(
        self, cursor: Cursor, name: str, queues: Iterable[str]
    ) -> tuple[HoldOffsets | FetchOffsets, Callable[[Result], Result]]:
        """What asks where the position of this name is in these queues, for a subscription that is about to begin, and
        what makes the answer (``HeldOffsets``) of the result. One that has given up the name meanwhile goes on from
        there and holds nothing."""
        course = self._course_so_far(cursor)
        if course is None or course.group[1] != name:
            return FetchOffsets(name, tuple(queues)), _as_held
        return self._holds.ask(course.group, course, queues)

    def begin(self, cursor: Cursor, name: str, offsets: Mapping[str, int]) -> None:
        """A subscription begins at these offsets; the whole position is kept from now on, not only where something
        comes. What it was sent before, under this name, it still has to acknowledge. One that has given up the name
        meanwhile has no part in it."""
        course = self._courses.get(cursor)
        if course is None or course.group[1] != name:
            return
        course.void.clear()
        course.begin = 0
        for queue, offset in offsets.items():
            track, before = Track(offset), course.tracks.get(queue)
            if before is not None:
                track.unsettled, track.left = before.unsettled, before.left
            course.tracks[queue] = track
        self._holds.begun(course.group, course)
        self._holds.stir(course.group, offsets)

    def resume(self, session: Session) -> None:
        """Keeps the positions before messages that an earlier connection of the session was sent and has not
        acknowledged. A subscription that is owed history is no further than that."""
        named = [cursor for cursor in session.overlap.cursors if cursor.subscription.name]
        has_come = {cursor: cursor.left_owed(is_history=True) is None for cursor in named}
        for cursor in named:
            self._course(cursor)
        for _, made in session.sent() if named else ():
            arrival = made.arrival
            for cursor in named:
                if _counts(cursor, arrival):
                    is_own = has_come[cursor] and _way(arrival) == cursor.subscription.filter
                    self.sent(cursor, arrival, made.qos, is_own=is_own)

    def opens_anew(self, cursor: Cursor) -> None:
        """The broker had closed its filter: where it was about to begin it asks again when that is open."""
        course = self._courses.get(cursor)
        if course is not None:
            self._passing.stop(cursor)
            self._holds.begun(course.group, course)
            course.is_cut_off = True
            for track in course.tracks.values():
                track.go_back()  # what another one of its session delivers from now on no longer counts for it

    def reads(self, cursor: Cursor) -> None:
        """It reads its queue, again or for the first time: one of a session that was away has a say in all queues of
        its topic as soon as these are known."""
        if cursor in self._courses:
            self._passing.look(cursor)

    def behind(self, cursor: Cursor) -> tuple[Start, str] | None:
        """Where a subscription goes on, and in which topic, whose filter was not opened for its SUBSCRIBE: at a broker
        that joined later at its position there, and so does one of QoS 0 of a session that was away, for which nothing
        was kept; where it had been closed, behind what it had come past."""
        subscription = cursor.subscription
        topic = self._topic_of(subscription.filter) if subscription.name else None
        if topic is None or self._is_coming(subscription):
            return None
        course = self._courses.get(cursor)
        has_place = cursor.seen >= 0 or (cursor.is_resumed and subscription.qos > 0)
        if not has_place and (course is None or course.begin == UNKNOWN):
            return Start(NOW, name=subscription.name), topic
        if course is None:
            return None
        known = [
            (int(queue.rpartition(":")[2]), track.next)
            for queue, track in course.tracks.items()
            if track.next != UNKNOWN
        ]
        if course.begin != UNKNOWN and not course.void:
            known.append((EVERY_QUEUE, course.begin))
        if not course.is_cut_off or not known:
            return None
        course.is_cut_off = False
        return Start(OFFSET, offsets=tuple(known)), topic

    def _course(self, cursor: Cursor) -> Course:
        group = (cursor.feed.broker, cursor.subscription.name)
        course = self._courses.get(cursor)
        if course is None or course.group != group:
            self.unsubscribed(cursor)
            session = cursor.session
            course = self._courses[cursor] = Course(group, session)
            self._of_session.setdefault(session, {})[course] = None
            self._of_group.setdefault(group, {})[course] = None
            self._holds.keep(group)
            session.tell_settled(self, partial(self._settled, session))
        return course

    def _course_so_far(self, cursor: Cursor) -> Course | None:
        """While a subscription does not stand, that of the one before it; ``None`` where that has no name."""
        subscription = cursor.subscription
        if not subscription.name or self._is_coming(subscription):
            return self._courses.get(cursor)
        return self._course(cursor)

    # ------------------------------------------------------------ how far they come

    def sent(self, cursor: Cursor, arrival: Arrival, qos: int, *, is_own: bool) -> None:
        """A message left for this cursor's subscription, with this QoS; ``is_own``: it has come to it by itself."""
        course = self._course_so_far(cursor)
        queue, offset = arrival.queue, arrival.queue_offset
        track = course.track(queue) if course is not None else None
        if course is None or track is None:
            return
        if qos:
            track.unsettled[offset] = _way(arrival)
        if is_own:
            track.take_over(offset, arrival)
        self._holds.stir(course.group, (queue,))

    def left(self, cursor: Cursor, primary: Cursor, arrival: Arrival) -> None:
        """A cursor has come to a message that another one of its session delivers, or has delivered."""
        course = self._course_so_far(cursor)
        queue, offset = arrival.queue, arrival.queue_offset
        track = course.track(queue) if course is not None else None
        if course is None or track is None:
            return
        left = Left(primary, arrival.position, arrival.offset)
        if left.is_open(cursor):
            track.leave(offset, left)
            self._leaving[cursor] = None
        track.come_past(offset + 1)
        self._holds.stir(course.group, (queue,))

    def _look_after_left(self) -> None:
        """Sees which messages that were left to others these have come to meanwhile."""
        for cursor in list(self._leaving):
            course = self._courses[cursor]
            for queue, track in course.tracks.items():
                if track.left:
                    track.left = {offset: one for offset, one in track.left.items() if one.is_open(cursor)}
                    self._holds.stir(course.group, (queue,))
            if not any([track.left for track in course.tracks.values()]):
                del self._leaving[cursor]

    def _settled(self, session: Session, made: Blob) -> None:
        arrival = made.arrival
        queue, offset, way = arrival.queue, arrival.queue_offset, _way(arrival)
        for course in list(self._of_session.get(session, ())):
            track = course.tracks.get(queue)
            if track is not None and track.unsettled.get(offset) == way:
                del track.unsettled[offset]
                self._holds.stir(course.group, (queue,))
                if course.is_over and course.is_settled:
                    self._end(course)

    def _found(self, cursor: Cursor, queues: Iterable[str]) -> None:
        """It has a say in all of these, also where nothing comes to it: subscriptions that are further wait for it."""
        course = self._courses[cursor]
        for queue in queues:
            course.track(queue)
        self._holds.stir(course.group, queues)

    def _passed(self, cursor: Cursor, ends: Mapping[str, int]) -> None:
        course = self._courses[cursor]
        for queue, end in ends.items():
            track = course.track(queue)
            if track is not None:
                track.come_past(end)
        self._holds.stir(course.group, ends)

    def _set_back(self, group: Group, queue: str) -> None:
        for course in list(self._of_group.get(group, ())):
            course.tracks.pop(queue, None)
            course.void.add(queue)
            if course.is_over and course.is_settled:
                self._end(course)
        self._holds.stir(group, (queue,))

    def _floor(self, group: Group, queue: str) -> int | None:
        """How far the subscription of a name that has come least far has come."""
        courses = self._of_group.get(group, ())
        return min([course.tracks[queue].floor() for course in courses if queue in course.tracks], default=None)

    # ------------------------------------------------------------ how they end

    def replaced(self, cursor: Cursor) -> None:
        """The subscription has other options: the position that it had moves by it no more, if it has another name."""
        course, subscription = self._courses.get(cursor), cursor.subscription
        subscription.counts = bool(subscription.name)
        if course is not None and course.group != (cursor.feed.broker, subscription.name):
            self.unsubscribed(cursor)

    def unsubscribed(self, cursor: Cursor) -> None:
        """The subscription is over, the connection is not: what was sent and is not acknowledged still counts. What was
        left to others is not sent for it any more: there the position ends."""
        course = self._courses.get(cursor)
        if course is None or course.is_settled:
            self.stop(cursor)
            return
        self._forget(cursor, course)
        course.is_over = True
        for track in course.tracks.values():
            track.go_back()

    def stop(self, cursor: Cursor) -> None:
        """The subscription is over, or its connection is."""
        course = self._courses.get(cursor)
        if course is not None:
            self._forget(cursor, course)
            self._end(course)

    def leave(self, session: Session) -> None:
        """The connection is over: nothing is acknowledged any more."""
        for course in list(self._of_session.get(session, ())):
            self._end(course)

    def _forget(self, cursor: Cursor, course: Course) -> None:
        del self._courses[cursor]
        self._leaving.pop(cursor, None)
        self._passing.stop(cursor)
        self._holds.begun(course.group, course)

    def _end(self, course: Course) -> None:
        """Its last report counts; from then on it holds no other back."""
        group = course.group
        self._holds.work_out(group)
        for courses in (self._of_session[course.session], self._of_group[group]):
            del courses[course]
        if not self._of_session[course.session]:
            del self._of_session[course.session]
        if self._of_group[group]:
            self._holds.stir(group, course.tracks)
        else:
            del self._of_group[group]
            self._holds.leave(group)
            self._has_last_words = True
            self._wake()

    # ------------------------------------------------------------ time

    def commit(self) -> None:
        """Has the brokers keep the changes; to be called about twice a second."""
        self._look_after_left()
        self._holds.flush()

    def flush(self) -> None:
        """What names no subscription has any more goes at once, however many they are: a gateway may be about to end;
        to be called once per round."""
        if self._has_last_words:
            self._has_last_words = False
            self._holds.flush()

    def tick(self, now: float) -> None:
        """What ``commit`` does, and a few times per lease all that keeps the positions."""
        if self._holds.is_time(now):
            for cursor in list(self._courses):
                self._passing.look(cursor)
            self._holds.beat()
        self.commit()


def _as_held(result: Result) -> Result:
    if not isinstance(result, GroupOffsets):
        return result
    return HeldOffsets(tuple([Progress(queue, offset, 0) for queue, offset in result.offsets]))


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
