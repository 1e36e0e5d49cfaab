"""The options of every command: which context counts. With real commands they are in ``test_context.py``."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from penstock.cli.given import NO_CLIENTS, server_of
from penstock.cli.root import root
from penstock.protocol.addresses import SERVERS


@pytest.fixture(autouse=True)
def one_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text('current = "prod"\n[contexts.prod]\nserver = "names-1:1"\nuser = "ada"\npassword = "secret"\n')
    path.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_CONTEXTS_FILE", str(path))


def asked(command: str, *words: str) -> tuple[str, dict[str, str]]:
    """The server that a command would ask, and the variables that hold meanwhile."""
    with root.make_context("penstock", [*words, command], resilient_parsing=False) as context:
        context.invoked_subcommand = command
        given = {name: str(context.params[name]) for name in ("user", "password_file", "token_file", "tls")}
        server = server_of(context, context.params["server"], context.params["name"], given)
        return server, {one: os.environ[one] for one in os.environ if one.startswith("PENSTOCK_")}


def test_the_current_context_is_for_clients_that_name_no_server() -> None:
    assert asked("topic")[0] == "names-1:1"
    assert asked("topic", "--server", "b:2")[0] == "b:2"
    for command in ("up", "mqtt"):
        assert command in NO_CLIENTS
        server, held = asked(command)
        assert (server, "PENSTOCK_CONTEXT" in held) == (SERVERS, False)


def test_what_is_said_by_options_takes_the_place_of_what_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PASSWORD", "secret")
    _, held = asked("topic", "--user", "vera", "--password-file", "/x", "--tls", "1")
    assert (held["PENSTOCK_USER"], held["PENSTOCK_CLIENT_PASSWORD_FILE"], held["PENSTOCK_TLS"]) == ("vera", "/x", "1")
    assert "PENSTOCK_PASSWORD" not in held
    assert os.environ["PENSTOCK_PASSWORD"] == "secret"
    assert "PENSTOCK_USER" not in os.environ


def test_a_name_that_no_click_context_has_is_an_error() -> None:
    with pytest.raises(click.exceptions.UsageError):
        root.make_context("penstock", ["--no-such-option", "topic"])
