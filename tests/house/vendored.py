"""Copies the console's libraries for browsers from npm's packages; ``python tests/house/vendored.py`` after
``make install-test`` with new versions in the Makefile writes files, licences and checksums to console/static."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".node" / "node_modules"
STATIC = ROOT / "console" / "static"
FILES = {
    "htmx.min.js": ("htmx.org", "dist/htmx.min.js", "LICENSE"),
    "uPlot.iife.min.js": ("uplot", "dist/uPlot.iife.min.js", "LICENSE"),
    "uPlot.min.css": ("uplot", "dist/uPlot.min.css", "LICENSE"),
    "pico.min.css": ("@picocss/pico", "css/pico.min.css", "LICENSE.md"),
}


def main() -> None:
    """Writes all of them."""
    (STATIC / "licences").mkdir(exist_ok=True)
    rows = []
    for name, (package, file, licence) in FILES.items():
        about = json.loads((PACKAGES / package / "package.json").read_text())
        text = f"licences/{package.replace('/', '-').removeprefix('@')}.txt"
        shutil.copyfile(PACKAGES / package / file, STATIC / name)
        shutil.copyfile(PACKAGES / package / licence, STATIC / text)
        digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
        rows.append(
            f'["{name}"]\npackage = "{package}"\nfile = "{file}"\nversion = "{about["version"]}"\n'
            f'licence = "{about["license"]}"\nlicence_text = "{text}"\nsha256 = "{digest}"\n'
        )
    (STATIC / "vendored.toml").write_text("\n".join(rows))


if __name__ == "__main__":
    main()
