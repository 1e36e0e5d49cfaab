"""A gmqtt subscriber: ``PORT COUNT FILTER ALIASES [NAME VALUE]...``, user properties of its SUBSCRIBE at the end.

Prints ``subscribed``, then topic and payload of each message, and ends after COUNT of them.
"""

from __future__ import annotations

import asyncio
import sys

import gmqtt


async def main() -> None:
    port, count, topic_filter, aliases = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    asks = list(zip(sys.argv[5::2], sys.argv[6::2], strict=True))
    done = asyncio.Event()
    got: list[str] = []

    def on_message(_client: object, topic: str, payload: bytes, *_: object) -> int:
        got.append(topic)
        print(topic, payload.decode(), flush=True)
        if len(got) == count:
            done.set()
        return 0

    client = gmqtt.Client("reader", **({"topic_alias_maximum": aliases} if aliases else {}))
    client.on_message = on_message
    client.on_subscribe = lambda *_: print("subscribed", flush=True)
    await client.connect("127.0.0.1", port, version=5)
    client.subscribe(topic_filter, qos=1, **({"user_property": asks} if asks else {}))
    await asyncio.wait_for(done.wait(), 30)
    await client.disconnect()


asyncio.run(main())
