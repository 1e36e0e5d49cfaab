from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from penstock.service.validity import ends_at
from tests.gateway.wire_ends import Authority

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(ends: datetime) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x" * 60)])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1 << 150)
    made = made.public_key(KEY.public_key()).not_valid_before(datetime(1951, 1, 1)).not_valid_after(ends)
    return made.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize("ends", [datetime(1960, 2, 3), datetime(2049, 12, 31, 23, 59, 59), datetime(2050, 1, 1)])
def test_a_certificate_ends_when_it_says(ends: datetime) -> None:
    assert ends_at(certificate(ends)) == ends.replace(tzinfo=UTC).timestamp()


def test_of_a_chain_the_first_to_end_counts_and_what_else_stands_there_does_not() -> None:
    chain = "a comment\n" + "".join([certificate(datetime(year, 1, 1)) for year in (2040, 2030, 2045)])
    assert ends_at(chain) == datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def test_a_list_of_revoked_certificates_ends_with_its_next_update(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for path in (authority.revoke(), authority.revoke(authority.client("lost.example"), days=-1)):
        made = x509.load_pem_x509_crl(path.read_bytes())
        assert made.next_update_utc is not None
        assert ends_at(path.read_text()) == made.next_update_utc.timestamp()


def test_what_is_no_certificate_has_no_end() -> None:
    whole = certificate(datetime(2030, 1, 1))
    for text in ("", "nothing", whole[:200], whole.replace("CERTIFICATE", "PUBLIC KEY"), whole.replace("M", "!", 1)):
        assert ends_at(text) is None


@given(st.binary(max_size=60), st.sampled_from(["CERTIFICATE", "X509 CRL"]))
def test_any_bytes_have_an_end_or_none(data: bytes, kind: str) -> None:
    block = ssl.DER_cert_to_PEM_cert(data).replace("CERTIFICATE", kind)
    assert isinstance(ends_at(block), float | None)
