"""The root of the ``penstock`` command: the name server's address, and what a person reads when something fails.

Rules of every command: data goes to stdout, talk to stderr; ``--json`` prints one object per line and stays stable; the
exit status is 0 for done, 1 for failed, 2 for wrong use, 3 for not found, 4 for not allowed, 5 for out of time, 130 for
interrupted. The command uses the blocking client, so that ``--help`` and short commands load no event loop.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from penstock.cli.display import ERROR_STATUS, JSON_WANTED
from penstock.cli.given import server_of
from penstock.client.contexts import CONTEXT_VARIABLE
from penstock.errors import (
    GroupNotFound,
    HalfNotFound,
    InvalidConfig,
    InvalidFilter,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    NotAuthorized,
    OffsetOutOfRange,
    PenstockError,
    QueueNotFound,
    SessionNotFound,
    TimedOut,
    TimerNotFound,
    TooLarge,
    TopicNotFound,
)
from penstock.protocol.addresses import SERVERS
from penstock.protocol.message import IS_COMPILED
from penstock.version import VERSION

STATUS_FAILED: Final = 1
STATUS_USAGE: Final = 2
STATUS_NOT_FOUND: Final = 3
STATUS_NOT_AUTHORIZED: Final = 4
STATUS_TIMED_OUT: Final = 5
STATUS_INTERRUPTED: Final = 130

_STATUS: Final = (
    (
        (
            TopicNotFound,
            GroupNotFound,
            QueueNotFound,
            SessionNotFound,
            HalfNotFound,
            TimerNotFound,
            OffsetOutOfRange,
            NoRoute,
        ),
        STATUS_NOT_FOUND,
    ),
    ((InvalidConfig, InvalidRequest, InvalidTopic, InvalidMessage, InvalidFilter, TooLarge), STATUS_USAGE),
    ((NotAuthorized,), STATUS_NOT_AUTHORIZED),
    ((TimedOut,), STATUS_TIMED_OUT),
)


def status_of(error: PenstockError) -> int:
    """The exit status that an error ends with."""
    return next((status for kinds, status in _STATUS if isinstance(error, kinds)), STATUS_FAILED)


def report(error: PenstockError, *, as_json: bool) -> None:
    """Says on stderr what failed, and what to do."""
    if as_json:
        line = {"error": type(error).__name__, "message": error.message, "hint": error.advice, "code": error.code}
        click.echo(json.dumps(line), err=True)
        return
    click.echo(f"error: {error.message}", err=True)
    for choice in error.advice.splitlines():
        click.echo(f"       {choice}", err=True)


def _failed_to_write(error: OSError) -> PenstockError:
    """The error of output that cannot be written. The output is closed, or the interpreter would report it once
    more."""
    with contextlib.suppress(OSError):
        sys.stdout.close()
    reason = error.strerror or str(error)
    return PenstockError(f"{error.filename}: {reason}" if error.filename else f"input or output failed: {reason}")


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command that cannot be understood was to print JSON."""
    return "--json" in itertools.takewhile(lambda one: one != "--", arguments)


class ReportingGroup(click.Group):
    """A group whose commands end with one clear report instead of a traceback.

    Commands may be added by place; such a command is imported when it is used, so that each starts fast.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places: dict[str, str] = {}

    def add_places(self, places: Mapping[str, str]) -> None:
        """Adds commands: name to ``module:object``. A later place of a name replaces an earlier one."""
        self._places.update(places)

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *self._places})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self._places:
            module, _, attribute = self._places[name].partition(":")
            gc.disable()  # what is loaded now stays: to look for what may go takes a fifth of the time
            try:
                self.add_command(getattr(importlib.import_module(module), attribute), name)
            finally:
                gc.enable()
            del self._places[name]
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> Any:
        wanted = [*context._protected_args, *context.args]
        try:
            result = super().invoke(context)
            sys.stdout.flush()
            return result
        except PenstockError as error:
            report(error, as_json=context.meta.get(JSON_WANTED, False))
            context.exit(context.meta.get(ERROR_STATUS, status_of(error)))
        except click.UsageError as error:
            if not _wants_json(wanted):
                raise
            report(InvalidConfig(error.format_message()), as_json=True)
            context.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            context.exit(STATUS_INTERRUPTED)
        except BrokenPipeError:  # `penstock consume ... | head`: the reader has closed the pipe
            sys.stderr.close()
            context.exit(0)
        except OSError as error:
            report(_failed_to_write(error), as_json=context.meta.get(JSON_WANTED, False))
            context.exit(STATUS_FAILED)


@click.group(cls=ReportingGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--server",
    default=SERVERS,
    envvar="PENSTOCK_SERVER",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Name server; several with commas.",
)
@click.option(
    "--context", "name", default="", envvar=CONTEXT_VARIABLE, show_envvar=True, help="See `penstock context`."
)
@click.option("--user", default="", help="The user to log in, with:")
@click.option("--password-file", default="", help="File whose first line is the password.")
@click.option("--token-file", default="", help="File whose first line is a token.")
@click.option("--tls", default="", help="1, or the path of the authority's certificate.")
@click.version_option(f"{VERSION} ({'compiled' if IS_COMPILED else 'not compiled'})", prog_name="penstock")
@click.pass_context
def root(context: click.Context, /, server: str, name: str, **credentials: str) -> None:
    """One message system for devices (MQTT), services and analysts, on one stored log.

    \b
    Begin with:
      penstock up                          run everything in this terminal
      penstock produce orders "hello"      store a message
      penstock consume orders              read it
    """
    context.obj = server_of(context, server, name, credentials)


_IN_MODULES_OF_THEIR_NAME: Final = (
    *("acl", "audit", "bench", "broker", "client", "config", "consume", "context", "event", "find", "group", "message"),
    *("produce", "replica", "report", "retained", "share", "spark", "sql", "status", "top", "topic", "user"),
)
root.add_places({name: f"penstock.cli.{name}:{name}" for name in _IN_MODULES_OF_THEIR_NAME})
root.add_places({name: f"penstock.cli.sleeping:{name}" for name in ("dlq", "timer", "transaction")})
root.add_places({"tail": "penstock.cli.consume:tail", "login": "penstock.cli.context:login"})
