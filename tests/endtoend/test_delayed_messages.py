"""A delayed message that its broker's death does not lose, nor bring early."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock.blocking import Consumer, Producer
from tests.endtoend.conftest import System
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


def test_a_broker_that_is_killed_before_a_message_is_due_delivers_it_then(system: Callable[..., System]) -> None:
    started = system().start()
    with Producer(servers=started.namesrv) as producer:
        producer.send("orders", b"now", key="k")
        with Consumer("g", "orders", servers=started.namesrv) as consumer:
            for delay_s in (3, 30, PATIENCE_S):
                began = time.monotonic()
                producer.send("orders", b"after %d s" % delay_s, key="k", delay=delay_s)
                started.kill()
                if time.monotonic() < began + delay_s:
                    break  # else the machine is too slow: it may have been delivered before the kill
                started.start()
            started.start()
            found: list[bytes] = []
            while b"after %d s" % delay_s not in found:
                found += [message.body for message in consumer.poll(PATIENCE_S)]
            assert len(set(found)) == len(found)
            late_s = time.monotonic() - began - delay_s
            assert late_s >= 0, "never early"
            print(f"arrived {late_s:.2f} s after {delay_s} s")
            consumer.commit()
            assert consumer.poll(0.2) == [], "and once"
    assert started.stop() == 0
