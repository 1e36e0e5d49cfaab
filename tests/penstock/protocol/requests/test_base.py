"""The bases of requests and replies, compiled or not."""

from __future__ import annotations

import pytest

from penstock.protocol.requests.base import Reply, Request
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.request import Done


def test_values_that_travel_are_dataclasses_on_the_same_bases() -> None:
    request, reply = Pull("t:0", 7), Pulled(0, 7, 0, 7, b"")
    assert isinstance(request, Request)
    assert isinstance(reply, Reply)
    assert isinstance(GivenRuns(0, []), Request)
    assert request == Pull("t:0", 7) != Pull("t:0", 8)
    assert (Pull.code, Pull.reply, Request.code) == (41, Pulled, 0)
    assert Done() == Done()


def test_a_request_goes_over_a_wire_as_it_is() -> None:
    request = Pull("t:0", 7)
    assert request.for_wire() is request


@pytest.mark.parametrize("value", [Pull("t:0", 7), GivenRuns(0, []), Done()])
def test_a_value_has_no_room_for_what_is_not_in_its_type(value: Request | Reply) -> None:
    with pytest.raises(AttributeError):
        value.note = 1  # type: ignore[union-attr]
