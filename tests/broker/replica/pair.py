"""A leader's store and a follower's, with small folds, without a group around them."""

from __future__ import annotations

from dataclasses import replace

from broker.lineage.epochs import Epochs
from broker.replica.follower_log import FollowerLog
from broker.replica.members import MembersFold
from broker.store.message_store import MessageStore
from broker.store.records import Change, Stored
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from tests.broker.store.store_rig import SMALL, SmallFolds, incoming, log_bytes
from tests.simulation.disk import SimDisk

EPOCH = 5


class Folds(SmallFolds):
    """These, epochs and members."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = Epochs()
        self.members = MembersFold()

    def apply(self, record: Stored) -> Change:
        if record.topic in MembersFold.TOPICS:
            return self.members.apply(record)
        return self.epochs.apply(record) if record.topic in Epochs.TOPICS else super().apply(record)


class Copy:
    """A store of which there are others, and its disk."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        settings: StoreSettings = SMALL,
        *,
        committed: int = 0,
        cut_at: int | None = None,
    ) -> None:
        self.disk = disk or SimDisk()
        self.settings = settings
        self.folds = Folds()
        self.store: MessageStore = open_store(
            self.disk, settings, self.folds, 1000, is_owned=False, committed=committed, cut_at=cut_at
        )
        self.log = FollowerLog(self.store, lambda: self.folds.epochs.begun, lambda: self.folds.members.now)

    def lead(self) -> Copy:
        """It takes all of its log in, and appends from here on."""
        self.log.take_over()
        self.store.own()
        return self

    def put(self, count: int, size: int = 100, *, cache: bool = False) -> None:
        """Messages, one by one; not synced."""
        for number in range(count):
            self.store.append([incoming(str(number).encode().ljust(size, b"."), cache=cache)], 1000)

    def sync(self) -> None:
        point = self.store.sync_point()
        self.store.sync()
        self.store.mark_durable(point)

    def commit(self) -> None:
        """All of it is on as many disks as it has to be on."""
        self.sync()
        self.store.mark_committed(self.store.written)

    def again(self, *, power: bool = False, committed: int = 0, cut_at: int | None = None) -> Copy:
        """The same disk after a crash."""
        if power:
            self.disk.lose_power()
        else:
            self.disk.kill()
        return Copy(self.disk, self.settings, committed=committed, cut_at=cut_at)

    def bytes(self) -> dict[str, bytes]:
        """The files of its log; the last one ends where the log does."""
        return log_bytes(self.disk, self.log.end)


def follow(leader: Copy, follower: Copy, *, bytes_max: int = 1 << 20, until: int = 1 << 62) -> None:
    """The follower hears all up to a position."""
    while follower.log.end < min(until, leader.log.end):
        stretch = leader.log.stretch(follower.log.end, min(until, leader.log.end), bytes_max)
        if not stretch.data:
            return
        follower.log.receive(stretch, EPOCH)


LARGER = replace(SMALL, segment_bytes=3 * SMALL.segment_bytes)
SMALLER = replace(SMALL, segment_bytes=SMALL.segment_bytes // 2)
