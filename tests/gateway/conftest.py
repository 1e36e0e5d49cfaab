"""Makes ``making``, ``rig`` and the like importable by the twins of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.sessions.session import Session

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def what_is_empty_of_all_sessions_stays_empty() -> Iterator[None]:
    """New sessions share their empty dicts: who adds to one makes one of its own."""
    yield
    new = Session("new", 1)
    assert (new.behind, new.releasing, new.incoming) == ({}, {}, {})
