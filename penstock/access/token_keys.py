"""The keys that check tokens, as a file has them, and the algorithms of each.

A file has public keys in PEM, one below the other; or one key or a set of keys in JSON (RFC 7517) with their names
(``kid``); or else it is a secret. So two keys can be valid at a time, and keys can be replaced without refusing tokens.
A key's algorithms are those that it names (``alg``), else those of the settings that fit it, else the first that fits
it. ``none`` is never one, and a public key is never taken for a secret.

A public key in another form (DER in base64, OpenSSH's) would look like a secret that everybody has, so it is refused.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidConfig

KEYS_MAX: Final = 32
"""A token that names no key is read with all of them."""
_RSA_BITS_MIN: Final = 2048
_BEGIN: Final = "-----BEGIN "
_END: Final = "-----END "
_SSH: Final = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-", "---- BEGIN SSH2 ")
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02

# Kind of key -> algorithms that fit it, the first one where none is named.
FITTING: Final = MappingProxyType(
    {
        "secret": ("HS256", "HS384", "HS512"),
        "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        "secp256r1": ("ES256",),
        "secp384r1": ("ES384",),
        "secp521r1": ("ES512",),
        "Ed25519": ("EdDSA",),
    }
)
ALGORITHMS: Final = tuple(one for fitting in FITTING.values() for one in fitting)
# A secret is at least as long as the hash (RFC 7518, 3.2).
_SECRET_BYTES_MIN: Final = MappingProxyType({"HS256": 32, "HS384": 48, "HS512": 64})


class Key(NamedTuple):
    """A key as PyJWT takes it, and the algorithms that count for it. ``name``: its ``kid``, empty if it has none."""

    key: Any
    algorithms: list[str]
    name: str = ""


def check_algorithms(algorithms: Sequence[str]) -> None:
    """Raises ``InvalidConfig`` for one that is none, or is not to be had."""
    for one in algorithms:
        if one not in ALGORITHMS:
            raise InvalidConfig(
                f"jwt_algorithms names {one!r}", hint=f"those to be had are {', '.join(ALGORITHMS)}; none is not"
            )


def parse_keys(text: str, wanted: Sequence[str]) -> list[Key]:
    """The keys of a file. ``wanted``: the algorithms of the settings; empty: the usual ones.

    Raises:
        InvalidConfig: there is no key, or one that cannot be used. It shows none.
    """
    rows = _json_keys(text)
    if rows is not None:
        keys = _of_json(rows, wanted)
    elif _BEGIN in text or _END in text:
        keys = [_fitted(_public(block), wanted) for block in _blocks(text)]
    else:
        keys = [_fitted(_secret(text), wanted)]
    if len(keys) > KEYS_MAX:
        raise InvalidConfig(f"there are {len(keys)} keys in it", hint=f"{KEYS_MAX} at most")
    return keys


def _fitted(key: Any, wanted: Sequence[str], own: str = "", name: str = "") -> Key:
    """A key with the algorithms that count for it. ``own``: the one that it names itself. Raises ``InvalidConfig``
    where there is none."""
    kind = _kind(key)
    if kind not in FITTING:
        raise InvalidConfig(
            f"the public key is {kind}", hint="RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519 are to be had"
        )
    fitting = FITTING[kind]
    named = [one for one in wanted or (own or fitting[0],) if own in ("", one)]
    algorithms = [one for one in named if one in fitting]
    if not algorithms:
        of_key = f"{kind} for {own}" if own else kind
        raise InvalidConfig(
            f"the key is {of_key}, which does not fit {', '.join(wanted) or own}",
            hint=f"jwt_algorithms: of {', '.join(fitting)}",
        )
    for one in algorithms:
        if isinstance(key, bytes) and len(key) < _SECRET_BYTES_MIN[one]:
            raise InvalidConfig(f"the secret is too short for {one}: {_SECRET_BYTES_MIN[one]} bytes at least")
    return Key(key, algorithms, name)


def _kind(key: Any) -> str:
    """Its name in ``FITTING``; any other text for a key that cannot be used."""
    if isinstance(key, bytes):
        return "secret"
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, RSAPublicKey):
        return "RSA" if key.key_size >= _RSA_BITS_MIN else "RSA, but too short"
    if isinstance(key, EllipticCurvePublicKey):
        return key.curve.name
    return "Ed25519" if isinstance(key, Ed25519PublicKey) else "of another kind"


# ------------------------------------------------------------ PEM and JSON


def _blocks(text: str) -> list[str]:
    """Each key in PEM with its first line; text before the first is a comment."""
    return [_BEGIN + block for block in text.split(_BEGIN)[1:]] or [text]


def _public(block: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in block:
        raise _private_key()
    try:
        return load_pem_public_key(block.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidConfig("this is no public key in PEM", hint="it begins with -----BEGIN PUBLIC KEY-----") from None


def _private_key() -> InvalidConfig:
    return InvalidConfig("this is a private key", hint="checking tokens takes the public key only")


def _json_keys(text: str) -> list[Any] | None:
    """The keys of a file in JSON (RFC 7517), one or a set; ``None`` if it is no such file."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not ("kty" in found or "keys" in found):
        return None
    rows = found.get("keys", [found])
    return rows if isinstance(rows, list) else []


def _of_json(rows: list[Any], wanted: Sequence[str]) -> list[Key]:
    """The usable keys of a set. An identity provider may publish others too, for other purposes: they are skipped,
    except private ones, as long as one key is left."""
    if any([isinstance(row, dict) and "d" in row for row in rows]):
        raise _private_key()
    keys: list[Key] = []
    why = "there is none"
    for row in rows:
        try:
            keys.append(_of_row(row, wanted))
        except InvalidConfig as error:
            why = str(error)
    if not keys:
        raise InvalidConfig(f"no key in it can be used: {why}")
    return keys


def _of_row(row: Any, wanted: Sequence[str]) -> Key:
    import jwt

    if not isinstance(row, dict):
        raise InvalidConfig("a key is an object with `kty`")
    if row.get("use", "sig") != "sig":
        raise InvalidConfig("the key is not for signatures")
    own, name = row.pop("alg", ""), row.get("kid", "")
    if not isinstance(own, str) or not isinstance(name, str):
        raise InvalidConfig("`alg` and `kid` of a key are strings")
    try:
        key = jwt.PyJWK(row).key
    except (jwt.PyJWTError, ValueError, TypeError, LookupError, AttributeError):  # what it says may show the key
        raise InvalidConfig("the key is of another kind, or is none") from None
    return _fitted(key, wanted, own, name)


def _secret(text: str) -> bytes:
    """A shared secret. Raises ``InvalidConfig`` for a key in an unsupported form."""
    bare = text.strip("\ufeff \t\r\n")
    packed = _unpacked(bare)
    form = ""
    if bare.startswith(_SSH) or _is_ssh(packed):
        form = "in the form of OpenSSH"
    elif _is_der(packed):
        form = "as DER in base64, without the lines of PEM"
    if form:
        raise InvalidConfig(
            f"this is a key {form}, which would be taken for a secret",
            hint="write the public key in PEM, with its first line -----BEGIN PUBLIC KEY----- and its last one",
        )
    return text.rstrip("\r\n").encode()


def _unpacked(text: str) -> bytes:
    """Decodes base64 in either alphabet; empty for any other text."""
    packed = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except ValueError:
        return b""


def _is_ssh(data: bytes) -> bool:
    """Whether this is a key of RFC 4253, 6.6: a length of four bytes and the name of its kind come first."""
    return data[4:].startswith(tuple(one.encode() for one in _SSH)) and int.from_bytes(data[:4]) < len(data)


def _is_der(data: bytes) -> bool:
    """Whether this is one SEQUENCE that begins with another, as public keys and certificates do, or with a number, as
    RSA's own form and private keys do. Of random secrets one in eight millions is."""
    if len(data) < 2 or data[0] != _SEQUENCE:
        return False
    more = data[1] - 0x80 if data[1] > 0x80 else 0  # number of bytes of the length
    begins = 2 + more
    size = int.from_bytes(data[2:begins]) if more else data[1]
    return len(data) == begins + size and data[begins : begins + 1] in (bytes([_SEQUENCE]), bytes([_INTEGER]))
