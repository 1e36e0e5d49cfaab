"""Whose a token is: every way to forge one, every key that does not fit, and time that is an argument."""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.token_keys import ALGORITHMS
from penstock.access.tokens import (
    FLAWS,
    TOKEN_BYTES_MAX,
    Holder,
    TokenKeys,
    TokenRules,
    Unfit,
    is_token,
)
from penstock.errors import InvalidConfig

SECRET = "a secret of this test, with more than 32 bytes in it; " * 2
NOW_S = 1_800_000_000
BIG = 10**309
PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65_537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def public(private: Any) -> str:
    pem: bytes = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def signed(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> bytes:
    return jwt.encode({"sub": "alice", "exp": NOW_S + 60} | claims, key, algorithm, headers=headers).encode()


def found(token: bytes, key: str = SECRET, now_s: float = NOW_S, **rules: Any) -> Holder | Unfit:
    return TokenKeys(key, TokenRules(**{"leeway_s": 0, **rules})).read(token, int(now_s * 1000))


def read(token: bytes, key: str = SECRET, now_s: float = NOW_S, **rules: Any) -> Holder | None:
    """Whose it is, or none."""
    told = found(token, key, now_s, **rules)
    return told if isinstance(told, Holder) else None


def test_why_a_token_does_not_count_is_told_apart() -> None:
    ours = {"audience": "penstock", "issuer": "https://id.example"}
    claims = {"aud": "penstock", "iss": "https://id.example"}
    key = public(PRIVATE["ES256"])
    for expected, token in {
        Unfit("token_expired", "alice", "it ended 40 s ago"): signed(claims | {"exp": NOW_S - 40}),
        Unfit("token_not_yet_valid", "alice", "it begins in 40 s"): signed(claims | {"nbf": NOW_S + 40}),
        Unfit("token_malformed", "alice", "a time in it is none"): signed_raw(
            claims | {"sub": "alice", "exp": "tomorrow"}
        ),
        Unfit("token_wrong_audience"): signed(claims | {"aud": "other"}),
        Unfit("token_wrong_audience", detail="it has no 'aud'"): signed({"iss": "https://id.example"}),
        Unfit("token_wrong_issuer"): signed(claims | {"iss": "https://evil.example"}),
        Unfit("token_wrong_issuer", detail="it has no 'iss'"): signed({"aud": "penstock"}),
        Unfit("token_claim_missing", detail="it has no 'exp'"): signed_raw(claims | {"sub": "alice"}),
        Unfit("token_bad_user", detail="the claim 'sub' is no name"): signed(claims | {"sub": "a\nb"}),
        Unfit("token_bad_signature"): signed(claims | {"exp": NOW_S - 40}, SECRET + "another"),
        Unfit("token_wrong_algorithm"): signed(claims, SECRET, "HS512"),
        Unfit("token_malformed"): b"eyJh.eyJh.x",
        Unfit("token_malformed", detail="more than 16384 bytes"): signed(claims | {"x": "y" * TOKEN_BYTES_MAX}),
    }.items():
        assert found(token, **ours) == expected
        assert expected.cause in FLAWS
    assert found(signed({}, PRIVATE["EdDSA"], "EdDSA"), key) == Unfit("token_wrong_algorithm")
    assert found(signed({}, ec.generate_private_key(ec.SECP256R1()), "ES256"), key) == Unfit("token_bad_signature")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512", "RS256", "PS384", *PRIVATE])
def test_a_token_is_its_users_by_every_kind_of_key(algorithm: str) -> None:
    private = PRIVATE.get("RS256" if algorithm == "PS384" else algorithm)
    key = SECRET if private is None else public(private)
    token = signed({}, private or SECRET, algorithm)
    assert is_token(token)
    assert read(token, key, algorithms=(algorithm,)) == Holder("alice", 60)
    broken = token[:-8] + (b"AAAAAAAA" if token[-8:] != b"AAAAAAAA" else b"BBBBBBBB")
    assert read(broken, key, algorithms=(algorithm,)) is None


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_the_usual_algorithm_of_a_key_needs_no_naming(algorithm: str) -> None:
    assert read(signed({}, PRIVATE[algorithm], algorithm), public(PRIVATE[algorithm])) == Holder("alice", 60)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> bytes:
    parts = [json.dumps(one).encode() for one in (header, claims)] + [signature]
    return b".".join(urlsafe_b64encode(one).rstrip(b"=") for one in parts)


def test_a_token_without_a_signature_never_counts() -> None:
    claims = {"sub": "alice", "exp": NOW_S + 60}
    for algorithm in ("none", "None", "NONE", "nOnE", "", None, [], ["HS256"], {"a": 1}, 1):
        assert read(unsigned({"alg": algorithm, "typ": "JWT"}, claims)) is None
        assert read(unsigned({"alg": algorithm, "typ": "JWT"}, claims), public(PRIVATE["RS256"])) is None
    assert read(unsigned({"typ": "JWT"}, claims)) is None
    assert "none" not in {one.lower() for one in ALGORITHMS}


def test_a_public_key_is_never_a_secret() -> None:
    """The old trick: the public key, which everybody has, as the secret of an HMAC."""
    import hashlib
    import hmac

    for private in PRIVATE.values():
        pem = public(private)
        head = unsigned({"alg": "HS256", "typ": "JWT"}, {"sub": "alice", "exp": NOW_S + 60}).rstrip(b".")
        signature = urlsafe_b64encode(hmac.digest(pem.encode(), head, hashlib.sha256)).rstrip(b"=")
        assert read(head + b"." + signature, pem) is None
        with pytest.raises(InvalidConfig, match="does not fit"):
            TokenKeys(pem, TokenRules(algorithms=("HS256",)))


def key_set(**keys: tuple[Any, str]) -> str:
    """A set in JSON of public keys, by name, each with its algorithm."""
    rows = []
    for name, (private, algorithm) in keys.items():
        made = json.loads(str(jwt.get_algorithm_by_name(algorithm).to_jwk(private.public_key())))
        rows.append(made | {"kid": name, "alg": algorithm})
    return json.dumps({"keys": rows})


OLD, NEW = PRIVATE["ES256"], ec.generate_private_key(ec.SECP256R1())
BOTH = key_set(old=(OLD, "ES256"), new=(NEW, "ES256"), rsa=(PRIVATE["RS256"], "PS256"))


def test_of_several_keys_a_token_names_the_one_that_counts() -> None:
    for name, private in (("old", OLD), ("new", NEW)):
        assert found(signed({}, private, "ES256", kid=name), BOTH) == Holder("alice", 60)
    assert found(signed({}, PRIVATE["RS256"], "PS256", kid="rsa"), BOTH) == Holder("alice", 60)
    assert found(signed({}, NEW, "ES256", kid="old"), BOTH) == Unfit("token_bad_signature")
    assert found(signed({}, NEW, "ES256", kid="gone"), BOTH) == Unfit("token_unknown_key")
    assert found(signed({}, PRIVATE["RS256"], "RS256", kid="rsa"), BOTH) == Unfit("token_wrong_algorithm")
    assert found(signed({}, NEW, "ES256", kid="rsa"), BOTH) == Unfit("token_wrong_algorithm")
    assert found(signed({"exp": NOW_S - 9}, OLD, "ES256", kid="old"), BOTH) == Unfit(
        "token_expired", "alice", "it ended 9 s ago"
    )
    for name in ([], 7, {}):
        assert found(signed_raw({"sub": "alice"}, {"alg": "HS256", "kid": name}), BOTH) == Unfit("token_malformed")
    assert found(b"eyJ..", BOTH) == Unfit("token_malformed")


def test_a_token_that_names_no_key_counts_by_any() -> None:
    for private in (OLD, NEW):
        assert found(signed({}, private, "ES256"), BOTH) == Holder("alice", 60)
    assert found(signed({"exp": NOW_S - 9}, NEW, "ES256"), BOTH) == Unfit("token_expired", "alice", "it ended 9 s ago")
    assert found(signed({}, ec.generate_private_key(ec.SECP256R1()), "ES256"), BOTH) == Unfit("token_bad_signature")
    assert found(signed({}), BOTH) == Unfit("token_wrong_algorithm")


def test_keys_without_a_name_count_for_tokens_that_name_another() -> None:
    pem = public(OLD) + public(NEW)
    for private in (OLD, NEW):
        assert found(signed({}, private, "ES256", kid="whatever"), pem) == Holder("alice", 60)
    mixed = json.loads(BOTH)
    del mixed["keys"][0]["kid"]
    assert found(signed({}, OLD, "ES256", kid="whatever"), json.dumps(mixed)) == Holder("alice", 60)
    assert found(signed({}, NEW, "ES256", kid="whatever"), json.dumps(mixed)) == Unfit("token_bad_signature")


def test_an_algorithm_that_was_not_named_does_not_count_although_it_fits() -> None:
    assert read(signed({}, SECRET, "HS512")) is None
    assert read(signed({}, PRIVATE["RS256"], "PS256"), public(PRIVATE["RS256"])) is None


def test_a_token_counts_from_its_beginning_to_its_end_by_the_time_given() -> None:
    token = signed({"nbf": NOW_S - 10})
    assert read(token, now_s=NOW_S - 11) is None
    assert read(token, now_s=NOW_S - 10) == Holder("alice", 70)
    assert read(token, now_s=NOW_S + 59.5) == Holder("alice", 0.5)
    assert read(token, now_s=NOW_S + 60) is None
    assert read(token, now_s=NOW_S + 60, leeway_s=5) == Holder("alice", 5)
    assert read(token, now_s=NOW_S - 14, leeway_s=5) == Holder("alice", 79)


def test_a_token_without_an_end_counts_only_where_that_is_allowed() -> None:
    token = jwt.encode({"sub": "alice"}, SECRET, "HS256").encode()
    assert read(token) is None
    assert read(token, needs_expiry=False) == Holder("alice", float("inf"))
    assert read(signed({}), now_s=NOW_S + 61, needs_expiry=False) is None, "an end that is there counts"


@pytest.mark.parametrize(
    "end", ["tomorrow", None, True, [], {}, float("nan"), float("inf"), "1800000060", BIG, -BIG], ids=repr
)
@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_times_that_are_none_refuse_a_token(claim: str, end: Any) -> None:
    assert read(signed_raw({"sub": "alice", "exp": NOW_S + 60} | {claim: end})) is None


def signed_raw(claims: Any, header: Any = None) -> bytes:
    """Signed with the secret, whatever it says."""
    import hashlib
    import hmac

    head = unsigned({"alg": "HS256", "typ": "JWT"} if header is None else header, claims).rstrip(b".")
    return head + b"." + urlsafe_b64encode(hmac.digest(SECRET.encode(), head, hashlib.sha256)).rstrip(b"=")


def test_audience_and_issuer_must_be_as_set() -> None:
    ours = {"audience": "penstock", "issuer": "https://id.example"}
    claims = {"aud": "penstock", "iss": "https://id.example"}
    assert read(signed(claims), **ours) == Holder("alice", 60)
    assert read(signed(claims | {"aud": ["other", "penstock"]}), **ours) == Holder("alice", 60)
    for wrong in ({"aud": "other"}, {"iss": "https://id.example.evil"}, {"aud": []}, {"iss": ["https://id.example"]}):
        assert read(signed_raw({"sub": "alice", "exp": NOW_S + 60} | claims | wrong), **ours) is None
    for missing in claims:
        assert read(signed({name: one for name, one in claims.items() if name != missing}), **ours) is None
    assert read(signed({"aud": "somebody"})) is None, "it is for somebody else"


def test_the_user_is_named_by_the_claim_that_was_chosen() -> None:
    assert read(signed({"client": "d7"}), claim="client") == Holder("d7", 60)
    assert read(signed({}), claim="client") is None
    assert read(signed({"sub": "auth0|bücher:7"})) == Holder("auth0|bücher:7", 60)
    for name in ("", "a\nb", "a\0", "x" * 1025, 7, None, ["alice"], {}):
        assert read(signed_raw({"sub": name, "exp": NOW_S + 60})) is None


def test_a_missing_library_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(InvalidConfig) as caught:
        TokenKeys(SECRET, TokenRules())
    assert "pip install 'penstock[jwt]'" in (caught.value.hint or "")


def test_what_is_no_token_is_nobodys() -> None:
    deep = urlsafe_b64encode(b"[" * 9000).rstrip(b"=")
    for text in (
        b"",
        b"..",
        b"eyJ..",
        b"eyJh.eyJh.x",
        b"\xff.\xff.\xff",
        deep + b"." + deep + b".AAAA",
        signed({"x": "y" * TOKEN_BYTES_MAX}),
        signed({}, b64=False),
        signed({}, crit=["exp"], exp=1),
        signed_raw([1, 2]),
        signed_raw("alice"),
        signed_raw(None),
    ):
        assert read(text) is None
    assert not is_token(b"a password.with.dots")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["sub", "exp", "nbf", "iat", "aud", "iss", "jti", "alg", "typ", "kid", "crit", "b64", "zip"])


@given(st.dictionaries(NAMES, JSON), JSON | st.dictionaries(NAMES, JSON))
def test_whatever_header_and_claims_say_there_is_a_holder_or_none(header: dict[str, Any], claims: Any) -> None:
    for head in (header, {"alg": "HS256", **header}, {**header, "alg": "HS256"}):
        told = found(signed_raw(claims, head))
        if isinstance(told, Unfit):
            assert told.cause in FLAWS
        else:
            assert (told.user_name, told.left_s > 0) == (claims["sub"], True)


@given(st.binary(max_size=100))
def test_any_bytes_are_nobodys(data: bytes) -> None:
    assert read(data) is None
