"""Token buckets, by time that is an argument: one, or one for each of a bounded number of keys.

A key is whatever is limited: an address, a listener, a client id. A bucket that is full again is as good as none, so it
is not kept for ever. Pure.
"""

from __future__ import annotations

import ipaddress
from typing import Final

KEYS_MAX: Final = 65_536
"""Number of keys that are remembered; a bucket that is full again is dropped first, then the oldest one."""
_IPV6_HOST_BITS: Final = 64


class Bucket:
    """``rate`` tokens come each second; at most ``most`` are kept, by default one second's worth and at least one."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: float, now: float, most: float = 0.0) -> None:
        self._rate = rate
        self._most = most or max(rate, 1.0)
        self._left = self._most
        self._at = now

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now

    def spend(self, count: float, now: float) -> float:
        """Takes a number of tokens, even if the bucket has fewer. Returns the seconds until the bucket is level again,
        0 if it is."""
        self._fill(now)
        self._left -= count
        return -self._left / self._rate if self._left < 0 else 0.0

    def take(self, now: float) -> bool:
        """Takes one token if there is one."""
        self._fill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def has(self, now: float) -> bool:
        """Whether there is a token."""
        self._fill(now)
        return self._left >= 1

    def give_back(self, now: float) -> None:
        """Puts a token back that was taken."""
        self._fill(now)
        self._left = min(self._most, self._left + 1)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new."""
        self._fill(now)
        return self._left >= self._most


class Buckets:
    """A bucket for each key; 0 for ``rate`` is no limit, and costs nothing."""

    def __init__(self, rate: float, most: float = 0.0) -> None:
        self._rate = rate
        self._most = most
        self._by_key: dict[str, Bucket] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def is_limit(self) -> bool:
        """Whether anything is limited."""
        return self._rate > 0

    def take(self, key: str, now: float) -> bool:
        """Takes one token if there is one."""
        return not self._rate or self._of(key, now).take(now)

    def spend(self, key: str, now: float) -> None:
        """Takes one token, there or not."""
        if self._rate:
            self._of(key, now).spend(1, now)

    def has(self, key: str, now: float) -> bool:
        """Whether there is a token."""
        bucket = self._by_key.get(key)
        return bucket is None or bucket.has(now)

    def give_back(self, key: str, now: float) -> None:
        """Puts a token back that was taken."""
        bucket = self._by_key.get(key)
        if bucket is not None:
            bucket.give_back(now)

    def _of(self, key: str, now: float) -> Bucket:
        bucket = self._by_key.get(key)
        if bucket is None:
            if len(self._by_key) >= KEYS_MAX:
                self._forget(now)
            bucket = self._by_key[key] = Bucket(self._rate, now, self._most)
        return bucket

    def _forget(self, now: float) -> None:
        """Makes room: for many at a time, because it looks at all."""
        kept = [(key, bucket) for key, bucket in self._by_key.items() if not bucket.is_full(now)]
        self._by_key = dict(kept[max(0, len(kept) - KEYS_MAX // 2) :])


def host_of(address: str) -> str:
    """The part that counts as one address: an IPv4 address, the network of an IPv6 address, or any other text as it
    is."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> _IPV6_HOST_BITS:x}::/{_IPV6_HOST_BITS}"
