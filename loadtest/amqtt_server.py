"""amqtt's broker as a process: ``python -m loadtest.amqtt_server PORT``. Prints ``ready`` when it accepts."""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings


async def serve(port: int) -> None:
    """Runs the broker until the process ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from amqtt.broker import Broker  # type: ignore[import-untyped]

        config = {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
        broker = Broker(config)
        await broker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(serve(int(sys.argv[1])))
