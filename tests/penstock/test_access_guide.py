"""The tasks of docs/guide/access.md, tried as they are printed, from one file of settings to the next."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio
import trustme

from node.settings import load
from penstock.blocking import Producer
from penstock.errors import NotAuthorized
from tests.guide_blocks import PASSWORD, Block, Terminal, typed
from tests.penstock.native_access import servers

BLOCKS = typed("docs/guide/access.md")
SECRET = "a secret of more than thirty-two bytes"
PASSWORDS = "Require passwords"
TASKS = [PASSWORDS, "Put TLS in front", "Give a service a token", "Read the audit log"]
RUNNING = ("penstock context", "penstock audit")
"""What commands begin with that take running servers."""


def blocks(task: str) -> list[Block]:
    """The blocks of a task, behind those of the first one that it takes for done."""
    own = [block for block in BLOCKS if block.task == task]
    users = [block for block in BLOCKS if block.task == PASSWORDS]
    return own if task == PASSWORDS else [*(users if task == TASKS[-1] else users[:1]), *own]


def settings_of(text: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file of settings says of access, and of the broker alone."""
    (folder / "penstock.toml").write_text(text)
    node = load(folder / "penstock.toml", {}, {}).node  # `penstock up` takes it
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in tomllib.loads(text).items()}
    own = {name: given.pop(name) for name in ("peers_tls_ca",) if name in given}
    assert node.asks
    return given, own


def test_each_block_is_of_a_task() -> None:
    assert {block.task for block in BLOCKS} == set(TASKS)


@pytest.mark.endtoend
@pytest.mark.parametrize("task", TASKS)
async def test_the_task_works_as_it_is_printed(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path("server.pem")
    (tmp_path / "token.key").write_text(SECRET)
    (tmp_path / "token").write_text(jwt.encode({"sub": "billing", "aud": "penstock", "exp": 1 << 33}, SECRET, "HS256"))
    access: dict[str, Any] = {}
    own: dict[str, Any] = {}
    programs, later = [], []
    for _, language, text in blocks(task):
        if language == "sh" and text.startswith(RUNNING):
            later.append(text)
        elif language == "sh":
            Terminal(tmp_path, {}, {}, lambda: None).type(text)
        elif language == "rules":
            (tmp_path / "rules").write_text(text)
        elif language == "toml":
            access, own = settings_of(text, tmp_path)
        else:
            assert language == "python"
            programs.append(text)
    assert programs
    async with servers(tmp_path, access, **own) as at:
        environ = {"PENSTOCK_CONTEXTS_FILE": str(tmp_path / "contexts.toml")}
        words = {"names-1:9876,names-2:9876 --tls /etc/penstock/ca.pem": at.namesrv}

        login: dict[str, Any] = {"servers": at.namesrv, "user": "billing", "password": PASSWORD}

        def refused() -> None:
            with pytest.raises(NotAuthorized), Producer(**login) as producer:
                producer.send("payments", b"none")

        terminal = Terminal(tmp_path, environ, words, refused)
        said = "".join([await trio.to_thread.run_sync(terminal.type, text) for text in later])
        assert "%AUDIT%:0" in said or task != "Read the audit log"
        monkeypatch.setenv("PENSTOCK_SERVER", at.namesrv)
        for program in programs:
            await trio.to_thread.run_sync(exec, compile(program, "docs/guide/access.md", "exec"), {})
