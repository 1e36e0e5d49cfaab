"""The options that every command takes for its server and its login: a context, or a server and credentials.

They hold for the process while the command runs, as variables of the environment: names and paths alone, never a
password or a token, so that none is in a list of processes or reaches a child.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import click
from click.core import ParameterSource

from penstock.client.contexts import CONTEXT_VARIABLE, LOGIN_VARIABLES, VARIABLES, contexts_file, read_contexts
from penstock.protocol.addresses import SERVERS

NO_CLIENTS: Final = frozenset({"up", "store", "backup", "restore", "doctor", "context", "login", "mqtt"})
"""Commands that the current context does not concern."""


def server_of(context: click.Context, server: str, name: str, options: Mapping[str, str]) -> str:
    """The name servers that a command asks, and has clients of this process use what the options say.

    Args:
        context: of the command.
        server: of ``--server``.
        name: of ``--context``; if empty the current one counts, unless a server is named.
        options: ``user``, ``password_file``, ``token_file``, ``tls``; empty ones are not given.

    Raises ``InvalidConfig`` for a context that is not there.
    """
    is_named = context.get_parameter_source("server") is not ParameterSource.DEFAULT
    if not name and not is_named and context.invoked_subcommand not in NO_CLIENTS:
        name = read_contexts(contexts_file(os.environ)).current
    given = {VARIABLES[option]: value for option, value in options.items() if value}
    cleared = LOGIN_VARIABLES - given.keys() if options.get("user") or options.get("token_file") else frozenset()
    found = ""
    if name:
        found = read_contexts(contexts_file(os.environ)).named(name).server
        given[CONTEXT_VARIABLE] = name
    if given or cleared:
        before = {variable: os.environ.get(variable) for variable in {*given, *cleared}}
        context.call_on_close(lambda: _restore(before))
        _restore({**dict.fromkeys(cleared), **given})
    return server if is_named else found or SERVERS


def _restore(values: Mapping[str, str | None]) -> None:
    """Gives variables these values; None for none."""
    for variable, value in values.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
