"""The certificates of a TLS listener: read from files, and read again when these change.

The only module that reads them. A change is looked for by the files' times, so a renewed certificate serves the next
handshake without a restart and without touching a connection. Files that cannot be read together (the key of another
certificate, half a file) are an error at the start and a warning later: the earlier files stay in force until they can.
A file that cannot be read at all (it is gone, or access is denied) is tried again at every look, changed or not, and
logged once as long as the error is the same. Files that were read again are logged too. TLS 1.2 and later; a client
cannot ask for another handshake on a connection that stands.

Where a list of revoked certificates is named, OpenSSL looks for every client's certificate in it, and refuses all
clients while the list is past its time or of another authority. Connected clients stay. A client that resumes a session
is not asked for its certificate again (``gateway/transports/tls.py``); so when the list, or an authority of clients,
comes to its end, there is a new context, to which no ticket of the old one means anything.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidConfig
from penstock.service.validity import ends_at, ends_of

_WORDS: Final = {"KEY_VALUES_MISMATCH": "the key is of another certificate"}
"""For what OpenSSL calls so."""
_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
NAME_BYTES_MAX: Final = 1024
_log = logging.getLogger(__name__)


class Files(NamedTuple):
    """Paths of PEM files: the server's certificate, its key (empty: in the same file), the authority of the clients
    (empty: none is known), whether clients show a certificate (``CLIENTS``), and the authority's list of those that
    it has revoked (empty: none is asked)."""

    certificate: str
    key: str = ""
    client_ca: str = ""
    clients: str = "none"
    client_crl: str = ""


class Certificates:
    """``context`` is the one for new connections; ``ends_at``, ``list_ends_at``: when its certificate and its list of
    revoked ones end, in seconds since 1970. ``protocol``: what ALPN agrees on with a client that asks; ``whose``: the
    service or listener that they are of, for the log."""

    def __init__(self, files: Files, protocol: str, whose: str = "") -> None:
        """Raises ``InvalidConfig``."""
        self._at = f" at {whose}" if whose else ""
        self._files = files
        self._protocol = protocol
        self._times = self._looked()
        self._unread = ""  # why a file could not be read at all
        self._ends: list[float] = []  # of what clients' certificates are held against
        self._looked_at_s = 0.0
        self.ends_at: float | None = None
        self.list_ends_at: float | None = None
        self.context = self._read()

    def refresh(self, now_s: float = 0.0, *, anyway: bool = False) -> bool:
        """Reads the files again if they have changed, if one has ended by now (seconds since 1970), or ``anyway``;
        whether that gave a new context."""
        times, unread = self._looked(), self._unread
        has_ended = any([self._looked_at_s < end <= now_s for end in self._ends])
        self._looked_at_s = now_s  # also an earlier one, if the clock was set back
        is_due = times != self._times or unread or anyway
        if not is_due and not has_ended:
            return False
        self._times, self._unread = times, ""
        try:
            self.context = self._read()
        except InvalidConfig as error:
            if anyway or not self._unread or self._unread != unread:
                _log.warning("%s; the certificate that was read before stays%s", error, self._at)
            return False
        if has_ended:
            held_against = self._files.client_crl or self._files.client_ca
            _log.warning("%s has ended: no client can log in by it%s", held_against, self._at)
        if is_due:
            _log.warning("%s: read again and in force%s", self._files.certificate, self._at)
        return True

    def _looked(self) -> list[tuple[int, ...] | None]:
        files = self._files
        named = (files.certificate, files.key, files.client_ca, files.client_crl)
        return [_changed(path) for path in named if path]

    def _read(self) -> ssl.SSLContext:
        files = self._files
        texts = {path: self._text(path) for path in (files.certificate, files.key, files.client_ca, files.client_crl)}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols([self._protocol])
        path = files.certificate
        try:
            context.load_cert_chain(path, files.key or None, password=_no_password)
            path = files.client_ca
            if path:
                context.load_verify_locations(path)
            path = files.client_crl
            if path:
                context.load_verify_locations(path)
                if not context.cert_store_stats()["crl"]:
                    raise ValueError("there is no list of revoked certificates in it")
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise self._unreadable(path, _flaw(files, path, texts) or _reason(error), error) from None
        context.verify_mode = _VERIFY[files.clients]
        self.ends_at, self.list_ends_at = ends_at(texts[files.certificate]), ends_at(texts[files.client_crl])
        self._ends = [end for path in (files.client_ca, files.client_crl) for end in ends_of(texts[path])]
        return context

    def _text(self, path: str) -> str:
        try:
            return Path(path).read_text(errors="replace") if path else ""
        except OSError as error:
            raise self._unreadable(path, _reason(error), error) from None

    def _unreadable(self, path: str, reason: str, error: Exception) -> InvalidConfig:
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            self._unread = f"{path}: {reason}"
        return InvalidConfig(f"cannot read the certificate {path}: {reason}")


def _reason(error: Exception) -> str:
    reason: str = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return _WORDS.get(reason, reason)


def _flaw(files: Files, path: str, texts: Mapping[str, str]) -> str:
    """The fault of a file, as far as it can be seen; OpenSSL hardly gives more than the fact."""
    if path == files.client_crl:
        return ""
    if "-----BEGIN CERTIFICATE-----" not in texts[path]:
        return "there is no certificate in PEM in it"
    if path == files.certificate and "PRIVATE KEY-----" not in texts[files.key or path]:
        return f"there is no key in {files.key}" if files.key else "there is no key in it; name its file with key=FILE"
    return ""


def _changed(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _no_password() -> str:
    raise ValueError("the key has a password")


def name_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The name in a certificate: its common name, else its first DNS name; ``None`` if it has neither, or one that is
    no name of a user: it is shown to operators, and kept with sessions and messages."""
    if not certificate:
        return None
    fields = [one for relative in certificate.get("subject", ()) for one in relative if one[0] == "commonName"]
    fields += [one for one in certificate.get("subjectAltName", ()) if one[0] == "DNS"]
    name = next((str(value) for _, value in fields if value), "")
    return name if name.isprintable() and 0 < len(name.encode()) <= NAME_BYTES_MAX else None
