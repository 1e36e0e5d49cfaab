from __future__ import annotations

import pytest

from events.addresses import AllowedAddresses

PRIVATE = [
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1"),
    *("64:ff9b::7f00:1", "2002:7f00:1::", "::ffff:169.254.169.254", "host", ""),
    *(
        "fec0::1",
        "3fff::1",
        "5f00::1",
        "64:ff9b:1::808:808",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "192.0.0.8",
        "2001:0:7f00:1::",
    ),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_not_allowed(address: str) -> None:
    assert not AllowedAddresses().allows(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_a_public_address_is_allowed(address: str) -> None:
    assert AllowedAddresses().allows(address)


def test_what_the_operator_lists_is_allowed_and_its_neighbour_is_not() -> None:
    allowed = AllowedAddresses(["127.0.0.1/32", "fd00::/8"])
    assert [allowed.allows(one) for one in ("127.0.0.1", "::ffff:127.0.0.1", "fd00::1")] == [True] * 3
    assert [allowed.allows(one) for one in ("127.0.0.2", "::1", "10.0.0.1")] == [False] * 3
