"""Passwords and keys of commands: asked for or read from standard input, and kept in files that are replaced in one
step, so that a reader finds the old file or the new one."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import click

from penstock.errors import InvalidConfig


def ask_secret(prompt: str, *, twice: bool) -> str:
    """A secret that is typed without being shown, or the first line of standard input. ``twice``: it is typed again to
    confirm it."""
    if sys.stdin.isatty():
        return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice))
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


def replace_file(file: Path, text: str, old: os.stat_result | None = None, *, encoding: str | None = None) -> None:
    """Puts a new file in the place of another one, with the owner and mode of ``old``; without it, of this user and
    readable by it alone. ``encoding``: as of ``open``. Raises ``InvalidConfig``."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding=encoding) as stream:
            stream.write(text)
            stream.flush()
            if old is not None:
                _give(descriptor, old)
            os.fsync(descriptor)
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidConfig(f"{file} cannot be written: {error.strerror}") from None


def _give(descriptor: int, old: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
