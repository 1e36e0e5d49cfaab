"""A delayed message that its broker's death does not lose, nor bring early."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from penstock.blocking import Consumer, Producer
from tests.endtoend.conftest import System
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend


def test_a_broker_that_is_killed_a_second_before_a_message_is_due_delivers_it_then(
    system: Callable[..., System],
) -> None:
    started = system().start()
    with Producer(servers=started.namesrv) as producer:
        producer.send("orders", b"now", key="k")
    with Consumer("g", "orders", servers=started.namesrv) as consumer:
        began = time.monotonic()
        command = [sys.executable, "-m", "node", "produce", "orders", "later", "--key", "k", "--delay", "5s"]
        subprocess.run(command, check=True, env=os.environ | {"PENSTOCK_SERVER": started.namesrv}, timeout=PATIENCE_S)
        assert consumer.poll(max(0.0, began + 4 - time.monotonic())) == []
        started.kill()
        started.start()
        messages = consumer.poll(PATIENCE_S)
        late_s = time.monotonic() - began - 5
        assert [message.body for message in messages] == [b"later"]
        assert late_s >= 0, "never early"
        print(f"arrived {late_s:.2f} s after 5 s")
        consumer.commit()
        assert consumer.poll(0.2) == [], "and once"
    assert started.stop() == 0
