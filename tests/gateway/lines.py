"""What a shard's twins stand on: a poller that the test moves by hand, and who speaks over a line."""

from __future__ import annotations

from gateway.net.ends import Occupant
from gateway.net.shard import Line


class HandPoller:
    """Readiness is what the test puts into ``ready``."""

    def __init__(self) -> None:
        self.ready: list[tuple[int, int]] = []
        self.masks: dict[int, int] = {}
        self.wakes = 0

    async def wait(self) -> None:
        raise NotImplementedError

    def wait_here(self) -> bool:
        return False

    def poll(self) -> list[tuple[int, int]]:
        ready, self.ready = self.ready, []
        return ready

    def add(self, descriptor: int, mask: int) -> None:
        assert descriptor not in self.masks
        self.masks[descriptor] = mask

    def change(self, descriptor: int, mask: int) -> None:
        assert descriptor in self.masks
        self.masks[descriptor] = mask

    def remove(self, descriptor: int) -> None:
        del self.masks[descriptor]

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        pass


class Echo(Occupant):
    """Sends back what it gets, and notes what happens to it."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.events: list[object] = []

    def receive(self, chunk: bytes) -> None:
        self.events.append(chunk)
        self.line.write(chunk)

    def writable(self) -> None:
        self.events.append("writable")

    def broken(self) -> None:
        self.events.append("broken")


class Upper:
    """A codec that can be seen: capitals outside, small letters inside; it answers a question mark by itself."""

    def __init__(self) -> None:
        self.over = ""
        self.address = self.certificate = None
        self._own = b""

    def decode(self, data: bytes) -> bytes:
        self._own += b"!" * data.count(b"?")
        if b"#" in data:
            self.over = "a hash"
            self._own += b"REFUSED"
        return data.partition(b"#")[0].replace(b"?", b"").lower()

    def output(self) -> bytes:
        own, self._own = self._own, b""
        return own

    def encode(self, data: bytes) -> bytes:
        return data.upper()

    def close(self) -> bytes:
        return b"BYE"
