"""Alert rules and dashboard, as far as they can be checked without Prometheus and Grafana."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dashboard import FILE, text

from penstock.service.meanings import meaning_of

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
PROMTOOL = shutil.which("promtool")
OURS = re.compile(r"\b(?:rocketmq|penstock|gateway|namesrv|process|events)_\w+")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def promtool(*arguments: str) -> str:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unknown(queries: str) -> list[str]:
    """Names of figures that the table of meanings has not."""
    names = {re.sub(r"_bucket$", "", one) for one in OURS.findall(queries)}
    assert names
    return sorted(one for one in names if not meaning_of(one))


def queries_of_the_dashboard() -> list[str]:
    return [target["expr"] for panel in json.loads(FILE.read_text())["panels"] for target in panel["targets"]]


def test_rules_and_dashboard_ask_for_figures_that_there_are() -> None:
    expressions = re.findall(r"^ +expr: (.+)$", (FOLDER / "alerts.yml").read_text(), re.MULTILINE)
    assert unknown("\n".join(expressions)) == []
    assert unknown("\n".join(queries_of_the_dashboard())) == []


@needs_promtool
def test_the_rules_are_legal_and_do_what_they_say() -> None:
    promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


@needs_promtool
def test_the_queries_of_the_dashboard_are_legal(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{at}", "expr": query.replace("$__rate_interval", "1m").replace("$instance", ".*")}
        for at, query in enumerate(queries_of_the_dashboard())
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "rules.yml"))


def test_the_dashboard_is_as_it_is_drawn() -> None:
    assert FILE.read_text() == text(), "run: python tests/house/dashboard.py"
