"""The end of a paho client that has run its loop in a thread."""

from __future__ import annotations

import paho.mqtt.client as paho


def end(client: paho.Client) -> None:
    """Says goodbye if it can, ends the thread and closes all sockets, those that woke the thread too.

    paho leaves those to its finalizer. A client with callbacks is part of a reference cycle, of which the collector may
    finalize the sockets first: an unclosed socket in whatever test runs at that time.
    """
    client.disconnect()
    client.loop_stop()
    client.reinitialise()
