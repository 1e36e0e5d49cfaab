"""What a node promises: an epoch that never goes back, one vote in each."""

from __future__ import annotations

import pytest

from broker.replica.log_face import HardState


def test_a_vote_is_given_once_in_an_epoch_and_is_free_in_the_next() -> None:
    state = HardState(node="a").entered(3).voted("b")
    assert state.voted("b") == state.entered(3) == state
    with pytest.raises(AssertionError):
        state.voted("c")
    assert state.entered(4) == HardState(node="a", epoch=4)
    assert state.entered(4).voted("c").vote == "c"


def test_an_epoch_never_goes_back() -> None:
    with pytest.raises(AssertionError):
        HardState(epoch=5).entered(4)


def test_what_is_durable_of_the_log_stays_marked_in_later_epochs() -> None:
    assert HardState(epoch=5, mark=700).entered(6).mark == 700
