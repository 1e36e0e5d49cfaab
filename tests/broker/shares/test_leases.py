"""Twin of broker/shares/leases.py: a model-based machine and the cases that it cannot name."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.shares.fold import Settled
from broker.shares.leases import Row, ShareLeases

TAKERS = st.sampled_from(["a", "b", "c"])
UNSETTLED_MAX = 12


class Sharing(RuleBasedStateMachine):
    """Takers that take, settle, give back, die and come back, over a queue of which some messages are lost."""

    is_ordered = False

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[int | None] = []  # of each message; None: lost
        self.min = 0
        self.settled = Settled(0)
        self.leases = ShareLeases(self.is_ordered, 0)
        self.held: dict[str, dict[int, None]] = {"a": {}, "b": {}, "c": {}}
        self.done: set[int] = set()

    def read(self, offset: int, count: int, size: int) -> tuple[list[Row], int]:
        assert count > 0
        assert size > 0
        if offset < self.min:
            return [], self.min
        end = min(offset + count, len(self.keys))
        present = [(one, key) for one in range(offset, end) if (key := self.keys[one]) is not None]
        return [Row(one, key, b"", b"x") for one, key in present], max(end, offset)

    def read_keys(self, first: int, end: int) -> dict[int, int]:
        return {at: key for at in range(first, end) if (key := self.keys[at]) is not None}

    def settle(self, first: int, end: int) -> None:
        self.settled.add(first, end)
        self.leases.settle(first, end)

    @rule(keys=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def publish(self, keys: list[int]) -> None:
        self.keys += keys

    @rule(back=st.integers(1, 3))
    def lose_one(self, back: int) -> None:
        at = len(self.keys) - back
        if at >= self.leases.next and not any(at in held for held in self.held.values()):
            self.keys[at] = None

    @rule(taker=TAKERS, count=st.integers(1, 5))
    def take(self, taker: str, count: int) -> None:
        given = self.leases.take(taker, self.settled, self.read, count, 100, UNSETTLED_MAX)
        assert len(given.rows) <= count
        for first, end in given.gone:
            assert all(offset < self.min or self.keys[offset] is None for offset in range(first, end))
            self.settle(first, end)
            for held in self.held.values():
                for offset in range(first, end):
                    held.pop(offset, None)
        for row in given.rows:
            assert row.offset not in self.settled, "given after it was settled"
            assert not any(row.offset in held for held in self.held.values()), "given to two at a time"
            self.held[taker][row.offset] = None
            if self.is_ordered:
                self.check_order(taker, row)

    def check_order(self, taker: str, row: Row) -> None:
        earlier = [one for one in range(row.offset) if self.keys[one] == row.key and one not in self.settled]
        assert all(one in self.held[taker] or one < self.min for one in earlier), "before an earlier one of its key"

    @rule(taker=TAKERS, data=st.data())
    def settle_some(self, taker: str, data: st.DataObject) -> None:
        if self.held[taker]:
            offset = data.draw(st.sampled_from(sorted(self.held[taker])))
            self.held[taker].pop(offset)
            self.done.add(offset)
            self.settle(offset, offset + 1)

    @rule(data=st.data())
    def settle_late(self, data: st.DataObject) -> None:
        """A word from somebody who had lost the lease meanwhile."""
        if self.keys:
            offset = data.draw(st.integers(0, len(self.keys) - 1))
            for held in self.held.values():
                held.pop(offset, None)
            self.done.add(offset)
            self.settle(offset, offset + 1)

    @rule(taker=TAKERS)
    def die(self, taker: str) -> None:
        assert sorted(self.leases.leased_to(taker)) == sorted(self.held[taker])
        self.leases.give_back(taker, self.leases.leased_to(taker))
        self.held[taker] = {}

    @rule(taker=TAKERS, other=TAKERS)
    def give_back_what_another_has(self, taker: str, other: str) -> None:
        if taker != other:
            assert self.leases.give_back(taker, list(self.held[other])) == 0

    @rule()
    def restart(self) -> None:
        """The broker forgets the leases; the takers say what they have."""
        self.leases = ShareLeases(self.is_ordered, self.settled.floor)
        for taker, held in self.held.items():
            self.leases.resume(taker, held, self.settled, self.read_keys)

    @precondition(lambda self: not self.is_ordered)
    @rule(ahead=st.integers(1, 4))
    def retain(self, ahead: int) -> None:
        self.min = min(self.min + ahead, len(self.keys))

    @invariant()
    def everything_is_settled_on_its_way_or_owed(self) -> None:
        on_its_way = {offset for held in self.held.values() for offset in held}
        below = {offset for offset in range(self.leases.next) if offset not in self.settled}
        assert on_its_way <= {offset for offset in range(len(self.keys)) if offset not in self.settled}
        assert len(below | on_its_way) == self.leases.unsettled
        assert len(self.settled.starts) <= UNSETTLED_MAX + len(self.done) + 1

    def teardown(self) -> None:
        """Nothing is lost: somebody who takes all gets what is left."""
        for taker in ("a", "b", "c"):
            self.die(taker)
        while True:
            before = len(self.held["a"]), self.settled.floor
            self.take("a", 5)
            for offset in list(self.held["a"]):
                self.held["a"].pop(offset)
                self.settle(offset, offset + 1)
            if (len(self.held["a"]), self.settled.floor) == before:
                break
        assert all(offset in self.settled for offset in range(len(self.keys)))


class OrderedSharing(Sharing):
    """The same with the order of each key."""

    is_ordered = True


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=40)
TestOrderedSharing = OrderedSharing.TestCase
TestOrderedSharing.settings = TestSharing.settings


def rows_of(keys: list[int]) -> Sharing:
    machine = Sharing()
    machine.keys = list(keys)
    return machine


def test_messages_of_a_key_stay_with_their_taker_and_others_pass_over_them() -> None:
    queue, leases = rows_of([1, 1, 2, 1]), ShareLeases(True, 0)

    def take(taker: str, count: int) -> list[int]:
        return [row.offset for row in leases.take(taker, Settled(0), queue.read, count, 100, 100).rows]

    assert take("a", 1) == [0]
    assert take("b", 9) == [2]
    assert take("a", 9) == [1, 3]
    leases.settle(0, 1)
    leases.give_back("a", [1, 3])
    assert take("b", 1) == [1]
    assert take("a", 9) == []
    assert take("b", 9) == [3]
    assert leases.redelivered == 4


def test_what_a_taker_has_is_looked_up_in_runs() -> None:
    queue, leases, asked = rows_of([0] * 9), ShareLeases(False, 0), []

    def read_keys(first: int, end: int) -> dict[int, int]:
        asked.append((first, end))
        return queue.read_keys(first, end)

    leases.resume("a", [7, 0, 1, 2, 5, 4], Settled(0, [1], [2]), read_keys)
    assert asked == [(0, 1), (2, 3), (4, 6), (7, 8)]
    assert leases.leased_to("a") == [0, 2, 4, 5, 7]


def test_no_more_than_the_limit_is_on_its_way() -> None:
    queue, leases = rows_of([0] * 50), ShareLeases(False, 0)
    assert len(leases.take("a", Settled(0), queue.read, 100, 1000, 20).rows) == 20
    assert leases.take("b", Settled(0), queue.read, 100, 1000, 20).rows == []
    leases.settle(3, 5)
    assert [row.offset for row in leases.take("b", Settled(0), queue.read, 100, 1000, 20).rows] == [20, 21]


def test_who_says_that_it_has_a_message_of_a_key_that_another_one_has_does_not_have_it() -> None:
    queue, leases = rows_of([1, 1, 2]), ShareLeases(True, 0)
    assert [row.offset for row in leases.take("b", Settled(0), queue.read, 1, 100, 100).rows] == [0]
    leases.resume("a", [1, 2], Settled(0), queue.read_keys)
    assert (leases.leased_to("a"), leases.leased_to("b")) == ([2], [0])
