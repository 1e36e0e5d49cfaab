"""What remains of older habits may only become less: imports, names, riddles and docstrings.

Each list or number here is what there is today. A change that mends one lowers it; nothing raises it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from sources import PACKAGES, ROOT, modules, nodes, tree

IMPORTS_MAX = 28
"""Modules of ours that one module may import."""
MANY_IMPORTS = {"broker/service.py": 38, "gateway/build.py": 42}
"""Compositions: they name every part that they put together."""


def ours(path: Path) -> set[str]:
    """Modules of ours that a module imports."""
    names = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes(path) if isinstance(node, ast.ImportFrom) and node.module}
    return {name for name in names if name.partition(".")[0] in PACKAGES}


def test_no_module_imports_more_of_ours_than_a_reader_can_hold() -> None:
    many = {str(path.relative_to(ROOT)): len(ours(path)) for path in modules()}
    assert {path: count for path, count in many.items() if count > MANY_IMPORTS.get(path, IMPORTS_MAX)} == {}


SAME_NAMES = {
    *("Answer", "Ask", "Assignment", "Attempts", "Batch", "BrokerState", "Bucket", "Change"),
    *("Checks", "Client", "Cluster", "Connection", "Consumer", "Credentials", "DeadLetters", "Deadlines"),
    *("Device", "Ended", "Exchange", "Exchanges", "Face", "Failed", "Figures", "Flow"),
    *("Fold", "FrameReader", "Groups", "Guard", "Half", "Holder", "Holders", "Identity"),
    *("Incoming", "Kind", "Lease", "Line", "Login", "Member", "Members", "Membership"),
    *("Numbers", "Origin", "Output", "Owed", "Peer", "Piece", "Place", "Progress"),
    *("Reading", "Received", "Refusals", "Removals", "Retained", "Row", "Rule", "Rules"),
    *("Search", "Sending", "Sent", "Session", "Source", "Stage", "Stretch", "Subscription"),
    *("Task", "Terms", "Users", "Waiting", "Written"),
}
"""Class names that stand for different things in two packages."""


def test_no_further_class_name_means_two_things() -> None:
    packages: dict[str, set[str]] = {}
    for path in modules():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                packages.setdefault(node.name, set()).add(path.relative_to(ROOT).parts[0])
    assert {name for name, found in packages.items() if len(found) > 1} == SAME_NAMES


RIDDLES = {
    r"\bnobody\b": 30,
    r"\bsomebody\b": 10,
    r"\b(?:any|every)body\b": 20,
    r"\bwhoever\b": 20,
    r"\bso (?:many|much|long)\b": 20,
    r"\b(?:is|are) told\b": 20,
    r"\bwho (?:comes|goes|has|wants|waits|is|was|asks)\b": 20,
    r"\bwhat (?:was|is) (?:owed|stored|said|asked)\b": 20,
    r"\bwhat (?:becomes|became|comes|came|follows|waits|stands|remains|stays)\b": 70,
    r"\bwhat (?:\w+ )?(?:has|have|had)\b": 50,
    r"\bwhat (?:it|they|is|was|are|were)\b": 590,
    r"\blets? go of\b": 10,
}
"""Idioms that hide who does what, and how often they still stand in sources and pages, rounded up
to the next ten."""


@cache
def texts() -> dict[str, str]:
    """Sources and pages."""
    pages = [*modules(), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(one.relative_to(ROOT)): one.read_text() for one in pages}


@pytest.mark.parametrize("riddle", RIDDLES)
def test_riddles_become_fewer(riddle: str) -> None:
    found = Counter({name: len(re.findall(riddle, text, re.I)) for name, text in texts().items()})
    assert found.total() <= RIDDLES[riddle], f"say who does what; most are in {found.most_common(5)}"


UNDOCUMENTED_MAX = 0
"""Public classes and functions without a docstring."""
NO_NOUNS = {
    *("What", "Where", "Who", "Whoever", "Whose", "How", "When", "Why", "Which", "Whether", "That", "Those", "These"),
    *("Of", "As", "At", "Until", "No", "Some", "Something", "Somebody", "Everything", "Any", "There", "Told", "Even"),
}
NO_NOUN_FIRST_MAX = 20
"""Public classes whose docstring begins with such a word, not with the thing that they are."""


def public(kinds: tuple[type[ast.AST], ...]) -> Iterator[tuple[str, str]]:
    """Name and docstring of what modules define for others."""
    for path in modules():
        for node in tree(path).body:
            if isinstance(node, kinds) and not getattr(node, "name", "_").startswith("_"):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}", ast.get_docstring(node) or ""  # type: ignore[arg-type]


def test_every_public_name_has_a_docstring() -> None:
    silent = [name for name, text in public((ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) if not text]
    assert len(silent) <= UNDOCUMENTED_MAX, silent


RIDDLING_FUNCTIONS_MAX = 170
"""Functions and methods whose docstring begins with such a word; *Whether* is for those that answer yes or no."""


def test_docstrings_of_classes_begin_with_the_thing() -> None:
    riddling = [name for name, text in public((ast.ClassDef,)) if text and text.split()[0].strip(",.:") in NO_NOUNS]
    assert len(riddling) <= NO_NOUN_FIRST_MAX, riddling


def test_docstrings_of_functions_begin_with_a_verb_or_the_thing() -> None:
    riddling = []
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "").split()
                if words and words[0].strip(",.:") in NO_NOUNS - {"Whether"}:
                    riddling.append(f"{path.relative_to(ROOT)}:{node.name}")
    assert len(riddling) <= RIDDLING_FUNCTIONS_MAX, riddling


MODULE_LINES_MAX = 8
LONG_MODULES_MAX = 40
"""Modules whose docstring has more lines than that, empty ones not counted."""


def test_docstrings_of_modules_are_short() -> None:
    counts = {str(path.relative_to(ROOT)): (ast.get_docstring(tree(path)) or "").splitlines() for path in modules()}
    long = [name for name, lines in counts.items() if len([line for line in lines if line]) > MODULE_LINES_MAX]
    assert len(long) <= LONG_MODULES_MAX, long


DECISION_BYTES_MAX = 4_200
"""About a page: decision, reasons, what was considered, costs. Details are for docs/protocols and docs/formats."""


def test_a_decision_is_one_page() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name for page in pages if page.stat().st_size > DECISION_BYTES_MAX] == []
