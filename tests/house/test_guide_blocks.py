"""Each block of the README and the guides is run by a test, or stands in ``SHOWN`` with the reason why it is not."""

from __future__ import annotations

import re

import pytest
from sources import ROOT

from tests.guide_blocks import NOT_TYPED, blocks

PAGES = ["README.md", *[str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "guide").glob("*.md"))]]
BLOCK = re.compile(r"^```(\w+)$", re.MULTILINE)
RUN = {
    ("README.md", "python"): "tests/endtoend/test_readme.py",
    ("README.md", "sh"): "tests/endtoend/test_readme.py",
    ("docs/guide/access.md", "python"): "tests/penstock/test_access_guide.py",
    ("docs/guide/access.md", "rules"): "tests/penstock/test_access_guide.py",
    ("docs/guide/access.md", "sh"): "tests/penstock/test_access_guide.py",
    ("docs/guide/access.md", "toml"): "tests/penstock/test_access_guide.py",
    ("docs/guide/analyst.md", "python"): "tests/spark/test_analyst_guide.py",
    ("docs/guide/analyst.md", "sh"): "tests/spark/test_analyst_guide.py",
    ("docs/guide/backend.md", "python"): "tests/penstock/test_backend_guide.py",
    ("docs/guide/backend.md", "sh"): "tests/penstock/test_backend_guide.py",
    ("docs/guide/console.md", "sh"): "tests/endtoend/test_guides.py",
    ("docs/guide/console.md", "toml"): "tests/endtoend/test_guides.py",
    ("docs/guide/deploy.md", "sh"): "tests/endtoend/test_guides.py",
    ("docs/guide/device.md", "python"): "tests/endtoend/test_device_guide.py",
    ("docs/guide/device.md", "rules"): "tests/endtoend/test_device_guide.py",
    ("docs/guide/device.md", "sh"): "tests/endtoend/test_device_guide.py",
    ("docs/guide/events.md", "json"): "tests/endtoend/test_events_guide.py",
    ("docs/guide/events.md", "sh"): "tests/endtoend/test_events_guide.py",
    ("docs/guide/failover.md", "sh"): "tests/endtoend/test_failover_guide.py",
    ("docs/guide/failover.md", "toml"): "tests/endtoend/test_failover_tls.py",
    ("docs/guide/operator.md", "sh"): "tests/endtoend/test_guides.py",
    ("docs/guide/operator.md", "toml"): "tests/endtoend/test_guides.py",
    ("docs/guide/operator.md", "yaml"): "tests/endtoend/test_guides.py",
    ("docs/guide/rocketmq.md", "java"): "tests/endtoend/test_guides.py",
    ("docs/guide/rocketmq.md", "rules"): "tests/endtoend/test_guides.py",
    ("docs/guide/rocketmq.md", "sh"): "tests/endtoend/test_guides.py",
    ("docs/guide/rocketmq.md", "toml"): "tests/endtoend/test_guides.py",
}
"""What runs the blocks of one language of a page: all that ``typed`` of tests/guide_blocks.py gives it."""
OWN = {"tests/endtoend/test_failover_guide.py", "tests/endtoend/test_failover_tls.py"} | {
    "tests/spark/test_analyst_guide.py",
}
"""Tests that find the blocks of their page in another way."""
SHOWN = {
    ("docs/guide/benchmark.md", "sh"): "minutes of benchmarks",
    ("docs/guide/spark-cluster.md", "python"): "it takes a cluster",
    ("docs/guide/spark-cluster.md", "sh"): "it takes a cluster; tests/spark/test_package.py makes an archive",
}
"""What no test runs, and why not."""


def shown() -> set[tuple[str, str]]:
    return {(page, language) for page in PAGES for language in BLOCK.findall((ROOT / page).read_text())}


def test_each_block_is_run_or_it_is_said_why_not() -> None:
    assert shown() - RUN.keys() - SHOWN.keys() == set()


def test_neither_table_has_rows_for_blocks_that_are_gone() -> None:
    assert (RUN.keys() | SHOWN.keys()) - shown() == set()
    assert RUN.keys() & SHOWN.keys() == set()


@pytest.mark.parametrize(("page", "test"), sorted({(page, test) for (page, _), test in RUN.items()}))
def test_the_test_of_a_page_reads_all_of_its_blocks(page: str, test: str) -> None:
    name = page.rpartition("/")[2]
    text = (ROOT / test).read_text()
    assert name in text or f'"{name.removesuffix(".md")}"' in text
    assert "typed(" in text or test in OWN


@pytest.mark.parametrize("page", NOT_TYPED)
def test_each_block_that_is_not_typed_is_on_its_page(page: str) -> None:
    shown = [block.text for block in blocks(page)]
    assert [begin for begin in NOT_TYPED[page] if not any(text.startswith(begin) for text in shown)] == []


TASKS = ("access", "backend", "console", "deploy", "device", "events", "metrics", "operator", "rocketmq", "settings")
VERBS = (
    "Allow Ask Back Build Change Check Choose Compress Connect Decide Deliver Export Find Get Give Go Handle Keep "
    "Let Limit Log Make Move Open Process Publish Put Read Receive Remove Require Roll Run Save See Send "
    "Set Share Start Stay Stop Subscribe Take Trace Tune Upgrade Use Watch"
)
LOOKED_UP = {"Formats", "Limits"}
"""Headings of tables in which a reader looks something up."""


@pytest.mark.parametrize("page", TASKS)
def test_headings_of_a_guide_are_tasks(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / f"docs/guide/{page}.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^###? (.+)$", text, re.MULTILINE)
    assert headings
    assert [one for one in headings if one.split()[0] not in VERBS.split() and one not in LOOKED_UP] == []
