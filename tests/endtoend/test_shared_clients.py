"""Shared subscriptions of unmodified client libraries in both versions: members that leave, die and come back.

"Nothing lost" here means: every message that was acknowledged to its publisher comes to some member of the group; with
QoS 2, and with nobody lost, to exactly one, once. ``$oshare``: what a publisher sent comes to its member in that order.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.endtoend.conftest import System
from tests.endtoend.mqtt_clients import Library, Places, Received

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]

MEMBERS = ["paho 3.1.1", "paho 5.0", "gmqtt 3.1.1", "gmqtt 5.0"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    system = System(tmp_path_factory.mktemp("shared") / "data")
    try:
        system.start()
        yield Places({"tcp": (system.mqtt_host, system.mqtt_port)})
    finally:
        system.end()


class Group:
    """The members of one group, all of one library, and a publisher of another one."""

    def __init__(self, library: Callable[[str], Library], label: str, qos: int, kind: str = "$share") -> None:
        self.number = next(_numbers)
        self.members = library(label)
        self.qos = qos
        self.filter = f"{kind}/workers/jobs{self.number}/#"
        self.names: list[str] = []  # of all connections that there were
        self.live: list[str] = []
        self.got: dict[str, list[Received]] = {}
        self._publishers = library("paho 5.0" if label == "paho 3.1.1" else "paho 3.1.1")
        self._known: set[str] = set()
        self.sent: list[str] = []

    def join(self, client: str, *, clean: bool = True) -> str:
        """A member of this client id; its session may be there already. The name of its connection."""
        name = f"{client}-{self.number}-{len(self.names)}"
        present = self.members.connect(name, f"{client}-{self.number}", clean=clean)
        if not present:
            assert self.members.subscribe(name, self.filter, self.qos) == (1 if "oshare" in self.filter else self.qos)
        self.names.append(name)
        self.live.append(name)
        return name

    def leave(self, name: str) -> None:
        """A member says goodbye."""
        self.live.remove(name)
        self.members.disconnect(name)

    def drop(self, name: str) -> None:
        """A member vanishes."""
        self.live.remove(name)
        self.members.drop(name)

    def publish(self, count: int, *publishers: str) -> None:
        """Each publisher in turn, each message acknowledged before the next one."""
        for number in range(count):
            who = publishers[number % len(publishers)] if publishers else "publisher"
            name = f"{who}-{self.number}"
            if name not in self._known:
                self._known.add(name)
                self._publishers.connect(name, name)
            self.sent.append(f"{who} {len(self.sent):04}")
            self._publishers.publish(name, f"jobs{self.number}/{number % 3}", self.sent[-1], self.qos)

    def settle(self) -> dict[str, int]:
        """Waits until everything that was sent has come; how much each connection got of what is new."""
        already = {one.payload for got in self.got.values() for one in got}
        taken = self.members.shared(self.names, set(self.sent) - already)
        for name, got in taken.items():
            self.got.setdefault(name, []).extend(got)
        assert set(self.sent) == set(self.counts()), "a message is missing"
        return {name: len(got) for name, got in taken.items()}

    def counts(self) -> Counter[str]:
        return Counter(one.payload for got in self.got.values() for one in got)

    def end(self) -> None:
        for name in self.live:
            self.members.disconnect(name)
        for name in self._known:
            self._publishers.disconnect(name)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("label", MEMBERS)
def test_members_divide_the_messages_and_one_that_dies_leaves_them_to_the_others(
    library: Callable[[str], Library], label: str, qos: int
) -> None:
    group = Group(library, label, qos)
    first, _, third = (group.join(client) for client in ("a", "b", "c"))
    group.publish(30)
    assert all(count > 0 for count in group.settle().values())
    assert set(group.counts().values()) == {1}
    assert {one.qos for got in group.got.values() for one in got} == {qos}
    group.drop(first)
    group.publish(10)
    group.settle()  # a QoS 2 message on its way to who leaves would go with its session (MQTT-4.8.2-5)
    group.leave(third)
    group.publish(10)
    group.settle()
    times = group.counts()
    assert sum(times.values()) == len(group.sent) if qos == 2 else max(times.values()) <= 2
    group.end()


@pytest.mark.parametrize("label", MEMBERS)
def test_a_member_with_qos_1_that_dies_among_messages_costs_none(library: Callable[[str], Library], label: str) -> None:
    group = Group(library, label, 1)
    names = [group.join(client) for client in ("a", "b", "c")]
    for name in names[:2]:
        group.publish(20)
        group.drop(name)  # what is on its way to it goes to another one
    group.publish(20)
    group.settle()
    assert sum(group.counts().values()) <= len(group.sent) + 40
    group.end()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("label", MEMBERS)
def test_messages_wait_for_durable_members_and_are_divided_when_they_are_back(
    library: Callable[[str], Library], label: str, qos: int
) -> None:
    group = Group(library, label, qos)
    for client in ("a", "b"):
        group.leave(group.join(client, clean=False))
    group.publish(20)
    for client in ("a", "b"):
        group.join(client, clean=False)
    group.publish(20)
    shares = group.settle()
    assert set(group.counts().values()) == {1}
    assert all(shares[name] > 0 for name in group.live)
    group.end()


@pytest.mark.parametrize("label", MEMBERS)
def test_ordered_groups_keep_the_order_of_each_publisher(library: Callable[[str], Library], label: str) -> None:
    group = Group(library, label, 2, "$oshare")
    for client in ("a", "b", "c"):
        group.join(client)
    group.publish(60, "p1", "p2", "p3", "p4", "p5")
    group.settle()
    group.drop(group.names[0])
    group.publish(40, "p1", "p2", "p3", "p4", "p5")
    group.settle()
    for got in group.got.values():
        for publisher in ("p1", "p2", "p3", "p4", "p5"):
            own = [one.payload for one in got if one.payload.startswith(publisher)]
            assert list(dict.fromkeys(own)) == sorted(set(own))
    assert {one.qos for got in group.got.values() for one in got} == {1}
    group.end()
