"""The modules of the house, each read and parsed once for all tests of a process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("topicmap", "penstock", "namesrv", "broker", "console", "gateway", "events", "remoting", "node")


@cache
def modules() -> tuple[Path, ...]:
    return tuple(
        path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")) if "__pycache__" not in path.parts
    )


@contextmanager
def without_collector() -> Iterator[None]:
    """What is made stays to the end: to go through it for garbage again and again takes longer than to make it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def tree(path: Path) -> ast.Module:
    with without_collector():
        return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    with without_collector():
        return tuple(ast.walk(tree(path)))
