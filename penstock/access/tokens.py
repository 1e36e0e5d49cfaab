"""JSON Web Tokens (RFC 7519) as passwords: the user of a token, and its end.

A token is valid if one of our keys signed it, by an algorithm of that key (``token_keys.py``); if it has this audience
and issuer, where these are set; and at this time. If no audience is set, a token with an audience is refused. A token
that names a key (``kid``) is checked with the key of that name or, without one, with unnamed keys; any other token with
all keys.

An invalid token gives its reason to the operator alone (``Unfit``). The signature is checked first, so the claims in
the reason are true. Making ``TokenKeys`` loads PyJWT and cryptography (the extra ``jwt``). Pure otherwise; time is an
argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.access.token_keys import Key, parse_keys
from penstock.errors import InvalidConfig

TOKEN_BYTES_MAX: Final = 16 * 1024
USER_NAME_BYTES_MAX: Final = 1024
_TOKEN_BEGINS: Final = b"eyJ"  # {" in base64

NO_TOKEN: Final = "token_malformed"
BAD_SIGNATURE: Final = "token_bad_signature"
UNKNOWN_KEY: Final = "token_unknown_key"
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
    UNKNOWN_KEY,
    WRONG_ALGORITHM,
    WRONG_AUDIENCE,
    WRONG_ISSUER,
    CLAIM_MISSING,
    BAD_USER,
    EXPIRED,
    TOO_EARLY,
)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The conditions for a valid token.

    Attributes:
        algorithms: by which it may be signed; empty: of each key the one that it names, or the first that fits it.
        audience, issuer: whom it is for and who made it, empty for none.
        claim: what names the user.
        needs_expiry: whether it must say until when it counts.
        leeway_s: the largest difference between its clock and ours.
    """

    algorithms: Sequence[str] = ()
    audience: str = ""
    issuer: str = ""
    claim: str = "sub"
    needs_expiry: bool = True
    leeway_s: float = 5.0


class Holder(NamedTuple):
    """The user of a token. ``left_s``: for how long it is still valid."""

    user_name: str
    left_s: float


class Unfit(NamedTuple):
    """The reason why a token is invalid. ``user_name``: its user, if one of our keys signed it. ``detail``:
    more for the log; nothing that a forger has chosen is in it."""

    cause: str
    user_name: str = ""
    detail: str = ""


def is_token(password: bytes) -> bool:
    """Whether a password has the form of a token."""
    return password.startswith(_TOKEN_BEGINS) and password.count(b".") == 2


class TokenKeys:
    """The keys of a file and the rules, with which tokens are read."""

    def __init__(self, text: str, rules: TokenRules) -> None:
        """Raises ``InvalidConfig``, which never shows a key, for one that is none or does not fit."""
        try:
            import jwt
        except ImportError:
            raise InvalidConfig(
                "jwt_key_file needs PyJWT, which is not installed", hint="pip install 'penstock[jwt]'"
            ) from None
        self._decode = jwt.decode
        self._header = jwt.get_unverified_header
        self._errors = (jwt.PyJWTError, ValueError, RecursionError)
        self._missing: type[Exception] = jwt.MissingRequiredClaimError
        self._causes: dict[type[Exception], str] = {
            jwt.InvalidSignatureError: BAD_SIGNATURE,
            jwt.InvalidAlgorithmError: WRONG_ALGORITHM,
            jwt.InvalidAudienceError: WRONG_AUDIENCE,
            jwt.InvalidIssuerError: WRONG_ISSUER,
        }
        self._rules = rules
        self._keys = parse_keys(text, rules.algorithms)
        self._are_named = any([key.name for key in self._keys])

    def read(self, token: bytes, now_ms: int) -> Holder | Unfit:
        """The user of a token, or the reason why it is invalid. ``now_ms``: milliseconds since 1970."""
        if len(token) > TOKEN_BYTES_MAX:
            return Unfit(NO_TOKEN, detail=f"more than {TOKEN_BYTES_MAX} bytes")
        try:
            keys = self._keys_for(token)
        except self._errors as error:
            return self._unfit(error)
        told = Unfit(UNKNOWN_KEY)
        for key in keys:
            found = self._read_with(key, token, now_ms)
            if not isinstance(found, Unfit) or found.cause not in (BAD_SIGNATURE, WRONG_ALGORITHM):
                return found
            told = told if told.cause == BAD_SIGNATURE else found
        return told

    def _keys_for(self, token: bytes) -> Sequence[Key]:
        name = self._header(token).get("kid") if self._are_named else None
        if name is None:
            return self._keys
        return [key for key in self._keys if key.name == name] or [key for key in self._keys if not key.name]

    def _read_with(self, key: Key, token: bytes, now_ms: int) -> Holder | Unfit:
        rules = self._rules
        required = [rules.claim, "exp"] if rules.needs_expiry else [rules.claim]
        try:
            claims = self._decode(
                token,
                key.key,
                algorithms=key.algorithms,
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
    """The user of a token that is valid apart from its times."""
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
