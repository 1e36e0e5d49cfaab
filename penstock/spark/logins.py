"""The options of a query's or a write's login, as they travel to the driver's helper processes and to executors.

Files are read, and TLS is set up, where a connection is made. A ``repr`` has the user's name at most.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.contexts import LOGIN_VARIABLES
from penstock.client.credentials import Credentials, credentials_of
from penstock.errors import InvalidConfig, InvalidRequest

OPTIONS: Final[Mapping[str, str]] = {
    "user": "user",
    "password": "password",
    "passwordFile": "password_file",
    "token": "token",
    "tokenFile": "token_file",
    "tls": "tls",
    "tlsCertificate": "tls_certificate",
    "tlsKey": "tls_key",
}
"""Options of Spark with their fields here."""
SECRET: Final = ("password", "token")
"""Options whose values are secrets themselves; Spark hides them by their names."""


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """The options of a login; all empty: what the environment of each process says.

    Attributes:
        user, password, password_file: a user, and the password or a file that has it.
        token, token_file: a JSON Web Token, or a file that has it.
        tls: ``true`` to go by the machine's authorities, or the path of the authority's certificate.
        tls_certificate, tls_key: paths of the client's own certificate and its key.
    """

    user: str = ""
    password: str = ""
    password_file: str = ""
    token: str = ""
    token_file: str = ""
    tls: str = ""
    tls_certificate: str = ""
    tls_key: str = ""

    def __repr__(self) -> str:
        return f"Login({self.user or 'by token or environment'!r})"

    def credentials(self) -> Credentials:
        """What connections begin with. Raises ``InvalidConfig`` for a file that cannot be read here."""
        environ = dict(os.environ)
        if self.user or self.token or self.token_file:
            for variable in LOGIN_VARIABLES:
                environ.pop(variable, None)
        given = {
            "PENSTOCK_CLIENT_PASSWORD_FILE": self.password_file,
            "PENSTOCK_CLIENT_TOKEN_FILE": self.token_file,
            "PENSTOCK_TLS": self.tls,
            "PENSTOCK_CLIENT_CERTIFICATE": self.tls_certificate,
            "PENSTOCK_CLIENT_KEY": self.tls_key,
        }
        environ |= {name: value for name, value in given.items() if value}
        try:
            return credentials_of(self.user, self.password, self.token, None, environ)
        except InvalidRequest as error:
            raise InvalidConfig(error.message, hint=error.hint) from None


NO_LOGIN: Final = Login()


def login_of(values: dict[str, Any]) -> Login:
    """Takes the fields of a login out of checked values. Raises ``InvalidConfig`` where they do not fit each other."""
    found = {name: values.pop(name) for name in OPTIONS.values() if name in values}
    login = Login(**found)
    if login.user and not (login.password or login.password_file):
        raise InvalidConfig("user is set, and no password", hint="add passwordFile, or password")
    if (login.password or login.password_file) and not login.user:
        raise InvalidConfig("a password is a user's, and user is missing")
    if login.user and (login.token or login.token_file):
        raise InvalidConfig("a query has a user and a password, or a token, not both")
    return login


def refuse_secrets(given: Mapping[str, str]) -> None:
    """Raises ``InvalidConfig`` for options that a catalog would keep where everyone can read them."""
    kept = [name for name in given if name.lower() in SECRET]
    if kept:
        raise InvalidConfig(
            f"a table keeps its options where everyone can read them, so {kept[0]} is refused",
            hint="passwordFile or tokenFile names a file that has it",
        )
