"""TLS in memory: a client of the standard library against the codec."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_ends import PLACES, Authority, TlsEnd, outcome, pieces, single

from gateway.transports.tls import TlsCodec
from loadtest.proc import rss_bytes
from penstock.service.certificates import Certificates, name_of
from penstock.service.validity import ends_at


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def server(authority: Authority, clients: str = "none") -> TlsCodec:
    return TlsCodec(Certificates(authority.files(clients), "mqtt").context)


def joined(authority: Authority, clients: str = "none", certificate: Path | None = None) -> TlsEnd:
    end = TlsEnd(authority.client_context(certificate), server(authority, clients))
    end.shake_hands()
    return end


def test_bytes_go_both_ways(authority: Authority) -> None:
    end = joined(authority)
    assert end.send(b"to the server") == b"to the server"
    assert end.receive(end.codec.encode(b"to the client")) == b"to the client"
    assert not end.codec.over


def test_many_records_are_one_piece(authority: Authority) -> None:
    end = joined(authority)
    data = bytes(200_000)
    assert end.send(data) == data
    coded = end.codec.encode(data)
    got = end.receive(coded)
    while part := end.receive(b""):
        got += part
    assert got == data


def test_a_connection_that_was_sent_much_at_once_holds_none_of_it(authority: Authority) -> None:
    own = [os.getpid()]
    ends = [joined(authority) for _ in range(20)]
    large = bytes(2_000_000)
    before = rss_bytes(own)
    for end in ends:
        assert len(end.codec.encode(large)) > len(large)
    assert rss_bytes(own) - before < len(ends) * len(large) / 4


class CutTls(TlsCodec):
    """Is given each flight of its client in pieces."""

    def __init__(self, context: ssl.SSLContext, places: list[int]) -> None:
        super().__init__(context)
        self._places = places

    def decode(self, data: bytes) -> bytes:
        return b"".join([super(CutTls, self).decode(piece) for piece in pieces(data, self._places)])


DAMAGE = st.one_of(
    st.just(b""), st.binary(max_size=12), st.sampled_from([b"\x17\x03\x03\x00\x14" + bytes(20), b"GET / HTTP/1.1\r\n"])
)


@settings(max_examples=30)
@given(places=PLACES, sent=st.lists(st.sampled_from([b"one", bytes(20_000), b"two"]), max_size=4), damage=DAMAGE)
def test_any_cutting_of_handshake_records_and_damage_gives_the_same_bytes_and_the_same_end(
    authority: Authority, places: list[int], sent: list[bytes], damage: bytes
) -> None:
    context, found = Certificates(authority.files(), "mqtt").context, []
    for codec in (TlsCodec(context), CutTls(context, places)):
        end = TlsEnd(authority.client_context(None), codec)
        end.shake_hands()
        stream = b"".join([end.records(data) for data in sent])
        found.append((codec.decode(stream + damage), codec.over))
    assert found[0] == found[1]
    assert found[0][0] == b"".join(sent)


@settings(max_examples=30)
@given(places=PLACES, first=st.sampled_from([b"", b"\x16\x03\x01\x00\x05", b"\x10\x0e\x00\x04MQTT"]), data=st.binary())
def test_any_cutting_of_what_is_no_handshake_gives_the_same_end(
    authority: Authority, places: list[int], first: bytes, data: bytes
) -> None:
    stream = first + data
    whole = outcome(server(authority), [stream] if stream else [])
    assert outcome(server(authority), pieces(stream, places)) == whole
    assert outcome(server(authority), single(stream)) == whole


def test_the_client_learns_that_mqtt_is_spoken(authority: Authority) -> None:
    context = authority.client_context()
    context.set_alpn_protocols(["h2", "mqtt"])
    end = TlsEnd(context, server(authority))
    end.shake_hands()
    assert end.tls.selected_alpn_protocol() == "mqtt"


@pytest.mark.parametrize("clients", ["optional", "required"])
@pytest.mark.parametrize(
    ("names", "common_name", "found"),
    [(("device-7.example",), None, "device-7.example"), (("device-7.example",), "device-7", "device-7")],
)
def test_the_name_in_a_clients_certificate_is_known(
    authority: Authority, clients: str, names: tuple[str], common_name: str | None, found: str
) -> None:
    end = joined(authority, clients, authority.client(*names, common_name=common_name))
    assert end.codec.certificate == found


def test_a_client_without_a_certificate_has_no_name_where_that_is_allowed(authority: Authority) -> None:
    assert joined(authority, "optional").codec.certificate is None


def test_a_client_without_a_certificate_is_told_so_where_one_is_required(authority: Authority) -> None:
    end = joined(authority, "required")
    assert end.codec.over == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        end.receive(b"")


def test_a_certificate_of_a_foreign_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    end = joined(authority, "required", Authority(tmp_path).client("d.example"))
    assert end.codec.over == "CERTIFICATE_VERIFY_FAILED"
    assert end.codec.certificate is None


@pytest.mark.parametrize(
    "said",
    [b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02c1", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 400],
)
def test_what_is_no_tls_is_over_at_once(authority: Authority, said: bytes) -> None:
    codec = server(authority)
    assert codec.decode(said) == b""
    assert codec.over
    assert codec.decode(said) == b""


@given(st.binary(max_size=2000))
def test_any_bytes_give_no_error_but_an_end(authority: Authority, data: bytes) -> None:
    codec = server(authority)
    assert codec.decode(data) == b""
    codec.output()
    codec.close()


@given(at=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_record_that_was_changed_ends_the_connection(authority: Authority, at: int, bit: int) -> None:
    end = joined(authority)
    records = bytearray(end.records(b"x" * 100) + end.records(b"y"))
    records[at % len(records)] ^= 1 << bit
    got = end.codec.decode(bytes(records))
    assert got in (b"", b"x" * 100)  # what had come whole before the damage
    assert end.codec.over or len(got) < 101


def test_a_record_larger_than_tls_allows_is_refused(authority: Authority) -> None:
    end = joined(authority)
    end.codec.decode(b"\x17\x03\x03\xff\xff" + bytes(65_535))
    assert end.codec.over


def test_no_client_gets_a_second_handshake(authority: Authority) -> None:
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    end = TlsEnd(context, server(authority))
    end.shake_hands()
    assert end.tls.version() == "TLSv1.2"
    assert Certificates(authority.files(), "mqtt").context.options & ssl.OP_NO_RENEGOTIATION


def test_old_versions_are_not_spoken(authority: Authority) -> None:
    assert Certificates(authority.files(), "mqtt").context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_client_that_takes_leave_is_gone(authority: Authority) -> None:
    end = joined(authority)
    with pytest.raises(ssl.SSLWantReadError):
        end.tls.unwrap()
    end.turn()
    assert end.codec.over == "the client closed"


def test_the_servers_farewell_is_one_of_tls(authority: Authority) -> None:
    end = joined(authority)
    assert end.receive(end.codec.close()) == b""


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("organizationName", "x"),), (("commonName", "cn"),))}, "cn"),
        (
            {"subject": (), "subjectAltName": (("IP Address", "10.0.0.1"), ("DNS", "a.example"), ("DNS", "b"))},
            "a.example",
        ),
        ({"subject": (), "subjectAltName": (("IP Address", "10.0.0.1"),)}, None),
        ({"subject": ((("commonName", ""),),), "subjectAltName": (("DNS", "a.example"),)}, "a.example"),
        ({"subject": ((("commonName", "al\nice\x1b[2J"),),)}, None),
        ({"subject": ((("commonName", "x" * 1024),),)}, "x" * 1024),
        ({"subject": ((("commonName", "x" * 1025),),)}, None),
    ],
)
def test_the_name_is_the_common_name_else_the_first_dns_name(
    certificate: dict[str, object] | None, name: str | None
) -> None:
    assert name_of(certificate) == name


YEAR_S = 366 * 24 * 3600


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_has_ended_is_not_let_in_by_resuming_a_session(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    shared, shown = Certificates(authority.files("required"), "mqtt").context, authority.client("d-7.example")
    context = authority.client_context(shown)
    context.maximum_version = version
    ends_s = ends_at(shown.read_text())
    assert ends_s is not None
    first = TlsEnd(context, TlsCodec(shared, ends_s - YEAR_S))
    first.shake_hands()
    first.receive(first.codec.encode(b"tickets come with this"))
    for now_s, name, over in (
        (ends_s - 1, "d-7.example", ""),
        (ends_s + 1, None, "the client's certificate has ended"),
    ):
        codec = TlsCodec(shared, now_s)
        again = TlsEnd(context, codec, first.tls.session)
        again.shake_hands()
        assert again.tls.session_reused
        assert (codec.certificate, codec.over) == (name, over)
        assert again.send(b"x") == (b"" if over else b"x")


def test_a_client_that_speaks_mqtt_without_tls_is_told_from_others(authority: Authority) -> None:
    for first, is_mqtt in (
        (b"\x10\x0e\x00\x04MQTT", True),
        (b"GET / HTTP/1.1\r\n", False),
        (b"\x16\x03\x01\x00\x05" + bytes(5), False),
    ):
        codec = server(authority)
        codec.decode(first)
        assert codec.over
        assert codec.over.endswith("the client speaks MQTT without TLS") == is_mqtt


def test_a_certificate_is_held_against_the_believed_time_whatever_the_machines_clock_says(
    authority: Authority,
) -> None:
    shared, shown = Certificates(authority.files("required"), "mqtt").context, authority.client("d-8.example")
    context, ends_s = authority.client_context(shown), ends_at(shown.read_text())
    assert ends_s is not None
    for now_s, over in (
        (ends_s - 1, ""),
        (ends_s + 1, "the client's certificate has ended"),
        (100.0, "the client's certificate is not valid yet"),
    ):
        codec = TlsCodec(shared, now_s)
        TlsEnd(context, codec).shake_hands()
        assert codec.over == over
        assert codec.certificate == (None if over else "d-8.example")
