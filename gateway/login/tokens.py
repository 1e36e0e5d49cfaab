"""JSON Web Tokens (RFC 7519) as passwords: whose one is, and until when.

A token counts if it is signed with the key, by one of the algorithms that were named at the start and fit the key; if
it is for this audience and from this issuer, where those are set; and at this time. The header of a token chooses among
those algorithms and nothing else: ``none`` is never one of them, and a public key is never taken for a secret. A token
for an audience, where none is set here, is somebody else's.

A public key is written in PEM. In any other form (DER in base64, JSON, OpenSSH's) it would look like a secret, and one
that everybody has: so these are refused.

One that does not count says why, for the operator alone (``Unfit``). The signature is looked at first, so that what is
told of the claims, the user's name among it, is true.

PyJWT and cryptography (the extra ``jwt``) are loaded by whoever makes a ``TokenKey``. Time is an argument; pure but for
that.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidConfig

TOKEN_BYTES_MAX: Final = 16 * 1024
USER_NAME_BYTES_MAX: Final = 1024
_RSA_BITS_MIN: Final = 2048
_PEM: Final = ("-----BEGIN ", "-----END ")
_SSH: Final = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-", "---- BEGIN SSH2 ")
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_TOKEN_BEGINS: Final = b"eyJ"  # {" in base64

NO_TOKEN: Final = "token_malformed"
BAD_SIGNATURE: Final = "token_bad_signature"
WRONG_ALGORITHM: Final = "token_wrong_algorithm"
WRONG_AUDIENCE: Final = "token_wrong_audience"
WRONG_ISSUER: Final = "token_wrong_issuer"
CLAIM_MISSING: Final = "token_claim_missing"
BAD_USER: Final = "token_bad_user"
EXPIRED: Final = "token_expired"
TOO_EARLY: Final = "token_not_yet_valid"
FLAWS: Final = (
    NO_TOKEN,
    BAD_SIGNATURE,
    WRONG_ALGORITHM,
    WRONG_AUDIENCE,
    WRONG_ISSUER,
    CLAIM_MISSING,
    BAD_USER,
    EXPIRED,
    TOO_EARLY,
)

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


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must be.

    Attributes:
        algorithms: by which it may be signed; empty: the first that fits the key.
        audience, issuer: whom it is for and who made it, empty for none.
        claim: what names the user.
        needs_expiry: whether it must say until when it counts.
        leeway_s: by so much its clock and ours may differ.
    """

    algorithms: Sequence[str] = ()
    audience: str = ""
    issuer: str = ""
    claim: str = "sub"
    needs_expiry: bool = True
    leeway_s: float = 5.0


class Holder(NamedTuple):
    """Whose token it is. ``left_s``: for how long it still counts."""

    user_name: str
    left_s: float


class Unfit(NamedTuple):
    """Why a token does not count. ``user_name``: whose it would be, if it is signed by the key. ``detail``: more for
    the log; nothing that a forger has chosen is in it."""

    cause: str
    user_name: str = ""
    detail: str = ""


def is_token(password: bytes) -> bool:
    """Whether a password has the form of a token."""
    return password.startswith(_TOKEN_BEGINS) and password.count(b".") == 2


def check_algorithms(algorithms: Sequence[str]) -> None:
    """Raises ``InvalidConfig`` for one that is none, or is not to be had."""
    for one in algorithms:
        if one not in ALGORITHMS:
            raise InvalidConfig(
                f"jwt_algorithms names {one!r}", hint=f"those to be had are {', '.join(ALGORITHMS)}; none is not"
            )


class TokenKey:
    """The key of a file and the rules, with which tokens are read."""

    def __init__(self, text: str, rules: TokenRules) -> None:
        """Raises ``InvalidConfig``, which never shows the key, for a key that is none or does not fit."""
        try:
            import jwt
        except ImportError:
            raise InvalidConfig(
                "jwt_key_file needs PyJWT, which is not installed", hint="pip install 'penstock[jwt]'"
            ) from None
        self._decode = jwt.decode
        self._errors = (jwt.PyJWTError, ValueError, RecursionError)
        self._missing: type[Exception] = jwt.MissingRequiredClaimError
        self._causes: dict[type[Exception], str] = {
            jwt.InvalidSignatureError: BAD_SIGNATURE,
            jwt.InvalidAlgorithmError: WRONG_ALGORITHM,
            jwt.InvalidAudienceError: WRONG_AUDIENCE,
            jwt.InvalidIssuerError: WRONG_ISSUER,
        }
        self._rules = rules
        self._key, kind = _key(text)
        fitting = FITTING[kind]
        self._algorithms = list(rules.algorithms) or [fitting[0]]
        for one in self._algorithms:
            if one not in fitting:
                raise InvalidConfig(
                    f"the key is {kind}, which does not fit {one}", hint=f"jwt_algorithms: of {', '.join(fitting)}"
                )
            if isinstance(self._key, bytes) and len(self._key) < _SECRET_BYTES_MIN[one]:
                raise InvalidConfig(f"the secret is too short for {one}: {_SECRET_BYTES_MIN[one]} bytes at least")

    def read(self, token: bytes, now_ms: int) -> Holder | Unfit:
        """Whose it is, or why it does not count. ``now_ms``: milliseconds since 1970."""
        rules = self._rules
        if len(token) > TOKEN_BYTES_MAX:
            return Unfit(NO_TOKEN, detail=f"more than {TOKEN_BYTES_MAX} bytes")
        required = [rules.claim, "exp"] if rules.needs_expiry else [rules.claim]
        try:
            claims = self._decode(
                token,
                self._key,
                algorithms=self._algorithms,
                audience=rules.audience or None,
                issuer=rules.issuer or None,
                options={
                    "require": required + ["aud"] * bool(rules.audience) + ["iss"] * bool(rules.issuer),
                    "verify_exp": False,  # by our clock, below
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except self._errors as error:
            return self._unfit(error)
        name = claims.get(rules.claim)
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= USER_NAME_BYTES_MAX:
            return Unfit(BAD_USER, detail=f"the claim {rules.claim!r} is no name")
        return _holder(name, claims, now_ms / 1000, rules.leeway_s)

    def _unfit(self, error: Exception) -> Unfit:
        if isinstance(error, self._missing):
            claim = getattr(error, "claim", "")
            where_set = {"aud": WRONG_AUDIENCE, "iss": WRONG_ISSUER}
            return Unfit(where_set.get(claim, CLAIM_MISSING), detail=f"it has no {claim!r}")
        return Unfit(next((cause for kind, cause in self._causes.items() if isinstance(error, kind)), NO_TOKEN))


def _holder(name: str, claims: dict[str, Any], now_s: float, leeway_s: float) -> Holder | Unfit:
    """Whose a token is that is right but for the times in it."""
    begins, ends = -math.inf, math.inf
    if "nbf" in claims:
        begins = _time(claims["nbf"])
    if "exp" in claims:
        ends = _time(claims["exp"])
    if math.isnan(begins) or math.isnan(ends):
        return Unfit(NO_TOKEN, name, "a time in it is none")
    left_s = ends - now_s + leeway_s
    if begins > now_s + leeway_s:
        return Unfit(TOO_EARLY, name, f"it begins in {begins - now_s:.0f} s")
    return Holder(name, left_s) if left_s > 0 else Unfit(EXPIRED, name, f"it ended {now_s - ends:.0f} s ago")


def _time(value: object) -> float:
    """A NumericDate; not-a-number where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        found = float(value)
    except OverflowError:
        return math.nan
    return found if math.isfinite(found) else math.nan


def _key(text: str) -> tuple[Any, str]:
    """The key and its kind."""
    if not any(mark in text for mark in _PEM):
        return _secret(text), "secret"
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in text:
        raise InvalidConfig("this is a private key", hint="who checks tokens needs the public key only")
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidConfig("this is no public key in PEM", hint="it begins with -----BEGIN PUBLIC KEY-----") from None
    kind = "of another kind"
    if isinstance(key, RSAPublicKey):
        kind = "RSA" if key.key_size >= _RSA_BITS_MIN else "RSA, but too short"
    elif isinstance(key, EllipticCurvePublicKey):
        kind = key.curve.name
    elif isinstance(key, Ed25519PublicKey):
        kind = "Ed25519"
    if kind not in FITTING:
        raise InvalidConfig(
            f"the public key is {kind}", hint="RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519 are to be had"
        )
    return key, kind


def _secret(text: str) -> bytes:
    """A shared secret. Raises ``InvalidConfig`` for what is a key in a form that is not read here."""
    bare = text.strip("\ufeff \t\r\n")
    packed = _unpacked(bare)
    form = ""
    if _is_json_key(bare):
        form = "as JSON (JWK)"
    elif bare.startswith(_SSH) or _is_ssh(packed):
        form = "in the form of OpenSSH"
    elif _is_der(packed):
        form = "as DER in base64, without the lines of PEM"
    if form:
        raise InvalidConfig(
            f"this is a key {form}, which would be taken for a secret",
            hint="write the public key in PEM, with its first line -----BEGIN PUBLIC KEY----- and its last one",
        )
    return text.rstrip("\r\n").encode()


def _is_json_key(text: str) -> bool:
    """Whether this is a key of RFC 7517, or a set of them."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and ("kty" in found or "keys" in found)


def _unpacked(text: str) -> bytes:
    """What this is the base64 of, in either alphabet; empty if it is none."""
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
    more = data[1] - 0x80 if data[1] > 0x80 else 0  # so many bytes of length follow
    begins = 2 + more
    size = int.from_bytes(data[2:begins]) if more else data[1]
    return len(data) == begins + size and data[begins : begins + 1] in (bytes([_SEQUENCE]), bytes([_INTEGER]))
