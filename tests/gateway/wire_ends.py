"""The client's ends of the transports, in memory, and certificates made on the spot."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import resource
import ssl
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from hypothesis import strategies as st

from gateway.transports.codec import Codec
from gateway.transports.proxy import SIGNATURE
from penstock.service.certificates import Files

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x01\x02\x03\x04"


class Authority:
    """An authority with files for a server and for clients in a folder."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self._numbers = itertools.count()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.server = folder / "server.pem"
        self.renew()

    def renew(self, *names: str) -> None:
        """A new certificate and key for the server, in one file."""
        made = self._authority.issue_cert("localhost", "127.0.0.1", *names)
        made.private_key_and_cert_chain_pem.write_to_path(str(self.server))

    def client(self, *names: str, common_name: str | None = None) -> Path:
        """The file of a client's certificate and key."""
        made = self._authority.issue_cert(*names, common_name=common_name)
        path = self._folder / f"{next(self._numbers)}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def revoke(self, *certificates: Path, days: int = 1) -> Path:
        """The file of a list of revoked certificates; it holds for so many days from now."""
        now = datetime.now(UTC)
        issuer = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        key = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        since, until = now - timedelta(days=9), now + timedelta(days=days)
        made = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject).last_update(since).next_update(until)
        for one in certificates:
            serial = x509.load_pem_x509_certificate(one.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
            made = made.add_revoked_certificate(revoked)
        path = self._folder / "crl.pem"
        path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def files(self, clients: str = "none", client_crl: str = "") -> Files:
        return Files(str(self.server), "", "" if clients == "none" else str(self.ca), clients, client_crl)

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


class TlsEnd:
    """The client of a TLS connection with a codec at the other side; everything in memory. ``session``: one that it
    had before, and resumes."""

    def __init__(self, context: ssl.SSLContext, codec: Codec, session: ssl.SSLSession | None = None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost", session=session)
        self.codec = codec
        self.decoded = b""

    def turn(self) -> None:
        """What each side has to say goes to the other until nothing is left."""
        while out := self._out.read():
            self.decoded += self.codec.decode(out)
            self._in.write(self.codec.output())

    def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.turn()
        self.turn()

    def send(self, data: bytes) -> bytes:
        """Returns what the server's side made of it."""
        self.tls.write(data)
        self.turn()
        decoded, self.decoded = self.decoded, b""
        return decoded

    def records(self, data: bytes) -> bytes:
        """The bytes that carry these."""
        self.tls.write(data)
        return self._out.read()

    def receive(self, coded: bytes) -> bytes:
        self._in.write(coded)
        try:
            return self.tls.read(1 << 20)
        except ssl.SSLWantReadError:
            return b""


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """No file can be opened inside, whoever asks and whatever rights there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client that says nothing else."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)
"""Where a stream is cut (``pieces``)."""


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    """The stream cut at these places, each modulo its length; no piece is empty."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[left:right] for left, right in itertools.pairwise(edges) if left < right]


def single(data: bytes) -> list[bytes]:
    """The stream byte by byte."""
    return [data[at : at + 1] for at in range(len(data))]


def outcome(codec: Codec, chunks: list[bytes]) -> tuple[bytes, bytes, str, str | None]:
    """What a codec makes of a stream: what it decodes and says in all, why it is over, and the client's address."""
    decoded = said = b""
    for chunk in chunks:
        decoded += codec.decode(chunk)
        said += codec.output()
    return decoded, said, codec.over, codec.address


def request(path: str = "/mqtt", **changed: str | None) -> bytes:
    """An HTTP request that opens a WebSocket; keywords change headers (``_`` is ``-``), ``None`` leaves one out."""
    headers: dict[str, str | None] = {
        "host": "localhost",
        "upgrade": "websocket",
        "connection": "keep-alive, Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": KEY.decode(),
        "sec-websocket-protocol": "mqtt",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def frame(payload: bytes, opcode: int = 2, *, final: bool = True, masked: bool = True, length: int = -1) -> bytes:
    """A frame as a client sends it."""
    size = len(payload) if length < 0 else length
    head = bytes([(0x80 if final else 0) | opcode])
    flag = 0x80 if masked else 0
    if size < 126:
        head += bytes([flag | size])
    else:
        head += struct.pack(">BH", flag | 126, size) if size < 65_536 else struct.pack(">BQ", flag | 127, size)
    if not masked:
        return head + payload
    return head + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))


def proxy_header(
    client: str = "203.0.113.7", *, command: int = 0x21, family: int | None = None, tlvs: bytes = b"", size: int = -1
) -> bytes:
    """What a load balancer says in front of a connection."""
    address = ipaddress.ip_address(client)
    body = address.packed * 2 + struct.pack(">HH", 40_000, 1883) + tlvs
    known = 0x11 if address.version == 4 else 0x21
    head = struct.pack(">BBH", command, known if family is None else family, len(body) if size < 0 else size)
    return SIGNATURE + head + body
