"""Makes ``rig`` importable: the whole gateway without sockets (tests/gateway/rig.py)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))
