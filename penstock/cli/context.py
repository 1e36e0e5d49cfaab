"""``penstock context`` and ``penstock login``: clusters by name, with the credentials for them.

The file is replaced in one step and readable by its owner alone. Passwords are asked for or read from standard input,
never taken from the command line.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from penstock.blocking.routes import Routes
from penstock.cli.display import confirm, json_option, print_rows
from penstock.cli.secret_files import ask_secret, replace_file
from penstock.client.contexts import CONTEXT_VARIABLE, NAME, VARIABLES, Context, Contexts, contexts_file, read_contexts
from penstock.client.credentials import credentials_of
from penstock.errors import InvalidConfig
from penstock.protocol.addresses import SERVERS

_LOGINS: Final = ("token", "token_file", "password", "password_file")


@click.group()
def context() -> None:
    """Keep clusters by name, with the credentials for them."""


@context.command()
@click.argument("name")
@click.option("--server", default=SERVERS, metavar="HOST:PORT", help="Name server; several with commas.")
@click.option("--user", default="", help="The user; `penstock login` stores the password, or:")
@click.option("--password-file", default="", help="File whose first line is the password.")
@click.option("--token-file", default="", help="File whose first line is a token.")
@click.option("--tls", default="", help="1, or the path of the authority's certificate.")
@click.option("--certificate", default="", help="The client's own certificate.")
@click.option("--key", default="", help="Its key, where that is in another file.")
@click.option("--use", is_flag=True, help="Use it from now on; the first one is used in any case.")
def add(name: str, use: bool, **fields: str) -> None:
    """Add a context, or replace the one of that name, its login included.

    \b
    Examples:
      penstock context add prod --server names-1:9876,names-2:9876 --tls /etc/penstock/ca.pem
      penstock --context prod login ada
      penstock --context prod topic list
    """
    if not NAME.fullmatch(name):
        raise InvalidConfig(f"{name!r} is no name of a context", hint="it has letters, digits, '-', '_' and '.'")
    for field in ("password_file", "token_file", "certificate", "key"):
        fields[field] = os.path.abspath(fields[field]) if fields[field] else ""
    if fields["tls"] and os.path.exists(fields["tls"]):
        fields["tls"] = os.path.abspath(fields["tls"])
    if fields["token_file"] and (fields["user"] or fields["password_file"]):
        raise InvalidConfig("a context has a user and a password, or a token, not both")
    path = contexts_file(os.environ)
    known = read_contexts(path)
    current = name if use or not known.current else known.current
    _write(path, Contexts({**known.by_name, name: Context(**fields)}, current))
    click.echo(f"{name} is kept in {path}")


@context.command("ls")
@json_option
def list_contexts(as_json: bool) -> None:
    """List the contexts. No password or token is shown.

    \b
    Examples:
      penstock context ls
    """
    known = read_contexts(contexts_file(os.environ))
    rows = [
        {
            "context": name,
            "current": "*" if name == known.current else None,
            "server": one.server,
            "user": one.user or None,
            "login": next((what for what in _LOGINS if what in one.given()), None),
            "tls": one.tls or None,
        }
        for name, one in sorted(known.by_name.items())
    ]
    columns = ("context", "current", "server", "user", "login", "tls")
    print_rows(rows, columns, as_json=as_json, empty="no contexts: `penstock context add` makes one")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Use a context in commands that name neither a context nor a server.

    \b
    Examples:
      penstock context use prod
    """
    path = contexts_file(os.environ)
    known = read_contexts(path)
    known.named(name)
    _write(path, replace(known, current=name))
    click.echo(f"commands use {name} now")


@context.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(name: str, yes: bool) -> None:
    """Remove a context, with its password.

    \b
    Examples:
      penstock context rm prod --yes
    """
    path = contexts_file(os.environ)
    known = read_contexts(path)
    known.named(name)
    if not yes:
        confirm(f"Remove {name}?", f"{name} stays")
    left = {other: one for other, one in known.by_name.items() if other != name}
    _write(path, Contexts(left, "" if known.current == name else known.current))
    click.echo(f"{name} is removed")


@click.command()
@click.argument("user")
@click.pass_obj
def login(server: str, user: str) -> None:
    """Log in as USER and keep the password in the context: the one of --context, else the current one or `default`.

    The password is asked for, or read from standard input. It is kept if the server accepts it.

    \b
    Examples:
      penstock login ada
      penstock --context prod login ada
      pass show ada | penstock --server names-1:9876 login ada
    """
    path = contexts_file(os.environ)
    known = read_contexts(path)
    name = os.environ.get(CONTEXT_VARIABLE, "") or known.current or "default"
    before = known.by_name.get(name, Context())
    source = click.get_current_context().find_root().get_parameter_source("server")
    if source is ParameterSource.DEFAULT:
        server = before.server or server
    password = ask_secret("Password", twice=False)
    fields = ("tls", "certificate", "key")
    tls = {field: os.environ.get(VARIABLES[field], "") or getattr(before, field) for field in fields}
    kept = Context(server, user, password, **tls)
    environ = kept.variables()
    with Routes(server, credentials=credentials_of(environ=environ)) as routes:
        routes.holders()
    _write(path, Contexts({**known.by_name, name: kept}, known.current or name))
    click.echo(f"logged in as {user} at {server}; kept in the context {name}")


def _write(path: Path, contexts: Contexts) -> None:
    """Puts a new file in the place of the old one. Raises ``InvalidConfig``."""
    lines = [f"current = {_quoted(contexts.current)}"] if contexts.current else []
    for name, one in sorted(contexts.by_name.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [f"{field} = {_quoted(value)}" for field, value in one.given().items()]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be written: {error.strerror}") from None
    replace_file(path, "\n".join(lines) + "\n", encoding="utf-8")


def _quoted(text: str) -> str:
    """A basic string of TOML: one of JSON, but that TOML wants U+007F escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
