"""Compiles the hot modules with mypyc: into a wheel when one is built, or into a copy of the tree (``make compile``).

The modules stay plain Python; without a C compiler the same files run as they are. ``[tool.penstock]`` in
``pyproject.toml`` names them. A compiled file never lies beside a source in the tree, so none can outlive a change of
it: ``python hatch_build.py FOLDER`` makes ``FOLDER`` anew, with the packages, the compiled modules and the tests, and
with the load generator, compiled too: it must be faster than what it measures.
``python hatch_build.py --checked FOLDER`` is for tests: the C is not optimised and keeps its own assertions, which
takes less than half of the time. ``--without`` leaves modules out, to measure what they are worth
(``python -m loadtest modules``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
PACKAGES = ("broker", "console", "events", "gateway", "namesrv", "node", "penstock", "remoting", "topicmap")
LOAD = "loadtest"
BESIDE = (
    "tests",
    "docs",
    ".node",
    "pyproject.toml",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "Makefile",
)
# Nobody outside calls into a compiled module by name, so its own calls need not go by the tables of the linker. Python
# asks for all warnings, which take half of the compiler's time: nobody reads them of C that is made.
_FLAGS = "-fvisibility=hidden -fno-semantic-interposition -Wno-all"
_OPTIMISED, _CHECKED = "2", "0"
_SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
level, paths = sys.argv.pop(1), sys.argv.pop(1).split(",")
modules = mypycify(["--ignore-missing-imports", *paths], opt_level=level, debug_level="0", multi_file=False)
setup(name="penstock-compiled", packages=[], ext_modules=modules)
"""


def hot_modules(*, load: bool = False) -> list[str]:
    """Paths of the modules to compile; ``load``: those of the load generator too, which no wheel has."""
    listed: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["penstock"]
    return listed["compiled"] + (listed["compiled-load"] if load else [])


def compiler() -> str | None:
    """The C compiler if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compile_in(folder: Path, modules: list[str], level: str = _OPTIMISED) -> list[Path]:
    """Compiles these modules of the packages in ``folder``, in place; gives the files made. Raises ``RuntimeError``."""
    if not compiler():
        raise RuntimeError("there is no C compiler")
    command = [sys.executable, "-c", _SETUP, level, ",".join(modules), "-q", "build_ext", "--inplace"]
    flags = f"{os.environ.get('CFLAGS', '')} {_FLAGS}"
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"CFLAGS": flags}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"mypyc failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    shutil.rmtree(folder / "build", ignore_errors=True)
    return sorted(folder.rglob("*.so"))


def copy_packages(folder: Path, *more: str) -> None:
    """The packages, and what else is named, without anything that was made from them."""
    for package in (*PACKAGES, *more):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))


def main() -> int:
    """Makes the compiled copy of the tree in the folder that is named."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--checked", action="store_true", help="for tests: not optimised, with assertions")
    parser.add_argument("--without", nargs="*", default=[], metavar="PATH", help="modules that stay plain Python")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    folder: Path = given.folder
    modules = [path for path in hot_modules(load=True) if path not in given.without]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_packages(folder, LOAD)
    try:
        made = compile_in(folder, modules, _CHECKED if given.checked else _OPTIMISED)
    except RuntimeError as error:
        print(f"not compiled: {error}")
        shutil.rmtree(folder)
        return int(bool(compiler()))
    for name in BESIDE:
        (folder / name).symlink_to(ROOT / name)
    print(f"{len(made)} compiled files in {folder}")
    return 0


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class CompiledModules(BuildHookInterface[Any]):
        """Adds the compiled modules to a wheel; without a compiler the wheel is pure Python."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if version == "editable" or self.target_name != "wheel":
                return
            folder = Path(tempfile.mkdtemp(prefix="penstock-compiled-"))
            copy_packages(folder)
            try:
                made = compile_in(folder, hot_modules())
            except RuntimeError as error:
                self.app.display_warning(f"penstock is installed as pure Python: {error}")
                return
            build_data["force_include"].update({str(path): str(path.relative_to(folder)) for path in made})
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


if __name__ == "__main__":
    sys.exit(main())
