"""A client at a host of its own: sends natively and by MQTT with QoS 1, and prints what is acknowledged.

``python -m tests.endtoend.sender NAME SERVERS MQTT_HOST MQTT_PORT``; a line is ``native BODY QUEUE OFFSET`` or
``mqtt BODY``. It ends when its standard input does.
"""

from __future__ import annotations

import sys
import threading
import time

import paho.mqtt.client as paho

from penstock.blocking import Producer
from penstock.errors import PenstockError

_printing = threading.Lock()


def tell(*words: object) -> None:
    """Prints a line, whole."""
    with _printing:
        print(*words, flush=True)


def publish(name: str, host: str, port: int, over: threading.Event) -> None:
    """Publishes one message after the other, each when the one before is acknowledged."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
    client.reconnect_delay_set(1, 1)
    client.connect(host, port)
    client.loop_start()
    number = 0
    while not over.is_set():
        body = f"{name}-mqtt-{number}"
        info = client.publish(f"t/{number % 5}", body, 1)
        while not info.is_published() and not over.is_set():
            time.sleep(0.01)
        if info.is_published():
            tell("mqtt", body)
        number += 1
    client.loop_stop()


def main() -> None:
    """Sends until told to end."""
    name, servers, host, port = sys.argv[1:]
    over = threading.Event()
    device = threading.Thread(target=publish, args=(name, host, int(port), over))
    device.start()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    with Producer(servers=servers, timeout_s=3.0) as producer:
        number = 0
        while not over.is_set():
            body, number = f"{name}-native-{number}", number + 1
            try:
                receipt = producer.send("t", body.encode(), key=str(number % 5))
            except PenstockError:
                continue
            tell("native", body, str(receipt.queue).partition("@")[0], receipt.offset)
    device.join()


if __name__ == "__main__":
    main()
