"""``penstock console``: the web console alone, for a cluster that runs elsewhere."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from console.settings import ConsoleSettings
from penstock.errors import PenstockError
from penstock.service import config, process_log
from penstock.service.service_main import STATUS_EXPECTED_ERROR, run_until_signal, say
from penstock.world import real_world


@click.command()
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="Settings as TOML.")
@click.option("--host", help="Where it listens (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free one (8090).")
@click.pass_obj
def console(server: str, /, file: Path | None, **flags: Any) -> None:
    """Run the web console alone, in this terminal, for the cluster of the name servers that --server names.

    `penstock up` serves one of its own. The file has the settings of a console at its top.

    \b
    Examples:
      penstock console
      penstock --server names-1:9876,names-2:9876 console --port 8091
    """
    given = {name: value for name, value in flags.items() if value is not None}
    given["namesrv"] = tuple(one.strip() for one in server.split(",") if one.strip())
    try:
        table, source = config.read_file(file)
        log = process_log.take_settings(table, os.environ, source)
        settings = config.load_table(ConsoleSettings, table, os.environ, "PENSTOCK_CONSOLE", given, source=source)
    except PenstockError as error:
        print(f"error: {error.told}", file=sys.stderr)
        sys.exit(STATUS_EXPECTED_ERROR)
    sys.exit(run_until_signal(partial(serve, settings), log))


async def serve(settings: ConsoleSettings, stop: trio.Event) -> None:
    """Runs a console until ``stop``, and says where it is."""
    from console.server import RunningConsole, run  # the web server loads only when it runs: other commands start fast

    async with trio.open_nursery() as nursery:
        running: RunningConsole = await nursery.start(partial(run, settings, real_world()))
        say(f"ready console={running.url}")
        await stop.wait()
        nursery.cancel_scope.cancel()
