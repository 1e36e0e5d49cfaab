from __future__ import annotations

from loadtest.guard import costs


def test_each_check_has_its_processor_time() -> None:
    told = dict(costs(calls=5, rounds=1))
    assert list(told) == ["a pull", "a message sent alone", "100 messages sent together"]
    assert min(told.values()) > 0
