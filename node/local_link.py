"""Links to services in the same process: no hop, no encoding, the same requests and outcomes as over the wire.

The link to such a service is its session. ``LocalLinks`` answers for the addresses of embedded services and passes
every other address on to the wire.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.protocol.link import Link, Links


class LocalLinks:
    """``Links`` that prefers the embedded services.

    Args:
        embedded: address ("host:port") -> link of each service in this process.
        wire: links for every other address.
    """

    def __init__(self, embedded: Mapping[str, Link], wire: Links) -> None:
        self._embedded = embedded
        self._wire = wire

    def link(self, address: str) -> Link:
        """The link to a service; never waits."""
        return self._embedded.get(address) or self._wire.link(address)

    def give_up(self, address: str) -> None:
        """Ends requests that wait at an address on the wire; an embedded service answers by itself as long as it is
        there."""
        if address not in self._embedded:
            self._wire.give_up(address)
