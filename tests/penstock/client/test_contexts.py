"""Contexts: the file, and what of it a client takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client.contexts import Context, Contexts, contexts_file, read_contexts, with_context
from penstock.client.credentials import credentials_of
from penstock.errors import InvalidConfig

FILE = """
current = "prod"
[contexts.prod]
server = "names-1:9876"
user = "ada"
password = "lovelace"
[contexts.token]
token = "t"
"""


def written(folder: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    """The environment in which this is the file."""
    path = folder / "contexts.toml"
    path.write_text(text)
    path.chmod(mode)
    return {"PENSTOCK_CONTEXTS_FILE": str(path)}


def test_a_client_takes_the_context_that_its_environment_names_and_nothing_else_of_the_file(tmp_path: Path) -> None:
    environ = written(tmp_path, FILE)
    assert not credentials_of(environ=environ).logs_in, "the current context is for commands"
    found = credentials_of(environ=environ | {"PENSTOCK_CONTEXT": "prod"})
    assert (found.user, found.password) == ("ada", "lovelace")
    assert credentials_of(environ=environ | {"PENSTOCK_CONTEXT": "token"}).token == "t"
    assert "lovelace" not in repr(read_contexts(contexts_file(environ)))


def test_who_somebody_is_comes_from_one_place_together(tmp_path: Path) -> None:
    environ = written(tmp_path, FILE) | {"PENSTOCK_CONTEXT": "prod"}
    with pytest.raises(InvalidConfig, match="no password"):
        credentials_of(environ=environ | {"PENSTOCK_USER": "vera"})
    assert credentials_of("vera", "look", environ=environ).user == "vera"
    assert credentials_of(environ=environ | {"PENSTOCK_TOKEN": "own"}).token == "own"
    assert "lovelace" not in with_context(environ, is_known=True).values()


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (FILE, 0o640, "others may read"),
        ("contexts = 7", 0o600, "contexts is a table"),
        ("[contexts.a]\nhost = 'x'", 0o600, "has no field host"),
        ("[contexts.a]\nuser = 7", 0o600, "user is text"),
        ("[contexts]\na = 7", 0o600, "context a is a table"),
        ("[", 0o600, "is no TOML"),
        (FILE.replace("prod", "other"), 0o600, "there is no context 'prod'"),
    ],
)
def test_a_file_that_is_damaged_or_open_to_others_is_an_error(tmp_path: Path, text: str, mode: int, said: str) -> None:
    environ = written(tmp_path, text, mode) | {"PENSTOCK_CONTEXT": "prod"}
    with pytest.raises(InvalidConfig, match=said) as refused:
        credentials_of(environ=environ)
    assert "lovelace" not in str(refused.value)


def test_where_the_file_is_and_that_none_is_needed(tmp_path: Path) -> None:
    assert contexts_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/penstock/contexts.toml")
    assert contexts_file({}).parts[-3:] == (".config", "penstock", "contexts.toml")
    assert read_contexts(tmp_path / "none") == Contexts()
    assert Context(server="a:1", tls="1").variables() == {"PENSTOCK_TLS": "1"}
