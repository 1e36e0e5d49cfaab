"""Certificates that change on the disk."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from gateway.transports.tls import TlsCodec
from penstock.errors import InvalidConfig
from penstock.service.certificates import Certificates, Files
from penstock.service.validity import ends_at
from tests.gateway.wire_ends import Authority, TlsEnd


def served(authority: Authority, certificates: Certificates) -> int:
    """The serial number of the certificate that a new connection gets."""
    end = TlsEnd(authority.client_context(), TlsCodec(certificates.context))
    end.shake_hands()
    return int(end.tls.getpeercert()["serialNumber"], 16)  # type: ignore[index,arg-type]


def test_a_renewed_certificate_serves_new_connections_and_leaves_the_old_ones_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt")
    before = served(authority, certificates)
    end = TlsEnd(authority.client_context(), TlsCodec(certificates.context))
    end.shake_hands()
    assert not certificates.refresh()
    authority.renew()
    assert certificates.refresh()
    assert not certificates.refresh()
    assert served(authority, certificates) != before
    assert end.send(b"still there") == b"still there"


def test_files_are_read_again_for_who_asks_changed_or_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt")
    before = certificates.context
    assert not certificates.refresh()
    assert certificates.refresh(anyway=True)
    assert certificates.context is not before


def test_a_change_is_seen_also_where_a_file_keeps_its_time(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt")
    before, found = served(authority, certificates), authority.server.stat()
    authority.renew()
    os.utime(authority.server, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert certificates.refresh()
    assert served(authority, certificates) != before


def test_files_that_cannot_be_read_later_leave_what_was_read_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt")
    before = served(authority, certificates)
    whole = authority.server.read_bytes()
    authority.server.write_bytes(whole[:200])
    assert not certificates.refresh()
    assert "stays" in caplog.text
    authority.server.unlink()
    assert not certificates.refresh()
    assert served(authority, certificates) == before
    authority.server.write_bytes(whole)
    os.utime(authority.server, ns=(1, 1))
    assert certificates.refresh()


@pytest.mark.parametrize("text", ["", "no certificate at all"])
def test_what_is_no_certificate_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.pem"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=r"server\.pem"):
        Certificates(Files(str(path)), "mqtt")


def test_why_files_do_not_serve_is_said_in_words(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    whole, other = authority.server.read_text(), authority.client("other.example").read_text()
    begin = "-----BEGIN CERTIFICATE-----"
    files = {name: tmp_path / name for name in ("certificate", "key", "other", "nothing")}
    texts = (begin + whole.partition(begin)[2], whole.partition(begin)[0], other.partition(begin)[0], "nothing")
    for path, text in zip(files.values(), texts, strict=True):
        path.write_text(text)
    certificate, key, foreign, nothing = map(str, files.values())
    assert Certificates(Files(certificate, key), "mqtt").context
    for served, why in {
        Files(certificate): f"{certificate}: there is no key in it; name its file with key=FILE",
        Files(certificate, nothing): f"{certificate}: there is no key in {nothing}",
        Files(certificate, foreign): f"{certificate}: the key is of another certificate",
        Files(certificate, str(tmp_path / "none")): f"{tmp_path / 'none'}: No such file or directory",
        Files(key, key): f"{key}: there is no certificate in PEM in it",
        Files(certificate, key, nothing): f"{nothing}: there is no certificate in PEM in it",
    }.items():
        with pytest.raises(InvalidConfig) as caught:
            Certificates(served, "mqtt")
        assert str(caught.value) == f"cannot read the certificate {why}"


def test_when_certificate_and_list_end_is_told_as_they_are_renewed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt")
    assert certificates.list_ends_at is None
    certificates = Certificates(authority.files("required", str(authority.revoke(days=1))), "mqtt")
    first = certificates.ends_at, certificates.list_ends_at
    assert first == (ends_at(authority.server.read_text()), ends_at((tmp_path / "crl.pem").read_text()))
    authority.revoke(days=2)
    assert certificates.refresh()
    assert certificates.list_ends_at is not None
    assert first[1] is not None
    assert 86_300 < certificates.list_ends_at - first[1] < 86_500


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        Certificates(Files(str(tmp_path / "none.pem")), "mqtt")


def test_a_missing_authority_is_one_clear_error(tmp_path: Path) -> None:
    files = Authority(tmp_path).files()._replace(client_ca=str(tmp_path / "nobody.pem"), clients="required")
    with pytest.raises(InvalidConfig, match=r"nobody\.pem"):
        Certificates(files, "mqtt")


def lets_in(authority: Authority, certificates: Certificates, client: Path | None) -> bool:
    """Whether a client with this certificate gets through, as TLS 1.3 tells it: by an answer, or by none."""
    codec = TlsCodec(certificates.context)
    end = TlsEnd(authority.client_context(client), codec)
    end.shake_hands()
    return not codec.over and end.send(b"x") == b"x"


@pytest.mark.parametrize("clients", ["required", "optional"])
def test_a_revoked_certificate_lets_nobody_in_from_the_list_s_next_reading_on(tmp_path: Path, clients: str) -> None:
    authority = Authority(tmp_path)
    good, lost = authority.client("good.example"), authority.client("lost.example")
    certificates = Certificates(authority.files(clients, str(authority.revoke())), "mqtt")
    assert [lets_in(authority, certificates, one) for one in (good, lost)] == [True, True]
    authority.revoke(lost)
    certificates.refresh(anyway=True)
    assert [lets_in(authority, certificates, one) for one in (good, lost)] == [True, False]
    assert lets_in(authority, certificates, None) == (clients == "optional")


def test_a_list_past_its_time_or_of_another_authority_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    client = authority.client("good.example")
    for path in (authority.revoke(days=-1), other.revoke()):
        certificates = Certificates(authority.files("required", str(path)), "mqtt")
        assert not lets_in(authority, certificates, client)


def test_a_file_without_a_list_is_one_clear_error(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for path, said in ((authority.ca, "no list|there is no"), (tmp_path / "none.pem", "No such file")):
        with pytest.raises(InvalidConfig, match=said):
            Certificates(authority.files("required", str(path)), "mqtt")


def test_files_that_could_not_be_read_are_tried_again_although_they_are_unchanged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt")
    before = certificates.context

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    authority.server.touch()
    with monkeypatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_cert_chain", refuse)
        assert [certificates.refresh() for _ in range(3)] == [False] * 3
    assert (certificates.context, len(caplog.records)) == (before, 1)
    assert certificates.refresh()
    assert not certificates.refresh()
    assert certificates.context is not before


def test_files_that_were_read_again_have_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(authority.files(), "mqtt", "listener doors")
    whole = authority.server.read_bytes()
    authority.server.write_bytes(whole[:200])
    assert not certificates.refresh()
    assert caplog.messages[0].startswith(f"cannot read the certificate {authority.server}")
    caplog.clear()
    authority.server.write_bytes(whole)
    assert certificates.refresh()
    told = f"{authority.server}: read again and in force at listener doors"
    assert caplog.messages == [told]
    authority.renew()
    assert certificates.refresh()
    assert not certificates.refresh()
    assert caplog.messages == [told] * 2
    assert certificates.refresh(anyway=True)
    assert caplog.messages == [told] * 3


def test_nobody_comes_in_with_an_old_session_where_the_list_has_ended_or_an_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    client = authority.client_context(authority.client("good.example"))
    path = authority.revoke()
    list_s, authority_s = ends_at(path.read_text()), ends_at(authority.ca.read_text())
    assert list_s is not None
    assert authority_s is not None
    certificates = Certificates(authority.files("required", str(path)), "mqtt")
    for end_s in (list_s, authority_s):
        assert not certificates.refresh(end_s - 1)
        first = TlsEnd(client, TlsCodec(certificates.context, end_s - 1))
        first.shake_hands()
        first.receive(first.codec.encode(b"tickets come with this"))
        assert certificates.refresh(end_s)
        assert not certificates.refresh(end_s)
        again = TlsEnd(client, TlsCodec(certificates.context), first.tls.session)
        again.shake_hands()
        assert not again.tls.session_reused
    assert caplog.messages == [f"{path} has ended: no client can log in by it"] * 2
