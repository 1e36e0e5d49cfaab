"""``penstock doctor`` and ``penstock config check``: is this machine fit, is this configuration sound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from gateway.transports.listening import parse_listeners
from node import settings
from node.doctor import BAD, examine
from node.doctor_copies import copies
from penstock.cli.config import config
from penstock.cli.display import json_option, print_json, print_rows
from penstock.clock import RealClock
from penstock.errors import InvalidConfig
from penstock.service.config import Faults
from penstock.service.setting import settable

_FILES: Final = ("password_file", "acl_file", "key_file", "secret_file", "certificate", "tls_key", "_ca", "_crl")
"""How settings end that name a file which is read. The name server writes its ``config_file``."""
_FILE = click.Path(path_type=Path, dir_okay=False)
file_option = click.option("--config", "file", type=_FILE, help="Settings as TOML, as `penstock up` takes them.")


@click.command("doctor")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder of all durable state.")
@file_option
@json_option
@click.pass_context
def doctor(context: click.Context, file: Path | None, data: Path | None, as_json: bool) -> None:
    """Look at this machine as a node: versions, limits, disk, clock, ports, Java. Changes nothing.

    Where the broker's log has copies: also the key, the connections to other nodes, their states and clocks.

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
    """Check a file of settings and the environment without starting anything. Names all that is wrong, with its line,
    and the files of users, rules, keys and certificates that cannot be read.

    \b
    Examples:
      penstock config check --config penstock.toml
      penstock config check --config penstock.toml --show
    """
    configuration = settings.load(file, os.environ, {})
    rows = list(_rows(configuration))
    _open_files(rows)
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


def _open_files(rows: list[dict[str, Any]]) -> None:
    """Raises ``InvalidConfig`` for files that settings name and that cannot be opened."""
    named = {(row["setting"], row["value"]) for row in rows if row["value"] and row["setting"].endswith(_FILES)}
    for listener in parse_listeners([line for row in rows if row["setting"] == "listeners" for line in row["value"]]):
        files = listener.files
        if files is not None:
            paths = (files.certificate, files.key, files.client_ca, files.client_crl)
            named |= {(f"listener {listener.name}", path) for path in paths if path}
    faults = Faults()
    for setting, path in sorted(named):
        try:
            open(path, "rb").close()
        except OSError as error:
            faults.add(InvalidConfig(f"{setting}: cannot read {path}: {error.strerror}"))
    faults.raise_all()


def _values(made: Any) -> list[tuple[str, Any]]:
    return [(name, _plain(getattr(made, name))) for name in settable(type(made))]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
