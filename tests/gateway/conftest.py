"""Makes ``making``, ``rig`` and the like importable by the twins of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
