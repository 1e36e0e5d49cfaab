from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.messages.one_by_one import one_by_one
from penstock.errors import InvalidMessage, PenstockError, StorageFailed, StorageFull
from penstock.protocol.requests.messages import Refused


def failing(at: int, error: PenstockError) -> Callable[[int], str]:
    def store(item: int) -> str:
        if item == at:
            raise error
        return str(item)

    return store


@pytest.mark.parametrize("error", [InvalidMessage("bad"), StorageFull("no room")])
def test_an_item_that_is_refused_stands_in_the_way_of_no_other(error: PenstockError) -> None:
    assert one_by_one(range(3), failing(1, error), "") == (["0", "", "2"], [Refused(1, error.code, error.message)])


@pytest.mark.parametrize(
    ("at", "error"), [(0, StorageFull("no room")), (0, StorageFailed("EIO")), (2, StorageFailed("EIO"))]
)
def test_a_disk_that_failed_or_has_no_room_for_the_first_item_is_no_refusal(at: int, error: PenstockError) -> None:
    with pytest.raises(type(error)):
        one_by_one(range(3), failing(at, error), "")
