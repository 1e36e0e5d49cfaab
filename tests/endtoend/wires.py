"""A network between hosts of this machine that fails as it is told to: packets are lost, late, or go one way only.

A host is a network namespace with one device, whose other end is here: a thread carries IP packets from device to
device. Unlike ``tc netem`` this needs no module of the kernel, and each direction between two hosts has its own fate.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

import pytest

NET: Final = f"10.{192 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
"""The network of this run."""
_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEAD: Final = 0x0001 | 0x1000
_PACKET_BYTES_MAX: Final = 1 << 16
_DESTINATION: Final = slice(16, 20)


def why_no_hosts() -> str:
    """Why this machine cannot have such hosts; empty where it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and ip"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
        subprocess.run(["ip", "netns", "add", "probe-wires"], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", "probe-wires"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"
    return ""


class Wires:
    """Hosts, and the packets between them. ``here`` is this process, with an address of its own.

    Attributes:
        cuts: pairs of hosts; what the first sends to the second is lost.
        lost: share of all other packets that is lost.
        delay_s: each packet takes so long, and up to half as long again, so that packets overtake each other.
    """

    def __init__(self, *hosts: str) -> None:
        if why := why_no_hosts():
            pytest.skip(why)
        self.cuts: set[tuple[str, str]] = set()
        self.lost = 0.0
        self.delay_s = 0.0
        self._rng = random.Random(46)
        self._tag = f"p{os.getpid()}"
        self._hosts = ("here", *hosts)
        self._devices: dict[int, str] = {}
        self._to = {bytes(map(int, self.address(host).split("."))): host for host in self._hosts}
        self._ends = threading.Event()
        for host in self._hosts:
            self._make(host)
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def address(self, host: str) -> str:
        """A host's address."""
        return f"{NET}.{self._hosts.index(host) + 1}"

    def inside(self, host: str) -> Sequence[str]:
        """The words that run a command at a host."""
        return ("nsenter", f"--net=/run/netns/{self._space(host)}")

    def cut_off(self, *hosts: str) -> None:
        """These reach each other, and no other host but this process; nor do other hosts reach them."""
        others = [one for one in self._hosts if one not in (*hosts, "here")]
        self.cuts = {pair for one in hosts for other in others for pair in ((one, other), (other, one))}

    def mend(self) -> None:
        """All is as it should be."""
        self.cuts, self.lost, self.delay_s = set(), 0.0, 0.0

    def end(self) -> None:
        """Nothing that was made is left."""
        self._ends.set()
        self._thread.join()
        for device in self._devices:
            os.close(device)
        for host in self._hosts[1:]:
            subprocess.run(["ip", "netns", "del", self._space(host)], check=False)

    def _space(self, host: str) -> str:
        return f"{self._tag}-{host}"

    def _make(self, host: str) -> None:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._devices[device] = host
        name = f"{self._tag}{host}"[:15]
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _TUN_WITHOUT_HEAD))
        there: tuple[str, ...] = ()
        if host != "here":
            _ip("netns", "add", self._space(host))
            _ip("link", "set", name, "netns", self._space(host))
            there = ("-n", self._space(host))
            _ip(*there, "link", "set", "lo", "up")
        _ip(*there, "addr", "add", f"{self.address(host)}/24", "dev", name)
        _ip(*there, "link", "set", name, "up")

    def _carry(self) -> None:
        devices = {host: device for device, host in self._devices.items()}
        poll = select.poll()
        for device in self._devices:
            poll.register(device, select.POLLIN)
        late: list[tuple[float, int, int, bytes]] = []
        count = 0
        while not self._ends.is_set():
            wait_s = max(0.0, late[0][0] - time.monotonic()) if late else 0.1
            for device, _ in poll.poll(min(wait_s, 0.1) * 1000):
                for packet in _packets(device):
                    to = self._to.get(packet[_DESTINATION])
                    if to is None or (self._devices[device], to) in self.cuts or self._rng.random() < self.lost:
                        continue
                    count += 1
                    due = time.monotonic() + self.delay_s * (1 + self._rng.random() / 2)
                    heapq.heappush(late, (due if self.delay_s else 0.0, count, devices[to], packet))
            while late and late[0][0] <= time.monotonic():
                _, _, device, packet = heapq.heappop(late)
                _give(device, packet)


def _packets(device: int) -> list[bytes]:
    found = []
    try:
        while len(found) < 64:
            found.append(os.read(device, _PACKET_BYTES_MAX))
    except BlockingIOError:
        pass
    return [packet for packet in found if len(packet) >= 20 and packet[0] >> 4 == 4]


def _give(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        return  # a full queue loses packets, as any network does


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
