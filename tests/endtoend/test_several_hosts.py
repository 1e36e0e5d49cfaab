"""Gateways on several hosts, each with a network of its own, which fails: they are one server all the same.

The hosts are network namespaces of this machine: ``store`` has the name server and the broker, ``east`` and ``west`` a
gateway each. A gateway's host has two cables, one to the store and one to its devices, so that a host can be cut off
from the store while its gateway lives and its devices are connected to it.

"Nothing lost" here means: every acknowledged message reaches every client that was subscribed, those with QoS 2 exactly
once, wherever the client has been meanwhile. "Fenced" means: a gateway that was cut off sends no QoS 2 message of a
session that another has taken over, and closes the old connection as soon as it hears of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.mqtt.packets import Packet, Publish
from penstock.service.cluster_secret import keep_secret
from tests import patience
from tests.endtoend.conftest import Service
from tests.endtoend.test_sessions import Client, SocketLine, new_world, turn
from tests.patience import poll
from tests.simulation.gateways import check_deliveries

pytestmark = [
    pytest.mark.endtoend,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and ip"),
]

NET = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
"""The network of this run: what a killed run has left answers at other addresses."""
STORE = f"{NET}.1"
MESSAGES = 40
"""Of each publisher, per stage."""
CUT_S = 4.5
"""Longer than a gateway's lease on its sessions."""
PATIENCE_S = 1.5
"""So long a device waits for a server that does not answer."""
SETTLE_S = 3.0
DEADLINE_S = patience.PATIENCE_S


class Hosts:
    """The machines. Cables to devices end in this process's own network."""

    def __init__(self) -> None:
        self._tag = f"p{os.getpid()}"
        self._made: list[str] = []
        self._services: list[Service] = []
        self._remove_leftovers()
        self._make("store")
        self._in("store", "addr", "add", f"{STORE}/32", "dev", "lo")

    def gateway_host(self, name: str, number: int) -> None:
        """A host with a cable to the store and one to this process."""
        self._make(name)
        ours, theirs = f"{self._tag}s{number}", f"{self._tag}d{number}"
        cable = ("type", "veth", "peer", "store", "netns", self._space(name))
        self._ip("link", "add", ours, "netns", self._space("store"), *cable)
        self._in("store", "addr", "add", f"{store_side(number)}/30", "dev", ours)
        self._in("store", "link", "set", ours, "up")
        self._in(name, "addr", "add", f"{NET}.{4 * number + 2}/30", "dev", "store")
        self._in(name, "link", "set", "store", "up")
        self._in(name, "route", "add", STORE, "via", store_side(number))
        self._ip("link", "add", theirs, "type", "veth", "peer", "devices", "netns", self._space(name))
        self._ip("addr", "add", f"{NET}.{128 + 4 * number + 1}/30", "dev", theirs)
        self._ip("link", "set", theirs, "up")
        self._in(name, "addr", "add", f"{gateway_at(number)}/30", "dev", "devices")
        self._in(name, "link", "set", "devices", "up")

    def start(self, on: str, module: str, **settings: str) -> Service:
        """Starts a service on a host."""
        # `ip netns exec` would take a copy of all mounts along, and keep file systems of other tests mounted
        inside = ("nsenter", f"--net=/run/netns/{self._space(on)}")
        self._services.append(service := Service(module, inside=inside, **settings))
        return service

    def cut(self, host: str) -> None:
        """Pulls the cable between a gateway's host and the store."""
        self._in(host, "link", "set", "store", "down")

    def mend(self, host: str) -> None:
        """Puts it back."""
        self._in(host, "link", "set", "store", "up")
        self._in(host, "route", "replace", STORE, "via", store_side(NUMBERS[host]))  # it went with the cable

    def end(self) -> None:
        """Whatever happened: nothing that was started or made is left."""
        for service in self._services:
            service.kill()
        for name in self._made:
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False)

    @classmethod
    def _remove_leftovers(cls) -> None:
        """Removes the hosts of runs that were killed."""
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        for name, owner in re.findall(r"^(p(\d+)-\w+)", names, re.MULTILINE):
            if not Path(f"/proc/{owner}").exists():
                cls._ip("netns", "del", name)

    def _make(self, name: str) -> None:
        self._ip("netns", "add", self._space(name))
        self._made.append(name)
        self._in(name, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _in(self, name: str, *words: str) -> None:
        self._ip("-n", self._space(name), *words)

    @staticmethod
    def _ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


NUMBERS = {"east": 1, "west": 2}


def store_side(number: int) -> str:
    """Where the store is on its cable to a host."""
    return f"{NET}.{4 * number + 1}"


def gateway_at(number: int) -> str:
    """Where the devices find a host's gateway."""
    return f"{NET}.{128 + 4 * number + 2}"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    try:
        subprocess.run(["ip", "netns", "add", "probe"], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", "probe"], check=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    made = Hosts()
    try:
        for name, number in NUMBERS.items():
            made.gateway_host(name, number)
        yield made
    finally:
        made.end()


@pytest.fixture
def places(hosts: Hosts, tmp_path: Path) -> dict[str, tuple[str, int]]:
    """Where the gateways are, by host."""
    trusted = {"insecure": "true", "cluster_secret_file": str(keep_secret(tmp_path))}
    namesrv = hosts.start("store", "namesrv", host=STORE, port="0", **trusted).address
    data, lease = str(tmp_path / "b"), "6"
    hosts.start(
        "store", "broker", host=STORE, port="0", name="b", data=data, namesrv=namesrv, owner_lease_s=lease, **trusted
    )
    leases = {"session_lease_s": "3", "filter_lease_s": "6"}
    return {
        name: hosts.start(
            name,
            "gateway",
            host=gateway_at(number),
            port="0",
            name=name,
            namesrv=namesrv,
            anonymous="everyone",
            **leases,
        ).place
        for name, number in NUMBERS.items()
    }


class Roaming:
    """Clients that go to the other host when theirs does not answer any more."""

    def __init__(self, places: dict[str, tuple[str, int]]) -> None:
        self._places = places
        self.ghosts: list[SocketLine] = []  # connections that their clients have left standing
        self.world = made = new_world()
        publishers = [Client(made, f"p{number}", {}, 0) for number in range(2)]
        filters = ({"t/#": 2}, {"+/0": 1, "#": 2}, {"t/1": 1}, {"t/#": 1})
        subscribers = [Client(made, f"s{number}", one, 0) for number, one in enumerate(filters)]
        self.publishers, self.clients = publishers, publishers + subscribers
        self.at = {client.name: "east" if number % 2 else "west" for number, client in enumerate(self.clients)}

    def publish(self) -> None:
        """Each publisher has some more to say."""
        for client in self.publishers:
            client.to_publish += MESSAGES

    @property
    def is_done(self) -> bool:
        """Whether all that the publishers had to say is acknowledged."""
        return not any(client.to_publish or client.open for client in self.publishers)

    def turn(self) -> None:
        turn(self.clients, lambda client: self._places[self.at[client.name]])

    def leave(self, host: str) -> None:
        """All clients at a host give it up, and go to the other without a word."""
        for client in self.clients:
            if self.at[client.name] == host:
                if client.line is not None:
                    self.ghosts.append(client.line)  # type: ignore[arg-type]
                client.lose(tells=False)
                self.at[client.name] = "east" if host == "west" else "west"

    def pass_over_what_came(self) -> None:
        """What a gateway sent to those who have left, while it still had its lease."""
        for ghost in self.ghosts:
            while not ghost.is_closed and ghost.got():
                pass

    def sent(self) -> dict[bytes, Publish]:
        return {payload: message for client in self.publishers for payload, message in client.sent.items()}

    def close(self) -> None:
        for line in [client.line for client in self.clients if client.line is not None] + self.ghosts:
            line.close()


@pytest.fixture
def roaming(places: dict[str, tuple[str, int]]) -> Iterator[Roaming]:
    made = Roaming(places)
    yield made
    made.close()


def test_nothing_is_lost_and_nobody_is_served_twice_while_the_networks_of_the_hosts_fail(
    hosts: Hosts, roaming: Roaming
) -> None:
    until = time.monotonic() + DEADLINE_S

    def go_on(while_: Callable[[], bool], otherwise: str) -> None:
        while while_():
            roaming.turn()
            assert time.monotonic() < until, otherwise

    def pass_time(seconds: float) -> None:
        then = time.monotonic() + seconds
        go_on(lambda: time.monotonic() < then, "too slow")

    go_on(lambda: any(client.unsubscribed for client in roaming.clients), "not everybody could subscribe")
    roaming.world.has_begun = True
    for host in NUMBERS:
        roaming.publish()
        go_on(lambda: not roaming.is_done, "nothing moves")
        roaming.publish()
        hosts.cut(host)
        pass_time(PATIENCE_S)
        assert not roaming.is_done, "who publishes at a host without a store is acknowledged"
        roaming.leave(host)
        go_on(lambda: not roaming.is_done, "the other host does not serve everybody")
        roaming.publish()
        pass_time(CUT_S - PATIENCE_S)
        roaming.pass_over_what_came()
        hosts.mend(host)
    go_on(lambda: not roaming.is_done, "nothing moves any more")
    sent = roaming.sent()
    assert len(sent) == 2 * 3 * 2 * MESSAGES
    pass_time(SETTLE_S)
    for client in roaming.clients:
        assert not client.problems, client.problems
        check_deliveries(client, sent, Counter(sent.keys()))
    assert roaming.ghosts
    late: list[Packet] = []

    def are_closed() -> bool:
        for ghost in roaming.ghosts:
            if not ghost.is_closed:
                late.extend(ghost.got())
        return all(ghost.is_closed for ghost in roaming.ghosts)

    poll("the end of connections of sessions that another gateway has, at one that was cut off", are_closed)
    assert not [one for one in late if isinstance(one, Publish) and one.qos == 2], "a fenced gateway served them"
