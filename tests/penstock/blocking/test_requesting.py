from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import blocking
from penstock.blocking import requesting
from penstock.errors import TimedOut
from penstock.protocol.requests.filters import CloseFilters
from penstock.protocol.requests.request import Done
from tests.patience import PATIENCE_S


def answer(servers: str, count: int) -> None:
    """A service that answers so many requests with what they say twice."""
    with (
        blocking.Producer(servers=servers, timeout_s=PATIENCE_S) as producer,
        blocking.Consumer("answering", "questions", servers=servers, start="earliest") as consumer,
    ):
        while count:
            for message in consumer.poll(5):
                producer.reply(message, message.body * 2)
                count -= 1


def test_requests_have_their_replies_one_after_the_other(real_cluster: Any) -> None:
    with blocking.Producer(servers=real_cluster.servers, timeout_s=PATIENCE_S) as producer:
        with pytest.raises(TimedOut, match="no reply within"):
            producer.request("questions", b"early", timeout_s=0.3)
        with ThreadPoolExecutor(1) as threads:
            done = threads.submit(answer, real_cluster.servers, 6)
            for number in range(5):
                assert producer.request("questions", b"%d," % number).body == b"%d,%d," % (number, number)
            done.result(PATIENCE_S)


def test_a_queue_of_replies_that_was_closed_is_opened_again(real_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requesting, "POLL_S", 0.2)
    producing = blocking.Producer(servers=real_cluster.servers, timeout_s=PATIENCE_S)
    with producing as producer, ThreadPoolExecutor(1) as threads:
        done = threads.submit(answer, real_cluster.servers, 2)
        assert producer.request("questions", b"1").body == b"11"
        requests = producer._requests
        with blocking.bootstrap(real_cluster.servers) as routes:
            link = routes.link(routes.brokers()[0].address)
            link.ask(CloseFilters(requests._owner, (requests._name,)), Done)
        with pytest.raises(TimedOut):
            producer.request("nobody", b"hears", timeout_s=1)
        assert producer.request("questions", b"2").body == b"22"
        done.result(PATIENCE_S)
