"""Load with a time table (open loop): message ``n`` is due at ``n / per_s``, whatever the server does.

Times count from when a message was due, so that a server (or generator) that stalls cannot hide it. The generator
waits actively, because no timer is exact to some microseconds: it is busy all the time, and how late it sent
(``late_p99_us``) says whether it kept up. Publishers take turns.
"""

from __future__ import annotations

import time

from loadtest.generator import Order, Outcome, Run, percentile
from loadtest.wires import Failed


class Paced(Run):
    """One paced run."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._late: list[tuple[float, int]] = []

    def _measure(self) -> Outcome:
        outcome = super()._measure()
        outcome.figures = {"late_p99_us": percentile(self._late, 0.99)}
        return outcome

    def _work(self, for_s: float) -> None:
        clock, publishers, per_s = time.perf_counter, self._publishers, self._order.per_s
        sent, all_due = 0, int(for_s * per_s)
        self._late.clear()
        start = now = clock()
        while now < start + for_s or sent < all_due:
            due = min(int((now - start) * per_s), all_due)
            while sent < due:
                publisher = publishers[sent % len(publishers)]
                if publisher.sent - publisher.acked >= publisher.ring.count:
                    raise Failed(f"{publisher.ring.count} messages of one publisher wait for their PUBACK")
                sent += 1
                at = start + sent / per_s
                publisher.publish(1, at)
                self._late.append((clock() - at, 1))
            self._turn(now, 0, publishing=False)
            now = clock()
