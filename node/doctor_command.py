"""``penstock doctor`` and ``penstock config check``: is this machine fit, is this configuration sound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from node import settings
from node.doctor import BAD, examine
from node.doctor_copies import copies
from penstock.cli.config import config
from penstock.cli.display import json_option, print_json, print_rows
from penstock.clock import RealClock

_FILE = click.Path(path_type=Path, dir_okay=False)
file_option = click.option("--config", "file", type=_FILE, help="Settings as TOML, as `penstock up` takes them.")


@click.command("doctor")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder of all durable state.")
@file_option
@json_option
@click.pass_context
def doctor(context: click.Context, file: Path | None, data: Path | None, as_json: bool) -> None:
    """Look at this machine as a node: versions, limits, disk, clock, ports, Java. Changes nothing.

    Where the broker's log has copies: also the key, the ways to other nodes, their states and clocks.

    The exit status is 1 if something is bad. A running node is left alone: its own ports and folder are good.

    \b
    Examples:
      penstock doctor
      penstock doctor --data /var/lib/penstock --config penstock.toml --json
    """
    configuration = settings.load(file, os.environ, {} if data is None else {"data": data})
    clock = RealClock()
    findings = [*examine(configuration, os.environ, clock), *copies(configuration, os.environ, clock)]
    print_rows([one._asdict() for one in findings], ("verdict", "check", "found", "remedy"), as_json=as_json)
    if any(one.verdict == BAD for one in findings):
        context.exit(1)


@config.command("check")
@file_option
@click.option("--show", is_flag=True, help="Print every setting as it counts.")
@json_option
def check(file: Path | None, show: bool, as_json: bool) -> None:
    """Check a file of settings and the environment without starting anything. Names all that is wrong, with its line.

    \b
    Examples:
      penstock config check --config penstock.toml
      penstock config check --config penstock.toml --show
    """
    configuration = settings.load(file, os.environ, {})
    rows = list(_rows(configuration))
    if show:
        print_rows(rows, ("service", "setting", "value"), as_json=as_json)
    elif as_json:
        print_json({"sound": True, "settings": len(rows)})
    else:
        click.echo(f"sound: {file or 'the environment'} and defaults, {len(rows)} settings")


def _rows(configuration: settings.Configuration) -> list[dict[str, Any]]:
    rows = [{"service": "node", "setting": name, "value": value} for name, value in _values(configuration.node)]
    for service in settings.SERVICES:
        made = settings.service_settings(configuration, service, os.environ)
        decided = settings.DECIDED[service]
        rows += [
            {"service": service, "setting": name, "value": value}
            for name, value in _values(made)
            if name not in decided
        ]
    return rows


def _values(made: Any) -> list[tuple[str, Any]]:
    return [(name, _plain(getattr(made, name))) for name in type(made).__dataclass_fields__]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
