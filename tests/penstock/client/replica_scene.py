"""Groups of copies as their nodes describe them, for tests of what operators see and order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.administration import AllBrokers, Ask, Steps, Task
from penstock.errors import PenstockError, Unavailable
from penstock.protocol.requests.replicas import DescribeReplicas, ReplicaRow, Replicas
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute

END = 5_000_000


def row(
    node: str, durable: int = END, *, voter: bool = True, heard_s: float = 0.1, behind_s: float = 0.0
) -> ReplicaRow:
    return ReplicaRow(node, node * 2, f"{node}:10912", voter, f"{node}:10911", durable, heard_s, behind_s)


def leader(*rows: ReplicaRow, node: str = "a", **more: Any) -> Replicas:
    return Replicas("broker", node, "leader", 5, node, END - 100, END, 1, rows, last_epoch=5, **more)


def follower(node: str, *rows: ReplicaRow, end: int = END, epoch: int = 5, **more: Any) -> Replicas:
    rows = tuple(one._replace(durable=-1, heard_s=-1.0, behind_s=-1.0) for one in rows)
    return Replicas("broker", node, "follower", epoch, "a", end - 100, end, 1, rows, last_epoch=epoch, **more)


class Cluster:
    """Nodes at addresses: what each says, or no word. ``ordered``: what was asked of them besides, and where."""

    def __init__(self, said: Mapping[str, Replicas | PenstockError]) -> None:
        self.said = {f"{node}:10911": word for node, word in said.items()}
        self.routes = (
            BrokerRoute("broker", "a:10911", 1),
            *[BrokerRoute("broker", f"{node}:10911", 1) for node in "bc"],
        )
        self.ordered: list[tuple[str, object]] = []
        self.refusals: dict[str, PenstockError] = {}

    def run(self, task: Task[Any]) -> Any:
        """Carries a task out as an ``Admin`` does."""
        steps = Steps(task)
        while (wanted := steps.wanted) is not None:
            if isinstance(wanted, AllBrokers):
                steps.answer(self.routes)
            else:
                assert isinstance(wanted, Ask)
                answer = self._answer(wanted)
                if isinstance(answer, PenstockError):
                    steps.fail(answer)
                else:
                    steps.answer(answer)
        return steps.result

    def _answer(self, wanted: Ask) -> object:
        if isinstance(wanted.request, DescribeReplicas):
            return self.said.get(wanted.address, Unavailable(f"{wanted.address} does not answer"))
        self.ordered.append((wanted.address, wanted.request))
        return self.refusals.pop(wanted.address, Done())
