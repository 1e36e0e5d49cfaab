"""``penstock audit`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import Admin
from penstock.blocking.link import BlockingLink
from penstock.client.audit_tasks import PAGE
from penstock.protocol.requests.messages import AuditEntry, TellAudited
from penstock.world import RealClock
from tests.patience import PATIENCE_S

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_the_audit_log_is_read_from_its_end_by_user_outcome_and_age(
    penstock: Penstock, rows: Rows, real_cluster: Any
) -> None:
    assert "ports that ask for no login" in penstock("audit").stderr
    now_ms = RealClock().wall_ms()
    entries = [AuditEntry(now_ms - 86_400_000, "ada", "scram", "a:1", "DeleteTopic", "old", True)]
    entries += [AuditEntry(now_ms, "", "anonymous", "a:2", "Pull", f"t{at}", False, "consume") for at in range(PAGE)]
    entries += [AuditEntry(now_ms, "vera", "mqtt", "a", "Publish", "a/b", False, "access rules", "d7", 3)]
    with Admin(real_cluster.servers) as admin:
        [broker] = admin.brokers()
    with BlockingLink(broker.address, PATIENCE_S) as link:
        link.call(TellAudited("gateway-1", tuple(entries)))
    [old] = rows("audit", "--user", "ada")
    assert (old["act"], old["name"], old["outcome"], old["by"]) == ("DeleteTopic", "old", "allowed", "scram")
    assert (old["server"], old["time_ms"]) == ("gateway-1", now_ms - 86_400_000)
    assert rows("audit", "--user", "ada", "--since", "1h") == []
    assert len(rows("audit", "-n", "1000")) == PAGE + 2
    assert len(rows("audit", "-n", "1000", "--refused")) == PAGE + 1
    [last] = rows("audit", "-n", "1")
    assert (last["by"], last["client"], last["times"], last["why"]) == ("mqtt, client d7", "d7", 3, "access rules")
    assert "refused" in penstock("audit", "--user", "vera").stdout
    assert len(rows("consume", "%AUDIT%", "--end")) == PAGE + 2, "it is a topic as any other"
