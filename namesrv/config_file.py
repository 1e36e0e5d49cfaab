"""The file of the name server's key-value store: read at the start, replaced whole with each change before that is
acknowledged."""

from __future__ import annotations

import os
from pathlib import Path

from namesrv.config_store import ConfigStore
from penstock.errors import InvalidConfig, InvalidRequest, PenstockError


def read_config(file: str) -> ConfigStore:
    """The store that a file keeps; an empty one where there is none. Raises ``InvalidConfig``."""
    store = ConfigStore()
    if not file:
        return store
    try:
        store.take_json(Path(file).read_text("utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, UnicodeError, InvalidRequest) as error:
        raise InvalidConfig(f"config_file {file} cannot be used: {error}", hint="mend it, or move it away") from None
    return store


def keep_config(store: ConfigStore, file: str) -> None:
    """Writes the store to its file, if it has one. Raises ``PenstockError`` where that fails: the change counts until
    the next start, and the caller gets an error."""
    if not file:
        return
    draft = Path(f"{file}.draft")
    try:
        with draft.open("w", encoding="utf-8") as out:
            out.write(store.as_json())
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
        folder = os.open(draft.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise PenstockError(f"config_file {file} cannot be written: {error.strerror}") from None
