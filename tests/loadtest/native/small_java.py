"""Stands in for ``java``: a name server and a broker that only listen, and a client that answers as it is told to.

``SMALL_JAVA`` says what is wrong: ``dead`` (the broker ends at once), ``lossy`` (what was sent is not there).
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from pathlib import Path


def listen(config: str) -> None:
    if os.environ.get("SMALL_JAVA") == "dead" and "brokerName" in Path(config).read_text():
        sys.exit("no room for the heap")
    found = re.search(r"^listenPort=(\d+)$", Path(config).read_text(), re.MULTILINE)
    assert found
    with socket.create_server(("127.0.0.1", int(found[1]))) as listening:
        while True:
            listening.accept()[0].close()


def drive() -> None:
    print("a line of a log", flush=True)
    refused = 1  # the broker is not known yet
    for order in sys.stdin:
        word, *rest = order.split()
        if word == "send" and refused:
            refused -= 1
            print("error No route info of this topic", flush=True)
        elif word == "send":
            at = time.monotonic_ns()
            print(f"begin 100 {at}\nanother line\nend 600 {at + 250_000_000}\nsent 700", flush=True)
        elif os.environ.get("SMALL_JAVA") == "lossy":
            print("error 3 of 700 did not come", flush=True)
        else:
            print(f"checked {rest[1]} 100000000", flush=True)


if "RocketDriver" in sys.argv:
    drive()
else:
    listen(sys.argv[sys.argv.index("-c") + 1])
