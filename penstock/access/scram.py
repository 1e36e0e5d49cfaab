"""The keys of a password for SCRAM-SHA-256 (RFC 5802, RFC 7677): salt, iterations, StoredKey and ServerKey.

Their holder can check a client's proof and prove itself to the client, but cannot log in with them: that takes the
ClientKey, of which StoredKey is the hash. So a password is never kept, and never sent. How the keys stand in the
password file is said in ``penstock/access/passwords.py``; the exchange of messages is
``penstock/access/scram_exchange.py``. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import stringprep
import unicodedata
from typing import Final, NamedTuple

ITERATIONS: Final = 32_768
ITERATIONS_MIN: Final = 4096
"""RFC 7677, 4: no fewer."""
ITERATIONS_MAX: Final = 10_000_000
SALT_BYTES: Final = 16
KEY_BYTES: Final = 32

_FORBIDDEN: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


class ScramKeys(NamedTuple):
    """A password as SCRAM keeps it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:  # no key belongs into a log
        return "ScramKeys(...)"


def derive_keys(password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """Derives the keys of a password. It is as slow as the iterations make it, for client and attacker alike."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared_password(password), salt, iterations)
    stored_key = hashlib.sha256(keyed(salted, b"Client Key")).digest()
    return ScramKeys(iterations, salt, stored_key, keyed(salted, b"Server Key"))


def keyed(key: bytes, message: bytes) -> bytes:
    """RFC 5802's HMAC(key, str) for SHA-256."""
    return hmac.digest(key, message, hashlib.sha256)


def prepared_password(password: bytes) -> bytes:
    """A password as clients hash it. One that SASLprep forbids, or that is no text, is taken as it is: so do the
    clients that let such a password be used at all."""
    try:
        return prepare(password.decode()).encode()
    except ValueError:
        return password


def prepare(text: str) -> str:
    """SASLprep (RFC 4013) for text that is kept: other spaces become spaces, what is not seen goes, and compatible
    characters become one. Raises ``ValueError`` for a character that is forbidden, and for nothing left."""
    if text.isascii() and text.isprintable() and text:
        return text
    mapped = [" " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one)]
    result = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(mapped))
    if not result or any(forbidden(one) for one in result for forbidden in _FORBIDDEN):
        raise ValueError("a character that SASLprep forbids, or none at all")
    if any(map(stringprep.in_table_d1, result)):  # text that is read from right to left (RFC 3454, 6)
        ends = (result[0], result[-1])
        if any(map(stringprep.in_table_d2, result)) or not all(map(stringprep.in_table_d1, ends)):
            raise ValueError("text that is read in both directions")
    return result
