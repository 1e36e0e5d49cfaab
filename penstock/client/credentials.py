"""Credentials of a client, and its TLS: from a program's arguments, or the environment.

A program gives a user and a password, or a token, or neither; ``tls`` is true, the path of the authority's certificate,
or an ``ssl.SSLContext``, which may hold a certificate of the client's. Arguments that it leaves out are taken from
these variables:

    PENSTOCK_USER, PENSTOCK_PASSWORD, PENSTOCK_TOKEN; or, for files that have them,
    PENSTOCK_CLIENT_PASSWORD_FILE, PENSTOCK_CLIENT_TOKEN_FILE;
    PENSTOCK_TLS (1, or the path of the authority's certificate), PENSTOCK_CLIENT_CERTIFICATE, PENSTOCK_CLIENT_KEY;
    PENSTOCK_CONTEXT, a context (``contexts.py``) that has what the others do not say

A client that has credentials uses no server that does not take them. A password is never sent, and a token only inside
TLS or within this machine. Neither is ever in a ``repr``, a log or an error.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.client.contexts import with_context
from penstock.errors import (
    InvalidConfig,
    InvalidRequest,
    NotAuthorized,
    PenstockError,
    ProtocolError,
    Unavailable,
    UnknownRequest,
)
from penstock.protocol import wire
from penstock.protocol.addresses import is_loopback, lost
from penstock.protocol.logins import CLUSTER_KEY, NONCE_BYTES, SCRAM, TOKEN, server_proof, service_proof
from penstock.protocol.requests.servers import Login, LoginStep
from penstock.world import new_secret

ITERATIONS_MAX: Final = 1_000_000
"""Maximum iterations of a password's hash that a server may ask for: about a quarter of a second of work."""
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")

Tls = bool | str | ssl.SSLContext | None
"""Whether a client speaks TLS, and by whose authority."""

Steps = Generator[Login, LoginStep, None]
"""A login: yields the requests to send and is sent the replies. Raises ``NotAuthorized``."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """The credentials of a client.

    Attributes:
        user, password: of the password file.
        token: a JSON Web Token.
        key, service: the cluster's key, and the name of the service that has it.
        tls: for connections that speak TLS, with the client's certificate if it has one, which needs no login; None for
            connections that do not.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    key: bytes = b""
    service: str = ""
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.user or self.service or 'nobody'!r})"

    @property
    def logs_in(self) -> bool:
        """Whether a connection begins with a login."""
        return bool(self.password or self.token or self.key)

    def steps(self, host: str) -> Steps:
        """The login at a server on this host."""
        if self.key:
            return _prove_key(self.key, self.service)
        if self.token:
            return _show_token(self.token, self.tls is not None or is_loopback(host))
        return _prove_password(self.user, self.password)


NO_CREDENTIALS: Final = Credentials()


def credentials_of(
    user: str = "",
    password: str = "",
    token: str = "",
    tls: Tls = None,
    environ: Mapping[str, str] | None = None,
) -> Credentials:
    """A program's credentials, or else those of the environment. Raises ``InvalidRequest`` for arguments that do not
    fit each other, and ``InvalidConfig`` for a file that cannot be read."""
    found = with_context(os.environ if environ is None else environ, is_known=bool(user or token))
    for name, value in (("user", user), ("password", password), ("token", token)):
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} is text, not {type(value).__name__}")
    if token and (user or password):
        raise InvalidRequest("a client has a user and a password, or a token, not both")
    if user and not password:
        password = _secret(found, "PASSWORD")
    if bool(user) != bool(password):
        raise InvalidRequest(
            "a user has a password, and a password is a user's", hint="give both user= and password=, or neither"
        )
    if not (user or token):
        user = found.get("PENSTOCK_USER", "")
        if not user:
            token = _secret(found, "TOKEN")
        else:
            password = _secret(found, "PASSWORD")
            if not password:
                raise InvalidConfig(
                    "PENSTOCK_USER is set, and no password",
                    hint="set PENSTOCK_CLIENT_PASSWORD_FILE to a file that has it",
                )
    return Credentials(user, password, token, tls=_context(tls, found))


def login_step(frame: wire.RawFrame) -> LoginStep:
    """The server's answer to a step of a login. Raises what it answers instead, and ``ProtocolError``."""
    result = wire.decode_result(frame, Login)
    if isinstance(result, LoginStep):
        return result
    raise result if isinstance(result, PenstockError) else ProtocolError("a login is not answered so")


def login_refused(address: str, error: PenstockError, credentials: Credentials) -> PenstockError:
    """The error for a program or service whose login a server refused, or does not know."""
    if isinstance(error, UnknownRequest):
        return NotAuthorized(f"{address} knows no logins", hint="it is of an older version, or no server of Penstock")
    if isinstance(error, NotAuthorized):
        hint = "give it the cluster_secret_file of the server that refused it"
        return NotAuthorized(f"{address}: {error.message}", hint=hint if credentials.key else error.hint)
    return Unavailable(f"{address} does not let us log in: {error.message}", hint=error.hint)


def no_tls(address: str, error: ssl.SSLError, hint: str = "") -> PenstockError:
    """The error for a server with which there is no TLS. ``hint``: what is to be done, where it is not a client's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = hint or "name the authority's certificate: tls=PATH, or PENSTOCK_TLS=PATH"
        return NotAuthorized(f"the certificate of {address} does not count here: {error.verify_message}", hint=hint)
    hint = hint or "does it speak TLS? Leave tls out where it does not"
    reason = getattr(error, "reason", None) or error  # only OpenSSL's own have one
    return Unavailable(f"no TLS with {address}: {reason}", hint=hint)


def lost_unheard(address: str, reason: str, credentials: Credentials) -> Unavailable:
    """The error for a connection that ended before the server answered anything. Over TLS 1.3 a client learns no more
    than that where its certificate is not taken."""
    hint = "a server that does not take the client's certificate, or misses one, only closes: its log says why"
    return lost(address, reason, hint if credentials.tls is not None else "")


def service_credentials(
    key: bytes | None, service: str, authority: str = "", own: tuple[str, str] = ("", "")
) -> Credentials:
    """The credentials of a service of the cluster. ``authority``: the file of the certificate that those of the other
    services are held against; empty where they do not speak TLS. ``own``: the files of the certificate that it shows
    itself, and of its key; without it the one that ``PENSTOCK_CLIENT_CERTIFICATE`` names. Names in certificates are not
    looked at: each side proves that it has the key.

    Raises:
        InvalidConfig: a file cannot be read.
    """
    context = None
    if authority:
        context = _context_of(authority)
        context.check_hostname = False
        if own[0]:
            _show(context, *own)
        else:
            _show_named(context, os.environ)
    return Credentials(key=key or b"", service=service, tls=context)


def _secret(environ: Mapping[str, str], name: str) -> str:
    """A variable, or the first line of the file that another one names."""
    variable = f"PENSTOCK_CLIENT_{name}_FILE"
    path = environ.get(variable, "")
    if not path:
        return environ.get(f"PENSTOCK_{name}", "")
    try:
        return Path(path).read_text().partition("\n")[0].strip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidConfig(f"{variable}: cannot read {path}: {reason}") from None


def _context(tls: Tls, environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context of TLS, if that is spoken."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is None:
        said = environ.get("PENSTOCK_TLS", "").strip()
        tls = True if said.lower() in _YES else False if said.lower() in _NO else said
    if tls is False:
        return None
    if tls is not True and not isinstance(tls, str):
        raise InvalidRequest(f"tls is true, a path or an ssl.SSLContext, not {type(tls).__name__}")
    context = _context_of("" if tls is True else tls)
    _show_named(context, environ)
    return context


def _show_named(context: ssl.SSLContext, environ: Mapping[str, str]) -> None:
    certificate = environ.get("PENSTOCK_CLIENT_CERTIFICATE", "")
    if certificate:
        _show(context, certificate, environ.get("PENSTOCK_CLIENT_KEY", ""), "PENSTOCK_CLIENT_CERTIFICATE")


def _show(context: ssl.SSLContext, certificate: str, key: str, said: str = "tls_certificate") -> None:
    """A client certificate for servers that ask for one. ``said``: the setting that names it."""
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"{said}: cannot read {certificate}: {error}") from None


def _context_of(authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidConfig(f"tls: cannot read the authority's certificate {authority}: {reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


# ---------------------------------------------------------------- mechanisms


def _prove_password(user: str, password: str) -> Steps:
    import scramp  # by those alone who have a password

    try:
        client = scramp.ScramClient([SCRAM], user, password)
        step = yield Login(SCRAM, client.get_client_first().encode())
        challenge = step.data.decode()
        count = challenge.rpartition(",i=")[2]
        if not count.isdigit() or int(count[:9]) > ITERATIONS_MAX:
            raise NotAuthorized("the server asks for more work on a password than any sound one does")
        client.set_server_first(challenge)
        step = yield Login("", client.get_client_final().encode())
        client.set_server_final(step.data.decode())
    except (scramp.ScramException, UnicodeDecodeError):
        raise NotAuthorized(
            "the server has not shown that it knows this password", hint="it may not be the server that you mean"
        ) from None
    if not step.is_over:
        raise NotAuthorized("the server does not end the login")


def _show_token(token: str, is_private: bool) -> Steps:
    if not is_private:
        raise NotAuthorized("a token is not sent without TLS: any listener could use it", hint="connect with tls=True")
    step = yield Login(TOKEN, token.encode())
    if not step.is_over:
        raise NotAuthorized("the server does not end the login")


def _prove_key(key: bytes, service: str) -> Steps:
    nonce = new_secret()[:NONCE_BYTES]
    step = yield Login(CLUSTER_KEY, nonce + service.encode())
    if step.is_over:
        return  # it has no key, and asks for none
    server_nonce = step.data
    if len(server_nonce) < NONCE_BYTES:
        raise NotAuthorized("the server's nonce is too short to be one")
    step = yield Login("", service_proof(key, nonce, server_nonce, service))
    if step.data != server_proof(key, nonce, server_nonce, service):
        raise NotAuthorized(
            "the server has another key of the cluster", hint="give all services the same cluster_secret_file"
        )
