"""The settings of the services that `penstock up` runs, as it knows them before anything starts.

Each is its table in the file, its environment, then what the node decides.
"""

from __future__ import annotations

import os
from typing import Any

from gateway.settings import GatewaySettings
from gateway.transports.listening import parse_listeners
from node import settings
from node.settings import Configuration
from penstock.service.extras import needed_extra
from penstock.service.status import open_socket


def service_settings(configuration: Configuration, service: str, **given: object) -> Any:
    """As ``node.settings.service_settings``, with this process's environment."""
    return settings.service_settings(configuration, service, os.environ, **given)


def events_server() -> Any:
    """The event bridge's ``run``; its code loads only where it is wanted. Raises ``InvalidConfig`` if its packages are
    not installed."""
    with needed_extra("the event bridge", "events"):
        from events.server import run

    return run


def console_server() -> Any:
    """The web console's ``run``; its code loads only where it is wanted, a quarter of what a start takes."""
    from console.server import run

    return run


def rocketmq_server() -> Any:
    """``run`` of the front for RocketMQ's clients; its code loads only where it is wanted."""
    from remoting.server import run

    return run


def refuse_taken_ports(configuration: Configuration) -> None:
    """Raises ``AddressInUse`` if another process listens already. Gateways that share a port would share it with those
    of another system too, and half the devices would connect there unnoticed."""
    gateway: GatewaySettings = service_settings(configuration, "gateway")
    others = [(one.host, one.port) for one in parse_listeners(gateway.listeners)]
    for host, port in [(gateway.host, gateway.port), *others]:
        if port:
            open_socket(host, port, "the gateway").close()
