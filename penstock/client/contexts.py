"""Contexts: named clusters with the credentials for them, in a file of the user's, so that commands need neither
addresses nor passwords.

    current = "prod"
    [contexts.prod]
    server = "names-1:9876,names-2:9876"
    user = "ada"
    password = "..."         # or password_file, token, token_file
    tls = "/etc/ssl/ca.pem"  # or certificate and key beside it

``penstock context`` and ``penstock login`` write it. It has passwords, so one that others may read is an error.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import InvalidConfig

FILE_VARIABLE: Final = "PENSTOCK_CONTEXTS_FILE"
CONTEXT_VARIABLE: Final = "PENSTOCK_CONTEXT"
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
VARIABLES: Final[Mapping[str, str]] = {
    "user": "PENSTOCK_USER",
    "password": "PENSTOCK_PASSWORD",
    "password_file": "PENSTOCK_CLIENT_PASSWORD_FILE",
    "token": "PENSTOCK_TOKEN",
    "token_file": "PENSTOCK_CLIENT_TOKEN_FILE",
    "tls": "PENSTOCK_TLS",
    "certificate": "PENSTOCK_CLIENT_CERTIFICATE",
    "key": "PENSTOCK_CLIENT_KEY",
}
"""The variable that each field stands in for."""
LOGIN_VARIABLES: Final = frozenset(
    VARIABLES[field] for field in ("user", "password", "password_file", "token", "token_file")
)
"""The variables of a login. They are taken together, from the context or from elsewhere."""


@dataclass(frozen=True, slots=True, repr=False)
class Context:
    """A cluster, and how to log in there. Empty fields are not set.

    Attributes:
        server: name servers, with commas.
        user, password, password_file, token, token_file: as the environment's variables of these names.
        tls, certificate, key: the same.
    """

    server: str = ""
    user: str = ""
    password: str = ""
    password_file: str = ""
    token: str = ""
    token_file: str = ""
    tls: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"Context({self.server!r}, {self.user or 'anonymous'!r})"

    def given(self) -> dict[str, str]:
        """The fields that are set."""
        return {name: value for name, value in asdict(self).items() if value}

    def variables(self) -> dict[str, str]:
        """The credentials, as variables of the environment."""
        return {VARIABLES[name]: value for name, value in self.given().items() if name in VARIABLES}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user, by name. ``current``: the one that commands use; empty for none."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str = ""

    def named(self, name: str) -> Context:
        """The context of this name. Raises ``InvalidConfig``."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise InvalidConfig(f"there is no context {name!r}", hint=f"`penstock context ls` lists them: {known}")
        return found


def contexts_file(environ: Mapping[str, str]) -> Path:
    """The file of a user's contexts."""
    given = environ.get(FILE_VARIABLE, "")
    if given:
        return Path(given)
    folder = environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder else Path.home() / ".config") / "penstock" / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """The contexts of a file; none where there is no file. Raises ``InvalidConfig`` for a file that is damaged, or that
    others may read."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            told = tomllib.load(file)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is no TOML: {error}", hint="`penstock context add` writes it anew") from None
    if mode & 0o077:
        raise InvalidConfig(f"others may read {path}, which has passwords", hint=f"chmod 600 {path}")
    named, current = told.get("contexts", {}), told.get("current", "")
    if not isinstance(named, dict) or not isinstance(current, str):
        raise InvalidConfig(f"{path}: contexts is a table, and current a name")
    return Contexts({name: _context(f"{path}: context {name}", one) for name, one in named.items()}, current)


def _context(where: str, told: object) -> Context:
    if not isinstance(told, dict):
        raise InvalidConfig(f"{where} is a table")
    fields = set(asdict(Context()))
    for name, value in told.items():
        if name not in fields:
            raise InvalidConfig(f"{where} has no field {name}", hint=f"there are {', '.join(sorted(fields))}")
        if not isinstance(value, str):
            raise InvalidConfig(f"{where}: {name} is text")
    return Context(**told)


def with_context(environ: Mapping[str, str], *, is_known: bool = False) -> Mapping[str, str]:
    """The environment, completed by the context that it names. ``is_known``: the program gives its own login, so the
    context's is left out. Raises ``InvalidConfig``."""
    name = environ.get(CONTEXT_VARIABLE, "")
    if not name:
        return environ
    said = read_contexts(contexts_file(environ)).named(name).variables()
    if is_known or LOGIN_VARIABLES & environ.keys():
        said = {variable: value for variable, value in said.items() if variable not in LOGIN_VARIABLES}
    return {**said, **environ}
