"""The keys of a file: every form, every one that does not fit, and none that is shown."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.token_keys import ALGORITHMS, KEYS_MAX, Key, check_algorithms, parse_keys
from penstock.errors import InvalidConfig

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


def row(algorithm: str, **fields: Any) -> dict[str, Any]:
    """A public key in JSON, without its algorithm."""
    made: dict[str, Any] = json.loads(str(jwt.get_algorithm_by_name(algorithm).to_jwk(PRIVATE[algorithm].public_key())))
    return made | {"key_ops": ["verify"], **fields}


def of_set(*rows: Any, wanted: tuple[str, ...] = ()) -> list[tuple[str, list[str]]]:
    """Name and algorithms of each key of a set."""
    return [(key.name, key.algorithms) for key in parse_keys(json.dumps({"keys": rows}), wanted)]


def test_algorithms_are_those_that_are_to_be_had() -> None:
    check_algorithms(ALGORITHMS)
    for one in ("none", "HS1", ""):
        with pytest.raises(InvalidConfig):
            check_algorithms([one])


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_public_key_is_read_in_pem_and_in_json(algorithm: str) -> None:
    pem, in_json = public(PRIVATE[algorithm]), json.dumps(row(algorithm))
    [key] = parse_keys(pem, ())
    for text in (in_json, "\ufeff" + in_json, json.dumps({"keys": [row(algorithm)]}, indent=2)):
        [same] = parse_keys(text, ())
        assert (same.key.public_numbers() if hasattr(key.key, "public_numbers") else same.key.public_bytes_raw()) == (
            key.key.public_numbers() if hasattr(key.key, "public_numbers") else key.key.public_bytes_raw()
        )
        assert (same.algorithms, same.name) == ([algorithm], "")


def test_keys_in_pem_may_stand_one_below_the_other() -> None:
    both = f"# the old one\n{public(PRIVATE['RS256'])}\n# the new one\n{public(PRIVATE['ES256'])}"
    assert [key.algorithms for key in parse_keys(both, ())] == [["RS256"], ["ES256"]]
    with pytest.raises(InvalidConfig, match="no public key in PEM"):
        parse_keys(both.removesuffix("-----END PUBLIC KEY-----\n"), ())
    with pytest.raises(InvalidConfig, match="does not fit RS256"):
        parse_keys(both, ("RS256",))


def test_each_key_of_a_set_has_its_name_and_its_own_algorithms() -> None:
    secret = {"kty": "oct", "k": urlsafe_b64encode(b"s" * 64).rstrip(b"=").decode(), "kid": "d"}
    rows = (row("RS256", kid="a", alg="PS256"), row("RS256", kid="b", use="sig"), row("ES256"), secret)
    assert of_set(*rows) == [("a", ["PS256"]), ("b", ["RS256"]), ("", ["ES256"]), ("d", ["HS256"])]
    wanted = ("RS256", "PS256", "HS512")
    assert of_set(*rows, wanted=wanted) == [("a", ["PS256"]), ("b", ["RS256", "PS256"]), ("d", ["HS512"])]


def test_keys_that_are_not_for_us_are_passed_over_as_long_as_there_is_one_left() -> None:
    short = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(rsa.generate_private_key(65_537, 1024).public_key()))
    others: dict[str, Any] = {
        "not for signatures": row("RS256", use="enc"),
        "which does not fit": row("RS256", alg="HS256"),
        "RSA for none, which does not fit none": row("RS256", alg="none"),
        "RSA, but too short": short,
        "secret is too short": {"kty": "oct", "k": "c2hvcnQ"},
        "of another kind": {"kty": "OKP", "crv": "Ed448", "x": "AA"},
        "or is none": {"kty": "EC", "crv": "P-256", "x": "!", "y": "!"},
        "a key is an object": "key",
        "`alg` and `kid`": row("RS256", kid=7),
    }
    assert of_set(*others.values(), row("ES256", kid="ours")) == [("ours", ["ES256"])]
    for why, other in others.items():
        with pytest.raises(InvalidConfig, match=why):
            of_set(other)
    for none in ([], {}, None, "x"):
        with pytest.raises(InvalidConfig, match="no key in it can be used: there is none"):
            parse_keys(json.dumps({"keys": none}), ())
    with pytest.raises(InvalidConfig, match=f"{KEYS_MAX} at most"):
        of_set(*[row("ES256")] * (KEYS_MAX + 1))


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_private_key_in_a_set_is_refused_and_not_shown(algorithm: str) -> None:
    private = json.loads(str(jwt.get_algorithm_by_name(algorithm).to_jwk(PRIVATE[algorithm])))
    with pytest.raises(InvalidConfig, match="private key") as caught:
        of_set(row("ES256"), private)
    assert private["d"] not in str(caught.value)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["kty", "alg", "kid", "use", "crv", "x", "y", "n", "e", "k", "x5c"])
KINDS = st.sampled_from(["RSA", "EC", "OKP", "oct"])


@given(st.dictionaries(FIELDS, ANY_JSON), KINDS | ANY_JSON)
def test_whatever_a_set_says_there_are_keys_or_a_clear_error(fields: dict[str, Any], kind: Any) -> None:
    with contextlib.suppress(InvalidConfig):
        assert of_set({"crv": "P-256", **fields, "kty": kind})


def forms(algorithm: str) -> dict[str, str]:
    """A public key, which everybody has, in forms that are neither PEM nor JSON; by what the refusal calls them."""
    private = PRIVATE[algorithm]
    public_key = private.public_key()
    der: bytes = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ssh = public_key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return {
        "DER, one line": b64encode(der).decode(),
        "DER, lines": encodebytes(der).decode() + "\n",
        "DER, of URLs": urlsafe_b64encode(der).decode().rstrip("="),
        "DER, certificate": b64encode(certificate(private)).decode(),
        "PEM, first line lost": public(private).split("\n", 1)[1],
        "OpenSSH": ssh + " alice@example",
        "OpenSSH, without its name": ssh.split()[1],
    }


def certificate(private: Any) -> bytes:
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "id.example")]), datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    made = made.public_key(private.public_key()).not_valid_before(now).not_valid_after(now)
    hashed = None if isinstance(private, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return made.sign(private, hashed).public_bytes(Encoding.DER)


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_public_key_in_another_form_is_no_secret_either_and_the_refusal_says_what_to_write(algorithm: str) -> None:
    for form, text in forms(algorithm).items():
        with pytest.raises(InvalidConfig, match=form.partition(",")[0]) as caught:
            parse_keys(text, ())
        assert "PEM" in str(caught.value), form
        assert text.strip() not in str(caught.value), form


def test_keys_of_rsa_alone_and_private_ones_are_no_secrets_either() -> None:
    private = PRIVATE["RS256"]
    for der in (
        private.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1),
        private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
    ):
        with pytest.raises(InvalidConfig, match="DER"):
            parse_keys(b64encode(der).decode(), ())


@given(st.binary(min_size=32, max_size=200))
def test_what_looks_like_base64_or_json_and_is_no_key_is_a_secret(data: bytes) -> None:
    for key in (
        b64encode(data).decode(),
        urlsafe_b64encode(b"\x30" + data).decode(),
        json.dumps({"secret": data.hex()}),
        json.dumps([data.hex()]),
        "[" * 100_000,
        "ssh keys are not meant " + data.hex(),
    ):
        assert parse_keys(key, ()) == [Key(key.encode(), ["HS256"])]


def test_a_key_that_cannot_be_used_is_refused_at_the_start_and_never_shown() -> None:
    private = PRIVATE["RS256"]
    bad = {
        "too short": "short secret",
        "private key": private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "no public key": public(private).replace("MII", "!!!"),
        "RSA, but too short": public(rsa.generate_private_key(65_537, 1024)),
        "secp256k1": public(ec.generate_private_key(ec.SECP256K1())),
    }
    for why, text in bad.items():
        with pytest.raises(InvalidConfig, match=why) as caught:
            parse_keys(text, ())
        assert text.strip() not in str(caught.value)
    with pytest.raises(InvalidConfig, match="too short for HS512"):
        parse_keys("x" * 63, ("HS256", "HS512"))
    with pytest.raises(InvalidConfig, match="does not fit ES256, HS256"):
        parse_keys(public(private), ("ES256", "HS256"))
    with pytest.raises(InvalidConfig, match="too short for HS256"):
        parse_keys("", ())
