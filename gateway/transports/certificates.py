"""The certificates of a TLS listener: read from files, and read again when these change.

The only module that reads them. A change is looked for by the files' times, so a renewed certificate serves the next
handshake without a restart and without touching a connection. Files that cannot be read together (the key of another
certificate, half a file) are an error at the start and a warning later: what was read before stays until they can.
One that cannot be read at all (it is gone, or not ours to read) is tried again at every look, changed or not, and told
once as long as the error is the same. Files that are good again are told too, and those read because somebody asked.
TLS 1.2 and later; a client cannot ask for another handshake on a connection that stands.

Where a list of revoked certificates is named, OpenSSL asks it about every client's; it lets nobody in while the list is
past its time, or of another authority. Who is connected stays so.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Final

from gateway.transports.listening import Files
from penstock.errors import InvalidConfig

_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_log = logging.getLogger(__name__)


class Certificates:
    """``context`` is the one for new connections. ``protocol``: what ALPN agrees on with a client that asks."""

    def __init__(self, files: Files, protocol: str) -> None:
        """Raises ``InvalidConfig``."""
        self._files = files
        self._protocol = protocol
        self._times = self._looked()
        self._unread = ""  # why a file could not be read at all
        self._is_bad = False  # the context is older than what was last looked at
        self.context = self._read()

    def refresh(self, *, anyway: bool = False) -> bool:
        """Reads the files again if they have changed, or ``anyway``; whether that gave a new context."""
        times, unread = self._looked(), self._unread
        if times == self._times and not unread and not anyway:
            return False
        self._times, self._unread = times, ""
        try:
            self.context = self._read()
        except InvalidConfig as error:
            self._is_bad = True
            if anyway or not self._unread or self._unread != unread:
                _log.warning("%s; the certificate that was read before stays", error)
            return False
        if anyway or self._is_bad:
            _log.warning("%s: read again and in force", self._files.certificate)
        self._is_bad = False
        return True

    def _looked(self) -> list[tuple[int, ...] | None]:
        files = self._files
        named = (files.certificate, files.key, files.client_ca, files.client_crl)
        return [_changed(path) for path in named if path]

    def _read(self) -> ssl.SSLContext:
        files = self._files
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
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
                self._unread = f"{path}: {reason}"
            raise InvalidConfig(f"cannot read the certificate {path}: {reason}") from None
        context.verify_mode = _VERIFY[files.clients]
        return context


def _changed(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _no_password() -> str:
    raise ValueError("the key has a password")
