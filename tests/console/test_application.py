from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from console.application import ACTIONS, PAGES, STATIC
from tests.console.browser import Site

PACKAGES = Path(__file__).parents[2] / ".node" / "node_modules"


@pytest.mark.endtoend
async def test_every_page_is_served_and_asks_no_other_host(site: Site) -> None:
    needs = {"/topic", "/message", "/group", "/client", "/letters/of", "/broker"}  # a name that is not there
    async with site.open() as browser:
        for path in PAGES:
            answer = await browser.client.get(path)
            named = any(path == one or path.startswith(f"{one}/") for one in needs)
            assert answer.status_code == 200 or named, path
            assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", answer.text), path
        assert "no such page" in await browser.get("/nothing", 404)
        for path in ACTIONS:
            assert (await browser.client.get(path)).status_code in (200, 400, 404, 405), path


@pytest.mark.endtoend
async def test_the_consoles_files_are_served_and_kept(site: Site) -> None:
    async with site.open() as browser:
        for name in ("console.css", "console.js", "htmx.min.js"):
            answer = await browser.client.get(f"/static/{name}")
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "max-age=3600")
        for path in ("/static/../settings.py", "/static/%2e%2e/settings.py", "/static/none"):
            assert (await browser.client.get(path)).status_code == 404


def test_vendored_files_are_those_of_their_packages() -> None:
    vendored = tomllib.loads((STATIC / "vendored.toml").read_text())
    for name, about in vendored.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == about["sha256"], name
        assert (STATIC / about["licence_text"]).read_text().strip(), name
        original = PACKAGES / about["package"] / about["file"]
        if original.exists():
            assert original.read_bytes() == (STATIC / name).read_bytes(), name
    own = {"console.css", "console.js", "vendored.toml"}
    files = {path.name for path in STATIC.iterdir() if path.is_file()}
    assert files == own | set(vendored)
