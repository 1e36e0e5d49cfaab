"""Which epoch a position has, and where two logs part."""

from __future__ import annotations

import pytest

from broker.replica.epochs import begun_before, begun_within, parting
from penstock.protocol.requests.replicas import EpochAt

BEGUN = [EpochAt(1, 0), EpochAt(2, 40), EpochAt(5, 70)]


@pytest.mark.parametrize(("position", "epoch"), [(0, 0), (1, 1), (40, 1), (41, 2), (70, 2), (71, 5), (900, 5)])
def test_a_position_has_the_epoch_of_the_frame_that_ends_there(position: int, epoch: int) -> None:
    assert begun_before(BEGUN, position).epoch == epoch


def test_an_epoch_begins_within_a_stretch_that_has_its_first_frame() -> None:
    assert begun_within(BEGUN, 0, 40) == (EpochAt(1, 0),)
    assert begun_within(BEGUN, 40, 71) == (EpochAt(2, 40), EpochAt(5, 70))
    assert begun_within(BEGUN, 41, 70) == ()


@pytest.mark.parametrize(
    ("theirs", "place"),
    [
        (BEGUN, 100),
        ([EpochAt(1, 0), EpochAt(2, 40)], 70),  # they go on in epoch 2 where ours is of 5
        ([EpochAt(1, 0), EpochAt(2, 40), EpochAt(6, 70)], 70),
        ([EpochAt(1, 0), EpochAt(3, 20)], 20),
        ([EpochAt(1, 0), EpochAt(2, 40), EpochAt(5, 70), EpochAt(6, 90)], 90),
        ([EpochAt(1, 0), EpochAt(2, 40), EpochAt(5, 70), EpochAt(6, 100)], 100),  # beyond what both have
    ],
)
def test_logs_part_where_the_first_epoch_begins_that_only_one_has(theirs: list[EpochAt], place: int) -> None:
    assert parting(BEGUN, theirs, 0, 100) == place
    assert parting(theirs, BEGUN, 0, 100) == place
