"""The version that servers report and the command prints; pyproject.toml reads it from here."""

from typing import Final

VERSION: Final = "0.1.0"
