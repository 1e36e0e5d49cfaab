"""The settings of the services that `penstock up` runs, as it knows them before anything starts.

Each is its table in the file, its environment, then what the node decides. A wrong one is told at once and in the same
words, whether the services run in this process or in others, and not after a broker has recovered its log.
"""

from __future__ import annotations

import os
from typing import Any

from gateway.settings import GatewaySettings
from gateway.transports.listening import parse_listeners
from node.settings import SERVICES, SETTINGS, Configuration, listeners, place
from penstock import config
from penstock.status import open_socket


def service_settings(configuration: Configuration, service: str, **given: object) -> Any:
    """Settings of one service, where it listens included; ``given``: what else the node decides. Raises
    ``InvalidConfig``."""
    table, prefix = configuration.services[service], f"PENSTOCK_{service.upper()}"
    decided = place(configuration, service, os.environ) | given
    if service == "gateway":
        decided |= listeners(configuration, os.environ)
    return config.load_table(SETTINGS[service], table, os.environ, prefix, decided, source=f"[{service}]")


def check(configuration: Configuration) -> None:
    """Raises ``InvalidConfig`` for the first setting of a service that is wrong."""
    for service in SERVICES:
        service_settings(configuration, service)


def refuse_taken_ports(configuration: Configuration) -> None:
    """Raises ``AddressInUse`` where somebody listens already. Gateways that share a port among them would share it with
    those of another system too, and half the devices would be there, without a word."""
    gateway: GatewaySettings = service_settings(configuration, "gateway")
    others = [(one.host, one.port) for one in parse_listeners(gateway.listeners)]
    for host, port in [(gateway.host, gateway.port), *others]:
        if port:
            open_socket(host, port).close()
