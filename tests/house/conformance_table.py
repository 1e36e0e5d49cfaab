"""Draws docs/conformance.md from tests/conformance/statements.toml and the marks of the tests;
``python tests/house/conformance_table.py`` writes it.

A test says which statements it shows with ``pytest.mark.mqtt``, on itself or on a case of its parameters. The marks
are read from the source, so that nothing has to run.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
STATEMENTS = ROOT / "tests" / "conformance" / "statements.toml"
HEAD = """# Conformance

What MQTT 5.0, 3.1.1 and 3.1 ask of a server, and the tests that show it. Numbers are those of the standards without
`MQTT-`; a number of three parts without a dash is a section. *kept*: the tests in the row fail where it is broken; what
follows says how, where the standard leaves a choice or suggests a stricter one.
*client*: only a client can keep it; tests in such a row show what the server does where it is broken. The file is drawn
by `python tests/house/conformance_table.py` from `tests/conformance/statements.toml` and the tests' marks.
"""
TITLES = {
    "mqtt5": "MQTT 5.0, and what 3.1.1 says the same",
    "mqtt311": "Only in 3.1.1",
    "sections": "Without a number",
    "3.1": "MQTT 3.1",
}


MARKED = re.compile(r"\bmqtt\(|\b(?:mqtt|old)=")


class Row(NamedTuple):
    """A statement. ``old``: its numbers in 3.1.1; ``status``: kept (and how), client or why it does not apply."""

    part: str
    number: str
    old: tuple[str, ...]
    says: str
    status: str


class Mark(NamedTuple):
    """A number that a test names, of 3.1.1 if ``is_old``."""

    number: str
    is_old: bool
    test: str
    file: str


@cache
def rows() -> tuple[Row, ...]:
    """All statements, in their order."""
    made = []
    for part, statements in tomllib.loads(STATEMENTS.read_text()).items():
        for number, one in statements.items():
            unknown = set(one) - {"says", "old", "client", "none", "how"}
            assert not unknown, f"{number}: {unknown}"
            kept = f"kept: {one['how']}" if "how" in one else "kept"
            status = f"does not apply: {one['none']}" if "none" in one else "client" if one.get("client") else kept
            made.append(Row(part, number, tuple(one.get("old", ())), one["says"], status))
    return tuple(made)


@cache
def marks() -> tuple[Mark, ...]:
    """Every mark of every test."""
    made = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        if not MARKED.search(source):
            continue
        tree = ast.parse(source)
        named = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number, is_old in _of(node, named):
                    made.append(Mark(number, is_old, node.name, str(path.relative_to(ROOT))))
    return tuple(made)


def _of(test: ast.FunctionDef | ast.AsyncFunctionDef, named: dict[str, ast.expr]) -> Iterator[tuple[str, bool]]:
    for decorator in test.decorator_list:
        used = [named[one.id] for one in ast.walk(decorator) if isinstance(one, ast.Name) and one.id in named]
        for node in [found for tree in (decorator, *used) for found in ast.walk(tree)]:
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr == "mqtt":
                yield from ((text, False) for argument in node.args for text in _texts(argument))
            for keyword in node.keywords:
                if keyword.arg in ("mqtt", "old"):
                    yield from ((text, keyword.arg == "old") for text in _texts(keyword.value))


def _texts(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def shown_by(row: Row, found: tuple[Mark, ...]) -> list[str]:
    """Names of the tests that show a statement, in any version."""
    own = {(row.number, row.part == "mqtt311")} | {(number, True) for number in row.old}
    return sorted({mark.test for mark in found if (mark.number, mark.is_old) in own})


def page() -> str:
    """The whole page."""
    found, parts = marks(), [HEAD]
    every = rows()
    for part, title in TITLES.items():
        parts.append(f"\n## {title}\n\n| statement | versions | what | tests | status |\n|---|---|---|---|---|\n")
        for row in every:
            if row.part == part:
                names = "<br>".join(f"`{name}`" for name in shown_by(row, found))
                parts.append(f"| {row.number} | {_versions(row)} | {row.says} | {names} | {row.status} |\n")
    return "".join(parts)


def _versions(row: Row) -> str:
    if row.part == "mqtt5":
        return "5.0; 3.1.1: " + ", ".join(row.old) if row.old else "5.0"
    return {"mqtt311": "3.1.1", "sections": "5.0, 3.1.1", "3.1": "3.1"}[row.part]


if __name__ == "__main__":
    PAGE.write_text(page())
