"""Makes the gateway's test tools importable by the twins of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parents[1])
if FOLDER not in sys.path:
    sys.path.insert(0, FOLDER)
