"""Files that are read at the start, where a bad one is an error, and in a thread when they change.

The log gets a line for each of these: a bad file (once per change; it is counted, and the earlier content stays in
force); a file that cannot be read at all (once as long as the error is the same; it is tried again at every look); a
file that is good again; and a file that was read on request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from penstock.errors import InvalidConfig
from penstock.world import Offload

T = TypeVar("T")
_TROUBLES: Final = (OSError, UnicodeDecodeError, InvalidConfig)
_log = logging.getLogger(__name__)


class Watched:
    """A file that is taken again whenever it changes; ``setting`` names it, and ``whose``, for the log, the service.
    Raises ``InvalidConfig`` where it cannot be
    taken at first.

    Attributes:
        failures: how often there was something new that could not be taken.
    """

    def __init__(
        self, setting: str, path: str, parse: Callable[[str], T], take: Callable[[T], None], whose: str = ""
    ) -> None:
        self._path = Path(path)
        self._at = f" at {whose}" if whose else ""
        self._parsed: Callable[[str], Callable[[], None]] = lambda text: partial(take, parse(text))
        self._seen: object = None  # as which it was read, ``None`` if it could not be
        self._told = ""  # why it cannot be read, as the log has it
        self.failures = 0
        try:
            taken = self._read()
        except _TROUBLES as error:
            raise InvalidConfig(f"{setting} {path}: {_reason(error)}") from None
        if taken is not None:
            taken()

    def _read(self, anyway: bool = False) -> Callable[[], None] | None:
        """Reads the file if it is another than last time, or ``anyway``, and gives what takes it. Blocks."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
            if seen == self._seen and not anyway:
                return None
            self._seen = seen
            text = self._path.read_text()
        except OSError:
            self._seen = None
            raise
        return self._parsed(text)

    async def look(self, offload: Offload, *, anyway: bool = False) -> None:
        """Takes the file if it is another than last time, or ``anyway``; reads it beside the event loop."""
        try:
            taken = await offload(partial(self._read, anyway))
        except _TROUBLES as error:
            told, self._told = self._told, _reason(error) if isinstance(error, OSError) else ""
            if anyway or not self._told or self._told != told:
                self.failures += 1
                _log.error("%s: %s; what was read before stays in force%s", self._path, _reason(error), self._at)
        else:
            if taken is not None:
                _log.warning("%s: read again and in force%s", self._path, self._at)
                self._told = ""
                taken()


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"it is no text in UTF-8: {error.reason} at byte {error.start}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
