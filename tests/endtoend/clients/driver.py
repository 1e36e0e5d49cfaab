"""What the Python drivers share: one command per line of standard input, one answer or event per line of output.

A driver is a child process that drives one MQTT library, unmodified. Commands: ``connect``, ``subscribe``,
``unsubscribe``, ``publish``, ``disconnect`` (with DISCONNECT) and ``drop`` (without); each names the connection that
it is for. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

STEP_S = 120
_lock = threading.Lock()


def emit(**event: Any) -> None:
    """Writes one event; from any thread."""
    with _lock:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def message(name: str, topic: str, payload: bytes, qos: int, retain: bool) -> None:
    """Reports a message that a connection received."""
    emit(message=[name, topic, bytes(payload).decode(), qos, bool(retain)])


def serve(commands: Callable[[], Any]) -> None:
    """Carries out commands one by one with the methods of an object."""
    target = commands()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            emit(answer=getattr(target, command.pop("do"))(**command))
        except Exception as error:  # the test shows it
            emit(error=repr(error))


def serve_async(commands: Callable[[], Any]) -> None:
    """The same with coroutines, on one event loop."""

    async def run() -> None:
        target = commands()
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            try:
                work: Awaitable[Any] = getattr(target, command.pop("do"))(**command)
                emit(answer=await asyncio.wait_for(work, STEP_S))
            except Exception as error:  # the test shows it
                emit(error=repr(error))

    asyncio.run(run())
