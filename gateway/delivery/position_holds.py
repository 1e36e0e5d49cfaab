"""Reports of this gateway to the brokers about its named positions (``HoldOffsets``).

A report has the progress of each name in all queues. It leaves when that has changed, and a few times per lease. The
broker moves the position to the progress of the slowest gateway and answers with it. A subscription that is about to
begin asks for the position; from then until it has begun the position is held in the queues of its topic. One report of
a name is under way at a time. After the loss of a gateway messages are delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from gateway.brokers import Broker
from penstock.errors import Busy, LogReplaced, PenstockError, Unavailable
from penstock.protocol.requests.groups import HeldOffsets, HoldOffsets, Progress
from penstock.protocol.requests.request import Result

LEASE_S: Final = 15.0
UNKNOWN: Final = -1
"""An unknown progress: the position has to stay where it is."""

ROWS_MAX: Final = 16_384
"""Number of rows in a report; the others come next. At two goes a second that is room in a lease for 30 times as
many, such as 480 names of a topic with 1024 queues."""

Group = tuple[Broker, str]

_log = logging.getLogger(__name__)


class Hold:
    """One name at one broker.

    Attributes:
        floors: by queue, the offset before which nothing is unacknowledged.
        stirred: queues of which that has to be worked out again.
        told: what the broker was told last, ``None`` if it has to be told in any case.
        set_backs: how often the position was set back, by the broker's last answer.
        log_id: the log in which all these offsets are, by the broker's first answer; empty while that is not known.
        beginning: subscriptions that have asked where to begin, and in which queues.
        is_asking: a report is under way.
        is_over: no subscription has the name any more; the last word is to be said.
        wants_beat: the lease is to be renewed.
    """

    __slots__ = ("beginning", "floors", "is_asking", "is_over", "log_id", "set_backs", "stirred", "told", "wants_beat")

    def __init__(self) -> None:
        self.floors: dict[str, int] = {}
        self.stirred: dict[str, None] = {}
        self.told: dict[str, int] | None = None
        self.set_backs: dict[str, int] = {}
        self.log_id = ""
        self.beginning: dict[object, tuple[str, ...]] = {}
        self.is_asking = False
        self.is_over = False
        self.wants_beat = False

    def saying(self) -> dict[str, int]:
        """The report to send."""
        return self.floors | {queue: UNKNOWN for queues in self.beginning.values() for queue in queues}

    def progress(self, saying: Mapping[str, int]) -> tuple[Progress, ...]:
        """The rows that tell it."""
        return tuple([Progress(queue, floor, self.set_backs.get(queue, 0)) for queue, floor in saying.items()])


class PositionHolds:
    """All of one gateway, which brokers know as ``holder``. ``floor`` says how far the subscriptions of a name have
    come in a queue, ``None`` if none has a say. ``set_back`` is called when a position was set back.
    ``commits`` and ``refused`` count reports of changes."""

    def __init__(
        self, holder: str, floor: Callable[[Group, str], int | None], set_back: Callable[[Group, str], None]
    ) -> None:
        self._holder = holder
        self._floor = floor
        self._set_back = set_back
        self._holds: dict[Group, Hold] = {}
        self._due: dict[Group, None] = {}
        self._beaten_at = 0.0
        self.commits = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._holds)

    def keep(self, group: Group) -> None:
        """A subscription has this name."""
        hold = self._holds.get(group)
        if hold is None:
            hold = self._holds[group] = Hold()
        hold.is_over = False

    def stir(self, group: Group, queues: Iterable[str]) -> None:
        """How far a name has come in these queues may have changed."""
        hold = self._holds.get(group)
        if hold is not None:
            hold.stirred.update(dict.fromkeys(queues))
            self._due[group] = None

    def work_out(self, group: Group) -> None:
        """Sees how far the subscriptions of a name have come by now."""
        hold = self._holds[group]
        stirred, hold.stirred = hold.stirred, {}
        for queue in stirred:
            floor = self._floor(group, queue)
            if floor is None:
                hold.floors.pop(queue, None)
            else:
                hold.floors[queue] = floor

    def leave(self, group: Group) -> None:
        """No subscription has the name any more: what was worked out last is the last word."""
        self._holds[group].is_over = True
        self._due[group] = None

    def ask(self, group: Group, who: object, queues: Iterable[str]) -> tuple[HoldOffsets, Callable[[Result], Result]]:
        """What asks where the position is, for a subscription that is about to begin, and has it held there until
        then; and what is to be given the result, and gives what there is of these queues."""
        hold = self._holds[group]
        asked = hold.beginning[who] = tuple(queues)
        hold.told = dict.fromkeys([*asked, *hold.saying()], UNKNOWN)  # while a group has members it may move nothing
        self._due[group] = None

        def answered(result: Result) -> Result:
            self._take_in(group, hold, result)
            if isinstance(result, HeldOffsets):
                return HeldOffsets(result.progress[: len(asked)])
            hold.told = None
            if isinstance(result, LogReplaced):  # it begins anew, and a repeated request is answered
                return Unavailable(result.message)
            return result

        return HoldOffsets(group[1], self._holder, LEASE_S, hold.progress(hold.told), hold.log_id), answered

    def begun(self, group: Group, who: object) -> None:
        """A subscription has begun, or never will."""
        hold = self._holds[group]
        if who in hold.beginning:
            del hold.beginning[who]
            self._due[group] = None

    def flush(self) -> None:
        """Reports changes to brokers; last words all, the rest as long as that is not too much."""
        due, self._due = self._due, {}
        left = ROWS_MAX
        next_time: dict[Group, None] = {}  # before whatever is due again by then
        for group in due:
            hold = self._holds.get(group)
            if hold is None:
                continue
            if hold.is_asking or (left <= 0 and not hold.is_over):
                next_time[group] = None
                continue
            self.work_out(group)
            saying = hold.saying()
            is_news = hold.is_over or saying != hold.told
            if is_news or hold.wants_beat:
                left -= len(saying)
                self._tell(group, hold, saying, is_news)
        self._due = next_time | self._due

    def is_time(self, now: float) -> bool:
        """Whether a third of a lease has passed since it was so last."""
        if now - self._beaten_at < LEASE_S / 3:
            return False
        self._beaten_at = now
        return True

    def beat(self) -> None:
        """The next ``flush`` renews all leases."""
        for group, hold in self._holds.items():
            hold.wants_beat = True
            self._due[group] = None

    def _tell(self, group: Group, hold: Hold, saying: dict[str, int], is_news: bool) -> None:
        broker, name = group
        self.commits += is_news
        hold.is_asking, hold.wants_beat = True, False
        hold.told = saying
        lease_s = 0.0 if hold.is_over else LEASE_S
        request = HoldOffsets(name, self._holder, lease_s, hold.progress(saying), hold.log_id)
        broker.submit(request, partial(self._answered, group, hold, request, is_news))

    def _answered(self, group: Group, hold: Hold, request: HoldOffsets, is_news: bool, result: Result) -> None:
        hold.is_asking = False
        self._take_in(group, hold, result)
        if isinstance(result, LogReplaced):
            return
        if isinstance(result, PenstockError) and result.retryable and (hold.is_over or not isinstance(result, Busy)):
            hold.told = None
            self._due[group] = None
            return
        self.refused += is_news and isinstance(result, PenstockError)
        if request.lease_s:
            return
        if hold.is_over:
            del self._holds[group]
        else:  # the name is in use again
            hold.told = None
            self._due[group] = None

    def _take_in(self, group: Group, hold: Hold, result: Result) -> None:
        """How often the position was set back. A resumed subscription knows of no earlier times."""
        if isinstance(result, LogReplaced):
            self._begin_anew(group, hold)
            return
        if isinstance(result, HeldOffsets):
            hold.log_id = hold.log_id or result.log_id
        for row in result.progress if isinstance(result, HeldOffsets) else ():
            if row.set_backs > hold.set_backs.get(row.queue, row.set_backs):
                self._set_back(group, row.queue)
            hold.set_backs[row.queue] = row.set_backs

    def _begin_anew(self, group: Group, hold: Hold) -> None:
        """The broker has another log: the offsets that are known here mean nothing in it. Subscriptions that stand have
        no say in these queues until they are made again."""
        _log.warning("%s has another log: the position %s begins again there", group[0].name, group[1])
        hold.log_id, hold.told = "", None
        hold.set_backs.clear()
        for queue in list(hold.floors):
            self._set_back(group, queue)
        hold.floors.clear()
        self._due[group] = None
