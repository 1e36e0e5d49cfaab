"""The password file: a line per user, ``NAME:$scrypt$ln=14,r=8,p=1$SALT$HASH``. docs/formats/access.md is the page.

A password is never kept, only its scrypt hash (RFC 7914) with a salt of its own. Hashing takes tens of milliseconds and
16 MiB on purpose; whoever checks many passwords does it in a thread. Salt and hash are base64 without padding. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.errors import InvalidConfig

LOG2_COST: Final = 14
BLOCK: Final = 8
PARALLEL: Final = 1
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
NAME_BYTES_MAX: Final = 255
PASSWORD_BYTES_MAX: Final = 65_535
_MEMORY_BYTES_MAX: Final = 256 << 20
_HASH: Final = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{2,128})\$([A-Za-z0-9+/]{16,128})"
)


class Hashed(NamedTuple):
    """A password as it is kept: cost parameters, salt and hash."""

    log2_cost: int
    block: int
    parallel: int
    salt: bytes
    hash: bytes

    def __repr__(self) -> str:  # not even a hash belongs into a log
        return "Hashed(...)"


NOBODY: Final = Hashed(LOG2_COST, BLOCK, PARALLEL, bytes(SALT_BYTES), bytes(HASH_BYTES))
"""Checked for a user who is not there, so that it takes as long as for one who is. No password has this hash."""


def hash_password(password: bytes, salt: bytes) -> Hashed:
    """A new password's hash. Slow."""
    return Hashed(LOG2_COST, BLOCK, PARALLEL, salt, _scrypt(password, LOG2_COST, BLOCK, PARALLEL, salt, HASH_BYTES))


def verify(hashed: Hashed, password: bytes) -> bool:
    """Whether this is the password. Slow, and equally so for a right and a wrong one."""
    log2_cost, block, parallel, salt, expected = hashed
    found = _scrypt(password, log2_cost, block, parallel, salt, len(expected))
    return hmac.compare_digest(found, expected)


def _scrypt(password: bytes, log2_cost: int, block: int, parallel: int, salt: bytes, size: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << log2_cost, r=block, p=parallel, maxmem=_MEMORY_BYTES_MAX, dklen=size
    )


def check_user_name(name: str) -> None:
    """Raises ``InvalidConfig`` unless a line may begin with this name."""
    if not name or len(name.encode()) > NAME_BYTES_MAX or ":" in name or not name.isprintable() or name[0] == "#":
        raise InvalidConfig(
            f"{name!r} is no user name",
            hint=f"it has 1 to {NAME_BYTES_MAX} bytes, is printable, has no colon and does not begin with #",
        )


def parse_passwords(text: str) -> dict[str, Hashed]:
    """Users and their hashes. Raises ``InvalidConfig`` that names the line, never its content."""
    users: dict[str, Hashed] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        found = _HASH.fullmatch(rest.strip())
        try:
            check_user_name(name)
            if found is None or name in users:
                raise ValueError
            hashed = Hashed(int(found[1]), int(found[2]), int(found[3]), _unpadded(found[4]), _unpadded(found[5]))
            if not (1 <= hashed.log2_cost <= 20 and hashed.block and hashed.parallel):
                raise ValueError
            if 128 * hashed.block << hashed.log2_cost >= _MEMORY_BYTES_MAX:
                raise ValueError
        except (ValueError, InvalidConfig):
            raise InvalidConfig(
                f"line {number} of the password file is not NAME:HASH, or its name was there before",
                hint="make lines with `penstock user add`",
            ) from None
        users[name] = hashed
    return users


def format_passwords(users: Mapping[str, Hashed]) -> str:
    """The text of a password file."""
    return "".join([f"{name}:{_line(hashed)}\n" for name, hashed in users.items()])


def _line(hashed: Hashed) -> str:
    salt, digest = _packed((hashed.salt, hashed.hash))
    return f"$scrypt$ln={hashed.log2_cost},r={hashed.block},p={hashed.parallel}${salt}${digest}"


def _packed(values: Iterable[bytes]) -> list[str]:
    return [b64encode(value).decode().rstrip("=") for value in values]


def _unpadded(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)
