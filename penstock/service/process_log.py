"""The log of a process on standard error: its level, also at run time, and its format, for people or as JSON.

``[log]`` of a configuration file and ``PENSTOCK_LOG_LEVEL``, ``PENSTOCK_LOG_FORMAT`` say how it begins. SIGUSR2 takes
it one level down each time, to ``info`` and ``debug``, and from there back to where it began.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.errors import InvalidConfig
from penstock.service import config
from penstock.service.setting import check_bounds, setting

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
VARIABLES: Final = "PENSTOCK_LOG"
TABLE: Final = "log"
LEVEL_SIGNAL: Final = signal.SIGUSR2
FIELDS: Final = "penstock_fields"
"""The attribute of a record with what a line in JSON has beside its text."""
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of a process's log."""

    level: str = setting(
        "warning",
        "the lowest level of lines in the log: `debug`, `info`, `warning` or `error`. SIGUSR2 changes it while the"
        " process runs",
        choices=LEVELS,
    )
    format: str = setting("text", "`text`, or `json` for one object a line", choices=FORMATS)

    def __post_init__(self) -> None:
        check_bounds(self)

    def environment(self) -> dict[str, str]:
        """The variables that give a child process the same settings."""
        return {f"{VARIABLES}_LEVEL": self.level, f"{VARIABLES}_FORMAT": self.format}


USUAL: Final = LogSettings()


def take_settings(table: dict[str, Any], environ: Mapping[str, str], source: config.Source) -> LogSettings:
    """The settings of the log, whose table is taken out of that of a configuration file. Raises ``InvalidConfig``."""
    own = table.pop(TABLE, {})
    if not isinstance(own, dict):
        raise InvalidConfig(f"{source.at(TABLE)} [{TABLE}] must be a table")
    return config.load_table(LogSettings, own, environ, VARIABLES, source=source.table(TABLE))


class JsonLines(logging.Formatter):
    """Lines of JSON: ``ts`` (UTC), ``level``, ``logger``, ``message``, and what else a line is about. ``who``: the part
    of the system, where several share a log."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message has in it."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._who:
            line["process"] = self._who
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def formatter(settings: LogSettings, who: str = "") -> logging.Formatter:
    """The formatter of a process. ``who``: what it is called where several processes share one log, ``gateway 1``;
    each line of text says so if there are several of its kind."""
    if settings.format == "json":
        return JsonLines(who)
    return logging.Formatter(_TEXT.replace("%(name)s", f"%(name)s of {who}") if " " in who else _TEXT)


def begin(settings: LogSettings, who: str = "") -> None:
    """Logs on standard error from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings, who))
    logging.basicConfig(handlers=[handler], level=settings.level.upper())


def set_level(level: str) -> None:
    """Sets the level: the log has its lines and those of higher levels. Raises ``InvalidConfig``."""
    logging.getLogger().setLevel(LogSettings(level).level.upper())


def level_now() -> str:
    """The level of the log of this process now, as ``LogSettings`` names it."""
    return logging.getLevelName(logging.getLogger().level).lower()


class LevelSteps:
    """The level of the log of this process at run time. ``level``: where it begins."""

    def __init__(self, level: str) -> None:
        self._first = level
        self.level = level

    def step(self) -> None:
        """One level down, from the lowest back to the first; the log says so."""
        now = LEVELS.index(self.level)
        self.level = LEVELS[now - 1] if now else self._first
        logging.getLogger().setLevel(self.level.upper())
        at = max(logging.WARNING, logging.getLogger().level)
        _log.log(at, "the log is at level %s now (SIGUSR2)", self.level)


async def obeyed(signals: AsyncIterable[int], steps: LevelSteps) -> AsyncIterator[int]:
    """The same signals, passed on when those about the log are obeyed."""
    async for number in signals:
        if number == LEVEL_SIGNAL:
            steps.step()
        yield number
