"""Numbers of the protocol, as RocketMQ's clients have them."""

from __future__ import annotations

from remoting import codes


def test_no_two_requests_share_a_number() -> None:
    answers = list(vars(codes)).index("SUCCESS")
    asked = [value for name, value in list(vars(codes).items())[:answers] if name.isupper()]
    assert len(asked) == len(set(asked))
    assert (codes.SEND_V2, codes.PULL, codes.HEARTBEAT, codes.ROUTE) == (310, 11, 34, 105)
