"""How long tests wait, in real time, for what takes a moment on an idle machine.

Long enough for a machine with ten times more to do than it can: a limit that is reached means that something hangs, and
the error says so. It costs nothing where nothing hangs.
"""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 300
