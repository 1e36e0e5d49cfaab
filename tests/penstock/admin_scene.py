"""A broker with sleeping messages, for tests of what administrators do with them."""

from __future__ import annotations

from penstock.blocking import bootstrap
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.groups import Assignment, JoinGroup, LeaveGroup
from penstock.protocol.requests.messages import Append, Appended
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.retries import SendBack, SentBack
from penstock.protocol.requests.timers import SetTimers, TimerSet, TimersSet
from penstock.protocol.requests.transactions import BeginHalves, HalvesBegun

HOUR_MS = 3_600_000


def delay(servers: str, body: bytes, delay_ms: int = HOUR_MS) -> TimerSet:
    """Has a message delivered later."""
    with bootstrap(servers) as routes:
        link = routes.link(routes.brokers()[0].address)
        record = encode_message(Message("orders", body, key="k"))
        return link.ask(SetTimers((delay_ms,), True, record), TimersSet).timers[0]


def begin(servers: str, body: bytes, group: str = "payments") -> int:
    """Begins a half."""
    with bootstrap(servers) as routes:
        link = routes.link(routes.brokers()[0].address)
        return link.ask(BeginHalves(group, 1, encode_message(Message("orders", body, key="k"))), HalvesBegun).ids[0]


def kill(servers: str, *bodies: bytes, group: str = "billing", name: str = "orders/1", topic: str = "orders") -> None:
    """Makes dead letters of messages of a group."""
    with bootstrap(servers) as routes:
        link = routes.link(routes.brokers()[0].address)
        for body in bodies:
            record = encode_message(Message(topic, body, key="k", mqtt_topic=name, properties={"p": "v"}))
            placed = link.ask(Append(1, True, record), Appended).placed[0]
            joined = link.ask(JoinGroup(group, "m", (topic,)), Assignment)
            queue = f"{topic}:{placed.queue_id}"
            back = SendBack(group, "m", joined.generation, queue, placed.offset, attempts_max=1, reason="no way")
            link.ask(back, SentBack)
            link.ask(LeaveGroup(group, "m"), Done)
