"""Which epochs a log has had, and where each began."""

from __future__ import annotations

from broker.lineage.epochs import EPOCHS_MAX, Epochs
from tests.broker.facts import take


def test_each_epoch_is_known_with_the_position_of_its_record() -> None:
    epochs = Epochs()
    assert epochs.last == 0
    take(epochs, Epochs.fact(1, "b", "b"), 100)
    take(epochs, Epochs.fact(4, "b", "other"), 900)
    assert (epochs.last, epochs.begun) == (4, [(1, 100), (4, 900)])


def test_a_number_that_is_not_higher_begins_nothing() -> None:
    epochs = Epochs()
    take(epochs, Epochs.fact(4, "b", "b"), 100)
    take(epochs, Epochs.fact(4, "b", "b"), 200)
    take(epochs, Epochs.fact(3, "b", "b"), 300)
    assert epochs.begun == [(4, 100)]


def test_of_very_many_the_latest_are_known_and_a_snapshot_brings_them_back() -> None:
    epochs, again = Epochs(), Epochs()
    for number in range(1, EPOCHS_MAX + 3):
        take(epochs, Epochs.fact(number, "b", "b"), number * 10)
    assert (len(epochs.begun), epochs.begun[0], epochs.last) == (EPOCHS_MAX, (3, 30), EPOCHS_MAX + 2)
    again.restore([list(one) for one in epochs.begun])
    assert again.begun == epochs.begun
    again.restore(None)
    assert again.last == 0
