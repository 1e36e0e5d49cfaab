"""Blocks of the guides, and a terminal in which a test types them as printed.

A block is under a *task*, the heading before it. ``Terminal`` runs its lines against a running system: commands of
``penstock`` in this process, everything else in a shell. Addresses and folders of the page become those of the test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from click.testing import CliRunner

from node.command import root
from tests.patience import PATIENCE_S

ROOT: Final = Path(__file__).parents[1]
ENDLESS: Final = re.compile(r"penstock (tail|mqtt sub|client watch)\b(?!.* (-n|--count|-C) )|mosquitto_sub (?!.* -C )")
"""Commands that run until Ctrl-C. They get ``-n 1``, or mosquitto's ``-C 1``, and run beside those that follow."""
TRIES_MAX: Final = 20
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
        """Types the commands of a block one after the other; returns what they say. Each succeeds."""
        said, waiting = "", list[tuple[str, subprocess.Popen[str]]]()
        for line in lines(self.own(text)):
            if ENDLESS.match(line):
                limit = " -C 1" if line.startswith("mosquitto_sub") else " -n 1"
                bare = re.sub(r"\s+(#.*|&)$", "", line)
                waiting.append((bare, self._begin(bare + limit)))
            else:
                said += self._run(re.sub(r"^(penstock top\b)", r"\1 -n 1", line))
        for line, process in waiting:
            said += self._end(line, process)
        return said

    def _run(self, line: str) -> str:
        words = [] if _SHELL.search(line.partition(" #")[0]) else shlex.split(line, comments=True)
        if words[:1] == ["penstock"]:
            typed = "pencil\n" if "user" in words[1:2] else "y\n"
            for _ in range(TRIES_MAX):
                result = CliRunner(env=self._environ).invoke(root, words[1:], input=typed)
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

    def _end(self, line: str, process: subprocess.Popen[str]) -> str:
        """Makes things happen until a command that waits for one has seen it."""
        tried = 0
        try:
            while process.poll() is None:
                tried += 1
                assert tried < 2 * PATIENCE_S, f"{line} saw nothing"
                self._stir()
                try:
                    process.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
            out, complaint = process.communicate()
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 0, f"{line}\n{complaint}"
        return out
