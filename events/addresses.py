"""The addresses that HTTP targets may have: public ones, and those that the operator lists. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NOT_PUBLIC: Final = [
    ipaddress.ip_network(one)
    for one in ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10")
]
"""Networks that IANA's registries of special addresses list, and that some versions of Python take for public."""


class AllowedAddresses:
    """Judges addresses. ``private``: networks that are allowed although they are not public."""

    def __init__(self, private: Sequence[str] = ()) -> None:
        self._private = [ipaddress.ip_network(one) for one in private]

    def allows(self, text: str) -> bool:
        """Whether a target may be at this address; any other text is not allowed."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        return all([self._is_allowed(one) for one in _meant(address)])

    def _is_allowed(self, address: Address) -> bool:
        is_public = (
            address.is_global
            and not address.is_multicast
            and not address.is_reserved
            and not any([address in network for network in _NOT_PUBLIC])
        )
        return is_public or any([address in network for network in self._private])


def _meant(address: Address) -> list[Address]:
    """The address, or the one of IPv4 that it stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    return [address]
