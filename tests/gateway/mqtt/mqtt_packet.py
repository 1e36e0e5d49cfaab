"""npm's mqtt-packet as a second opinion: a node process, fed by pipes. ``make install-test`` installs it into .node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
MODULES = HERE.parents[2] / ".node" / "node_modules"


class Opinion(NamedTuple):
    """``again``: the packet as it writes what it has read, ``None`` where it has not or cannot; ``error``: why."""

    again: bytes | None
    error: str

    @property
    def is_taken(self) -> bool:
        return self.again is not None or self.error.startswith("written: ")


class MqttPacket:
    """The running codec; ``close`` ends it."""

    def __init__(self) -> None:
        if shutil.which("node") is None or not (MODULES / "mqtt-packet").exists():
            pytest.skip("mqtt-packet is not installed: it needs node and npm, then run make install-test")
        command = ["node", str(HERE / "drive_mqtt_packet.js")]
        environment = os.environ | {"NODE_PATH": str(MODULES)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def judge(self, packets: Sequence[tuple[int, bytes]]) -> list[Opinion]:
        """What it makes of packets, each with its level."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([[level, data.hex()] for level, data in packets]) + "\n")
        self._process.stdin.flush()
        found = []
        for one in json.loads(self._process.stdout.readline()):
            again = one.get("again")
            found.append(Opinion(None if again is None else bytes.fromhex(again), one.get("error", "")))
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()
