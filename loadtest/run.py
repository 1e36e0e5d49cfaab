"""One run in a process of its own: ``python -m loadtest.run`` reads an order as JSON from standard input, carries it
out and prints the outcome as JSON."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from loadtest import scenarios
from loadtest.cores import pin
from loadtest.generator import Idle, Order, Outcome, Run
from loadtest.herd import Backlog, Reconnect
from loadtest.many_filters import ManyFilters
from loadtest.neighbour import Neighbour
from loadtest.paced import Paced
from loadtest.shared import Shared
from loadtest.wires import Failed

KINDS: Final[Mapping[str, type[Run]]] = {
    scenarios.CLOSED: Run,
    scenarios.PACED: Paced,
    scenarios.IDLE: Idle,
    scenarios.RECONNECT: Reconnect,
    scenarios.BACKLOG: Backlog,
    scenarios.FILTERS: ManyFilters,
    scenarios.SHARED: Shared,
    scenarios.NEIGHBOUR: Neighbour,
}


def perform(order: Order) -> Outcome:
    """Carries an order out; what goes wrong is in the outcome."""
    run = KINDS[order.kind](order)
    try:
        return run.perform()
    except (Failed, OSError) as error:
        return Outcome(error=f"{type(error).__name__}: {error}" if isinstance(error, OSError) else str(error))
    finally:
        run.close()


def main() -> None:
    """Reads an order, writes its outcome."""
    given: dict[str, Any] = json.load(sys.stdin)
    order = Order(**given)
    pin(order.core)
    gc.disable()  # no pauses while it measures; it makes no cycles
    json.dump(asdict(perform(order)), sys.stdout)


if __name__ == "__main__":
    main()
