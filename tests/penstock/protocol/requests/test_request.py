"""What all requests and replies have in common."""

from __future__ import annotations

from dataclasses import fields

from penstock.protocol.requests.messages import Append, Pulled
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import QueryRoute


def test_equal_requests_are_equal() -> None:
    assert QueryRoute("a") == QueryRoute("a") != QueryRoute("b")
    assert Append(1, False, b"x") == Append(1, False, b"x")
    assert Pulled(0, 0, 0, 0, b"") != Pulled(1, 0, 0, 0, b"")


def test_equal_requests_are_one_key() -> None:
    assert len({QueryRoute("a"), QueryRoute("a"), QueryRoute("b")}) == 2


def test_done_has_nothing_to_tell() -> None:
    assert fields(Done) == ()
    assert Done() == Done()
