"""The password file: a line per user, ``NAME:$scrypt$ln=14,r=8,p=1$SALT$HASH``, behind which the keys for SCRAM may
follow, ``$scram-sha-256$i=32768$SALT$STOREDKEY$SERVERKEY``, and the secret key by which RocketMQ's clients sign,
``$hmac-sha1$SECRET``. docs/formats/access.md is the page.

A password is never kept, only its scrypt hash (RFC 7914) with a salt of its own, and what SCRAM keeps of it with
another. Hashing takes tens of milliseconds and 16 MiB on purpose; a service that checks many passwords does it in a
thread. Salts, hashes and keys are base64 without padding.

For an unknown user the answer is a *decoy*: the costs of known users, with a salt that belongs to the name as long as
the file's secret (the line that begins with a colon) stays. So a stranger cannot find out names. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.access.scram import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN, KEY_BYTES, ScramKeys, keyed
from penstock.errors import InvalidConfig

LOG2_COST: Final = 14
BLOCK: Final = 8
PARALLEL: Final = 1
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
NAME_BYTES_MAX: Final = 255
PASSWORD_BYTES_MAX: Final = 65_535
_HMAC_BLOCK_BYTES: Final = 64
_DIGEST_BYTES: Final = 32
_MEMORY_BYTES_MAX: Final = 256 << 20
_LOG2_COST_PER_BLOCK: Final = 16
"""RFC 7914, 2: the cost is less than 2^(128 * r / 8). OpenSSL computes no other."""
_HASH: Final = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{2,128})\$([A-Za-z0-9+/]{16,128})"
    r"(\$scram-sha-256\$i=(\d{1,8})\$([A-Za-z0-9+/]{2,86})\$([A-Za-z0-9+/]{43})\$([A-Za-z0-9+/]{43}))?"
    r"(\$hmac-sha1\$([A-Za-z0-9+/]{11,342}))?"
)
SIGNING_BYTES_MIN: Final = 8
SIGNING_BYTES_MAX: Final = 256
"""The shortest secret key: it is as good as its length, because an eavesdropper may try keys against a signature."""
SECRET_BYTES: Final = 32
_SECRET: Final = re.compile(r":secret\$([A-Za-z0-9+/]{43})")


class Hashed(NamedTuple):
    """A password as it is kept: cost parameters, salt and hash, and what SCRAM needs, if that is kept too.
    ``signing``: the user's secret key for signatures, which no hash can stand for; empty without one."""

    log2_cost: int
    block: int
    parallel: int
    salt: bytes
    hash: bytes
    scram: ScramKeys | None = None
    signing: bytes = b""

    def __repr__(self) -> str:  # not even a hash belongs into a log
        return "Hashed(...)"


class Users:
    """The users of a file.

    Attributes:
        by_name: each user's password.
        secret: what decoys are made of, empty in a file that has none yet; then they are made of the users, and
            change when those do.
    """

    def __init__(self, by_name: Mapping[str, Hashed], secret: bytes = b"") -> None:
        self.by_name = dict(by_name)
        self.secret = secret
        self._key = secret or hashlib.sha256(format_passwords(self).encode()).digest()
        every = self.by_name.values()
        costs = {(one.log2_cost, one.block, one.parallel, len(one.salt), len(one.hash)) for one in every}
        scram = {(one.scram.iterations, len(one.scram.salt)) for one in every if one.scram is not None}
        self._costs = sorted(costs) or [(LOG2_COST, BLOCK, PARALLEL, SALT_BYTES, HASH_BYTES)]
        self._scram_costs = sorted(scram) or [(ITERATIONS, SALT_BYTES)]

    def have(self, name: str, password: bytes) -> bool:
        """Whether a user of this name has this password. Slow, and equally so where there is no such user."""
        known = self.by_name.get(name)
        is_right = verify(known or self.decoy(name), password)
        return is_right and known is not None

    def decoy(self, name: str) -> Hashed:
        """A decoy for a user of this name: always the same, as costly as one of the users, and of no password."""

        def of(purpose: str) -> bytes:
            return keyed(self._key, f"{purpose}:{name}".encode(errors="surrogatepass"))

        log2_cost, block, parallel, salt_bytes, hash_bytes = self._costs[int.from_bytes(of("cost")) % len(self._costs)]
        pick = int.from_bytes(of("scram cost")) % len(self._scram_costs)
        iterations, scram_salt_bytes = self._scram_costs[pick]
        scram = ScramKeys(iterations, _stretched(of("scram salt"), scram_salt_bytes), of("stored"), of("server"))
        return Hashed(
            log2_cost, block, parallel, _stretched(of("salt"), salt_bytes), _stretched(of("hash"), hash_bytes), scram
        )


def _stretched(data: bytes, size: int) -> bytes:
    return (data * (size // len(data) + 1))[:size]


def hash_password(password: bytes, salt: bytes) -> Hashed:
    """A new password's hash. Slow."""
    return Hashed(LOG2_COST, BLOCK, PARALLEL, salt, _scrypt(password, LOG2_COST, BLOCK, PARALLEL, salt, HASH_BYTES))


def verify(hashed: Hashed, password: bytes) -> bool:
    """Whether this is the password. Slow, and equally so for a right and a wrong one."""
    found = _scrypt(password, hashed.log2_cost, hashed.block, hashed.parallel, hashed.salt, len(hashed.hash))
    return hmac.compare_digest(found, hashed.hash) and not stands_for_another(password)


def stands_for_another(password: bytes) -> bool:
    """Whether the bytes may have the hash of another password. HMAC, on which scrypt and SCRAM rest, fills a short key
    up with NULs and takes the SHA-256 of a key that is longer than its block (RFC 2104, 2). So bytes with a NUL at
    their end are no password, and 32 bytes are one only if they are text, as all that ``penstock user`` keeps: the
    SHA-256 of one long password in 100 million is text."""
    if password.endswith(b"\0"):
        return True
    if len(password) != _DIGEST_BYTES:
        return False
    try:
        password.decode()
    except UnicodeDecodeError:
        return True
    return False


def is_long(password: bytes) -> bool:
    """Whether HMAC takes the SHA-256 of this password in its place. A SCRAM client that knows only the SHA-256 can log
    in then, and no server can tell."""
    return len(password) > _HMAC_BLOCK_BYTES


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


def parse_passwords(text: str) -> Users:
    """Users and their hashes. Raises ``InvalidConfig`` that names the line, never its content."""
    users: dict[str, Hashed] = {}
    secret = b""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        own = _SECRET.fullmatch(line.strip())
        try:
            if own is not None and not secret:
                secret = _unpadded(own[1])
                continue
            check_user_name(name)
            if name in users:
                raise ValueError
            users[name] = _hashed(rest.strip())
        except (ValueError, InvalidConfig):
            raise InvalidConfig(
                f"line {number} of the password file is not NAME:HASH, or its name was there before",
                hint="make lines with `penstock user add`",
            ) from None
    return Users(users, secret)


def _hashed(text: str) -> Hashed:
    found = _HASH.fullmatch(text)
    if found is None:
        raise ValueError
    scram = None
    if found[6]:
        stored_key, server_key = _unpadded(found[9]), _unpadded(found[10])
        scram = ScramKeys(int(found[7]), _unpadded(found[8]), stored_key, server_key)
        if not ITERATIONS_MIN <= scram.iterations <= ITERATIONS_MAX or len(stored_key + server_key) != 2 * KEY_BYTES:
            raise ValueError
    signing = _unpadded(found[12]) if found[11] else b""
    if found[11] and not SIGNING_BYTES_MIN <= len(signing) <= SIGNING_BYTES_MAX:
        raise ValueError
    costs = int(found[1]), int(found[2]), int(found[3])
    hashed = Hashed(*costs, _unpadded(found[4]), _unpadded(found[5]), scram, signing)
    if not (1 <= hashed.log2_cost <= 20 and hashed.block and hashed.parallel):
        raise ValueError
    if hashed.log2_cost >= _LOG2_COST_PER_BLOCK * hashed.block:
        raise ValueError
    if 128 * hashed.block << hashed.log2_cost >= _MEMORY_BYTES_MAX:
        raise ValueError
    return hashed


def format_passwords(users: Users) -> str:
    """The text of a password file."""
    secret = f":secret${_packed((users.secret,))[0]}\n" if users.secret else ""
    return secret + "".join([f"{name}:{_line(hashed)}\n" for name, hashed in users.by_name.items()])


def _line(hashed: Hashed) -> str:
    salt, digest = _packed((hashed.salt, hashed.hash))
    line = f"$scrypt$ln={hashed.log2_cost},r={hashed.block},p={hashed.parallel}${salt}${digest}"
    scram = hashed.scram
    if scram is not None:
        line += f"$scram-sha-256$i={scram.iterations}$" + "$".join(_packed(scram[1:]))
    return f"{line}$hmac-sha1${_packed((hashed.signing,))[0]}" if hashed.signing else line


def _packed(values: Iterable[bytes]) -> list[str]:
    return [b64encode(value).decode().rstrip("=") for value in values]


def _unpadded(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)
