"""A transaction's block from code without an event loop, where brokers fail; else it is in
tests/penstock/test_real_sends.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import Producer
from penstock.errors import InvalidRequest, TimedOut
from penstock.protocol.requests.transactions import EndHalves
from tests.penstock.linked_cluster import LinkedCluster


def test_a_commit_without_an_answer_is_unknown_and_a_rollback_hides_no_error(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LinkedCluster(topics=["orders"])
    broker = cluster.brokers[0]
    broker.listen(serve)
    broker.silent = lambda request: isinstance(request, EndHalves)
    with Producer(servers=broker.route.address, group="g", timeout_s=0.3) as producer:
        tx = producer.transaction("orders", b"x")
        with pytest.raises(TimedOut, match="may be committed") as caught, tx:
            assert [at for at, _id in tx.ids] == ["broker-0"]
        assert caught.value.unknown
        with pytest.raises(KeyError, match="mine"), producer.transaction("orders", b"x"):
            raise KeyError("mine")
        with pytest.raises(InvalidRequest, match="begins only once"):
            tx.__enter__()
        with pytest.raises(InvalidRequest, match="has not begun"):
            producer.transaction("orders", b"x").__exit__(None, None, None)
        with pytest.raises(InvalidRequest, match="expected a topic, a Message or several, not 5"):
            producer.transaction(5)  # type: ignore[call-overload]
    assert [one for one in caplog.messages if "a rollback is left to the check" in one] != []
