"""The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677) as a machine of two steps: bytes in, bytes or a verdict out.

    client  n,,n=USER,r=CNONCE
    server  r=CNONCE+SNONCE,s=SALT,i=COUNT
    client  c=biws,r=CNONCE+SNONCE,p=PROOF
    server  v=SIGNATURE

In MQTT they travel in CONNECT, AUTH and CONNACK, at the native ports in ``Login`` and ``LoginStep``.

The proof shows that the client knows the password, the signature that the server has its keys. Neither can be used
again, because each exchange has new nonces. There is no channel binding: a client that offers none (``n``) or would
prefer it (``y``) is accepted, one that insists (``p=``) is refused. An unknown user goes through the same steps, with
keys that no proof fits; so the caller's ``keys_of`` must answer for any name, and always with the same keys.

Invariants: a machine ends once, with ``Proven`` or ``Denied``, and then knows nothing more; ``Proven`` only for keys
that are still the user's. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.access.scram import KEY_BYTES, ScramKeys, keyed, prepare
from penstock.protocol.logins import SCRAM

METHOD: Final = SCRAM
"""The same name in MQTT."""
MALFORMED: Final = "malformed"
CHANNEL_BINDING: Final = "channel_binding"
WRONG_PROOF: Final = "wrong_proof"
MESSAGE_BYTES_MAX: Final = 4096
_NAME_CHARACTERS_MAX: Final = 255
_ENCODED: Final = re.compile("(?:[^=]|=2C|=3D)*")


class Challenge(NamedTuple):
    """The server's message in an exchange that continues."""

    data: bytes


class Proven(NamedTuple):
    """The client has proven that it is this user. ``data``: by which the server proves itself."""

    user_name: str
    data: bytes


class Denied(NamedTuple):
    """The client has not. ``cause``: for figures, never for the client."""

    cause: str


class _Refused(Exception):
    """The reason for the end of the exchange."""


class ScramExchange:
    """One authentication.

    Args:
        keys_of: the keys of a user by name, those of a decoy where there is no such user.
        nonce: the server's part of the nonce: printable ASCII without a comma, never the same twice, not foreseeable.
    """

    __slots__ = ("_first", "_header", "_is_over", "_keys", "_keys_of", "_nonce", "_sent", "_user")

    def __init__(self, keys_of: Callable[[str], ScramKeys], nonce: str) -> None:
        self._keys_of = keys_of
        self._nonce = nonce
        self._header = ""  # the GS2 header
        self._first = ""  # client-first-message-bare
        self._sent = ""  # server-first-message
        self._user = ""
        self._keys: ScramKeys | None = None
        self._is_over = False

    def receive(self, data: bytes) -> Challenge | Proven | Denied:
        """Handles the client's next message."""
        if self._is_over:
            return Denied(MALFORMED)
        try:
            text = _text(data)
            if self._keys is None:
                return self._begin(text)
            self._is_over = True
            return self._judge(text, self._keys)
        except _Refused as refused:
            self._is_over = True
            return Denied(str(refused))

    def _begin(self, text: str) -> Challenge:
        binding, authorization, bare = _split(text, 3)
        if binding.startswith("p="):
            raise _Refused(CHANNEL_BINDING)
        if binding not in ("n", "y"):
            raise _Refused(MALFORMED)
        parts = bare.split(",")
        if len(parts) < 2 or _mandatory(parts):
            raise _Refused(MALFORMED)
        self._user, nonce = _name(_value(parts[0], "n")), _value(parts[1], "r")
        if not nonce or not nonce.isascii() or not nonce.isprintable() or " " in nonce:
            raise _Refused(MALFORMED)
        if authorization and _name(_value(authorization, "a")) != self._user:  # no user acts for another
            raise _Refused(MALFORMED)
        self._header, self._first, self._nonce = f"{binding},{authorization},", bare, nonce + self._nonce
        self._keys = keys = self._keys_of(self._user)
        self._sent = f"r={self._nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"
        return Challenge(self._sent.encode())

    def _judge(self, text: str, keys: ScramKeys) -> Proven:
        without_proof, comma, proof_part = text.rpartition(",")
        parts = without_proof.split(",")
        if not comma or len(parts) < 2 or _mandatory(parts):
            raise _Refused(MALFORMED)
        proof = _decoded(_value(proof_part, "p"))
        header = _decoded(_value(parts[0], "c"))
        if len(proof) != KEY_BYTES or header != self._header.encode() or _value(parts[1], "r") != self._nonce:
            raise _Refused(MALFORMED)
        message = f"{self._first},{self._sent},{without_proof}".encode()
        signature = keyed(keys.stored_key, message)
        client_key = bytes([one ^ other for one, other in zip(proof, signature, strict=True)])
        is_right = hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)
        if not is_right or self._keys_of(self._user) != keys:  # the file may have changed meanwhile
            raise _Refused(WRONG_PROOF)
        return Proven(self._user, b"v=" + b64encode(keyed(keys.server_key, message)))

    @property
    def user(self) -> str:
        """The user that the client claims, empty before."""
        return self._user


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES_MAX or b"\0" in data:
        raise _Refused(MALFORMED)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _Refused(MALFORMED) from None


def _split(text: str, count: int) -> list[str]:
    parts = text.split(",", count - 1)
    if len(parts) != count:
        raise _Refused(MALFORMED)
    return parts


def _value(attribute: str, name: str) -> str:
    if not attribute.startswith(f"{name}="):
        raise _Refused(MALFORMED)
    return attribute[2:]


def _mandatory(parts: list[str]) -> bool:
    """Whether there is an extension that must be understood (RFC 5802, 5.1: ``m``), or anything that is none."""
    return any(part[:2] == "m=" or part[1:2] != "=" or not part[:1].isalpha() for part in parts)


def _name(encoded: str) -> str:
    """A user name: ``=2C`` is a comma and ``=3D`` an equals sign, and there is no other ``=`` (RFC 5802, 5.1)."""
    if len(encoded) > _NAME_CHARACTERS_MAX * 3 or not _ENCODED.fullmatch(encoded):
        raise _Refused(MALFORMED)
    try:
        return prepare(encoded.replace("=2C", ",").replace("=3D", "="))
    except ValueError:
        raise _Refused(MALFORMED) from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise _Refused(MALFORMED) from None
