"""Blocks of the guides, and a terminal in which a test types them as printed.

A block is under a *task*, the heading before it. ``Terminal`` runs its lines against a running system: commands of
``penstock`` in this process, everything else in a shell. Addresses and folders of the page become those of the test.
``NOT_TYPED`` names the blocks that no test types.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from click.testing import CliRunner

from node.command import root
from node.up import up
from tests.patience import PATIENCE_S

ROOT: Final = Path(__file__).parents[1]
ENDLESS: Final = re.compile(r"penstock (tail|mqtt sub|client watch)\b(?!.* (-n|--count|-C) )|mosquitto_sub (?!.* -C )")
"""Commands that run until Ctrl-C. They get ``-n 1``, or mosquitto's ``-C 1``, and run beside those that follow."""
TRIES_MAX: Final = 20
PASSWORD: Final = "pencil"
"""What a test answers to each question for a password."""
NOT_TYPED: Final = {
    "README.md": {
        "make demo ": "it installs and tests everything; tests/endtoend/test_demo.py runs the demo",
        "from penstock.spark import session": "tests/spark/test_source_in_spark.py runs it",
    },
    "docs/guide/deploy.md": {
        "packaging/wheels.sh": "it builds two environments: a minute and more; by hand, with its date on the page",
        "useradd --system": "it takes root and systemd; tests/house/test_packaging.py reads the unit",
        "podman build": "it takes a container engine; tests/house/test_packaging.py reads both files",
    },
    "docs/guide/events.md": {
        "PENSTOCK_USER=boss": "tests/events/test_logins.py logs in with each kind of login",
    },
    "docs/guide/rocketmq.md": {
        "DefaultMQProducer producer": "tests/endtoend/java/Unmodified.java makes the same calls",
        "RPCHook login": "tests/endtoend/java/Unmodified.java makes the same calls",
    },
    "docs/guide/console.md": {
        "penstock --server names-1:9876,names-2:9876 console": "tests/node/test_console_command.py",
    },
}
"""By page: blocks by what they begin with, and what runs them instead, or why nothing does."""
_SHELL: Final = re.compile(r"[|<>&;`]|\$\(")


class Block(NamedTuple):
    """A block of a page: the heading above it, its language and its text."""

    task: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """All blocks of a page that have a language, in their order."""
    found, task = [], ""
    for match in re.finditer(
        r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    ):
        if match[1]:
            task = match[1]
        elif match[2]:
            found.append(Block(task, match[2], match[3]))
    return found


def typed(page: str) -> list[Block]:
    """The blocks of a page that its test types: all but those that ``NOT_TYPED`` names."""
    begins = tuple(NOT_TYPED.get(page, ()))
    return [block for block in blocks(page) if not block.text.startswith(begins)]


def lines(text: str) -> list[str]:
    """The commands of a block: continued lines in one, and what a command reads (``<<'END'``) with it."""
    made: list[str] = []
    end = ""
    for line in text.replace("\\\n", " ").splitlines():
        if end or line.startswith(("  ", "> ")):
            made[-1] += "\n" + line
            end = "" if line == end else end
        elif line.strip():
            made.append(line)
            here = re.search(r"<<'(\w+)'", line)
            end = here[1] if here else ""
    return made


def up_options(line: str) -> list[str]:
    """The words of a line that starts a system, ``penstock up ...``; none if it is another command."""
    words = shlex.split(line, comments=True) if line.startswith("penstock up") else []
    return words if words[1:2] == ["up"] else []


class Terminal:
    """A terminal in a folder. ``words``: what stands for which words of the pages, longest first. ``stir``: makes
    something happen that a command which waits shows."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str], words: Mapping[str, str], stir: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._words = words
        self._stir = stir
        (folder / "bin").mkdir(exist_ok=True)
        command = folder / "bin" / "penstock"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m node "$@"\n')
        command.chmod(0o700)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._environ = {**os.environ, **environ, "PATH": path, "PYTHONPATH": str(ROOT)}

    def own(self, text: str) -> str:
        """A text with this test's addresses, folders and ids."""
        for word in sorted(self._words, key=len, reverse=True):
            text = text.replace(word, self._words[word])
        return text

    def type(self, text: str) -> str:
        """Types the commands of a block one after the other; returns what they say. Each succeeds.

        The system runs already: of a line ``penstock up`` only the options are checked.
        """
        said, waiting = "", list[_Waiting]()
        try:
            for line in lines(self.own(text)):
                if ENDLESS.match(line):
                    limit = " -C 1" if line.startswith("mosquitto_sub") else " -n 1"
                    bare = re.sub(r"\s+(#.*|&)$", "", line) + limit
                    waiting.append(_Waiting(bare, self._begin(bare)))
                elif words := up_options(line):
                    up.make_context("up", words[2:])
                else:
                    said += self._run(re.sub(r"^(penstock top\b)", r"\1 -n 1", line))
            for one in waiting:
                said += self._end(one)
        finally:
            for one in waiting:
                one.process.kill()
                one.process.communicate()
        return said

    def _run(self, line: str) -> str:
        words = [] if _SHELL.search(line.partition(" #")[0]) else shlex.split(line, comments=True)
        if words[:1] == ["penstock"]:
            answer = f"{PASSWORD}\n" if {"user", "login"} & set(words) else "y\n"
            for _ in range(TRIES_MAX):
                with contextlib.chdir(self._folder):
                    result = CliRunner(env=self._environ).invoke(root, words[1:], input=answer)
                if "did not answer in time" not in result.output:  # a machine with far too much to do
                    break
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
            return result.output
        done = subprocess.run(
            ["bash", "-ec", line],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _begin(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _end(self, one: _Waiting) -> str:
        """Makes things happen until a command that waits for one has seen it. One that came too early begins again."""
        for tried in range(2 * PATIENCE_S):
            status = one.process.poll()
            if status is not None:
                out, complaint = one.process.communicate()
                if status == 0:
                    return out
                assert tried < TRIES_MAX, f"{one.line}\n{complaint}"
                one.process = self._begin(one.line)
            self._stir()
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(0.5)
        raise AssertionError(f"{one.line} saw nothing")


@dataclass
class _Waiting:
    """A command that waits for something to show, and its process."""

    line: str
    process: subprocess.Popen[str]
