"""A file that is taken again when it changes; tests/gateway/login/test_verifier.py shows it at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.service.watched import Watched


async def test_a_file_that_could_not_be_read_is_tried_again_although_it_is_unchanged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a chown: nothing of the file is new but that it may be read, and a revocation must count."""

    async def at_once(call: Callable[[], object]) -> object:
        return call()

    def refuse(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    path, taken = tmp_path / "acl", list[str]()
    path.write_text("old")
    watched = Watched("acl_file", str(path), str.strip, taken.append)
    path.write_text("new and longer")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        for _ in range(3):
            await watched.look(at_once)  # type: ignore[arg-type]
    assert (taken, watched.failures, len(caplog.records)) == (["old"], 1, 1)
    await watched.look(at_once)  # type: ignore[arg-type]
    await watched.look(at_once)  # type: ignore[arg-type]
    assert (taken, watched.failures) == (["old", "new and longer"], 1)
