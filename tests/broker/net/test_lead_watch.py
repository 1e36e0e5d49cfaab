from __future__ import annotations

from broker.net.lead_watch import KEEP_S, SLOW_FOR_S, DiskState, Handover, LeadWatch, SyncTimes

FULL, SOUND, SLOW = DiskState(is_full=True), DiskState(sync_s=0.01), DiskState(sync_s=3.0)


class Bench:
    """A leader that looks once a second."""

    def __init__(self) -> None:
        self.watch = LeadWatch()
        self.now = 0.0

    def look(self, own: DiskState, seconds: float = 1.0, epoch: int = 1, **peers: DiskState) -> Handover | None:
        """What a look says after so many seconds of looking."""
        found = None
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            for node, disk in peers.items():
                self.watch.heard(node, disk)
            found = self.watch.look(epoch, own, list(peers), self.now)
        return found


def test_a_full_leader_goes_to_the_best_voter_with_room() -> None:
    bench = Bench()
    assert bench.look(SOUND, KEEP_S + 1, b=SOUND, c=SOUND) is None
    assert bench.look(FULL, b=FULL, c=SOUND) == Handover("c", "the disk is full")
    assert bench.look(FULL, 60.0, b=FULL, c=FULL) is None, "there is nobody better"


def test_a_leadership_lasts_for_a_while_whatever_its_disk_is_like() -> None:
    bench = Bench()
    for epoch in (1, 5):
        assert bench.look(FULL, KEEP_S, epoch=epoch, b=SOUND) is None
        assert bench.look(FULL, epoch=epoch, b=SOUND) is not None
    assert bench.look(FULL, 60.0, epoch=0, b=SOUND) is None, "it does not lead"


def test_only_one_that_was_slow_all_the_while_and_far_slower_than_the_other_hands_over() -> None:
    bench = Bench()
    bench.look(SOUND, KEEP_S + 1, b=SOUND)
    assert bench.look(SLOW, SLOW_FOR_S, b=SOUND) is None
    assert bench.look(SOUND, b=SOUND) is None
    assert bench.look(SLOW, SLOW_FOR_S, b=SOUND) is None, "it begins anew"
    found = bench.look(SLOW, b=SOUND)
    assert found == Handover("b", "a sync takes 3.0 s here")


def test_where_all_are_slow_or_nobody_has_said_how_its_disk_is_the_lead_stays() -> None:
    bench = Bench()
    assert bench.look(SLOW, 60.0, b=DiskState(sync_s=1.0)) is None
    assert bench.look(SLOW, b=SOUND) is None, "it was slow a moment ago"
    silent = LeadWatch()
    assert not [at for at in range(60) if silent.look(1, SLOW, ["b"], float(at))]


def test_the_sync_that_is_under_way_counts_as_long_as_it_has_taken() -> None:
    times = SyncTimes()
    assert times.take_worst_s(0.0) == 0.0
    times.begin(1.0)
    assert (times.latest_s(4.0), times.take_worst_s(4.0)) == (3.0, 3.0)
    times.end(5.0)
    assert (times.latest_s(9.0), times.take_worst_s(9.0), times.take_worst_s(9.5)) == (4.0, 4.0, 0.0)
