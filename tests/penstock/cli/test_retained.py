"""``penstock retained`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import Admin
from penstock.blocking.link import BlockingLink
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.messages import Append
from tests.patience import PATIENCE_S

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def retain(servers: str, **bodies: bytes) -> None:
    """Keeps bodies under ``plant/NAME``."""
    with Admin(servers) as admin:
        [broker] = admin.brokers()
    with BlockingLink(broker.address, PATIENCE_S) as link:
        for name, body in bodies.items():
            record = encode_message(Message("plant", body, mqtt_topic=f"plant/{name}", retain=True))
            link.call(Append(1, False, record))


def test_the_last_values_of_names_are_listed_by_filter(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert "no retained messages" in penstock("retained", "ls").stderr
    retain(real_cluster.servers, a=b"1", b=b"\xff", c=b"3")
    assert [(row["name"], row["payload"]) for row in rows("retained", "ls")] == [
        ("plant/a", "1"),
        ("plant/b", "/w=="),
        ("plant/c", "3"),
    ]
    assert [row["name"] for row in rows("retained", "ls", "+/c")] == ["plant/c"]
    assert "there are more" in penstock("retained", "ls", "-n", "2").stderr
    assert penstock("retained", "ls", "a#").exit_code == 2
