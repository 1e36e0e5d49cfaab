"""``penstock backup`` and ``penstock restore``: a broker's log in another folder, and back.

The broker may run while its log is backed up.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from broker.lineage.naming import rename_log
from broker.state import BrokerState
from broker.store.backup import BackupReport, Manifest, back_up, restore
from broker.store.disk import RealDisk
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from broker.store_command import data_option, finish, progress
from penstock.cli.display import json_option, print_json
from penstock.world import RealClock, Rng

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("backup")
@data_option
@click.argument("folder", type=_FOLDER)
@json_option
@click.pass_context
def backup_command(context: click.Context, data: Path, folder: Path, as_json: bool) -> None:
    """Copy a broker's log into FOLDER, or update the backup there. The broker may run. Only new bytes are copied. Each
    copied segment is read again and checked. The exit status is 1 if the log itself is damaged; the damage is reported
    and copied as it is.

    \b
    Examples:
      penstock backup -d penstock-data/broker /backups/broker
      penstock store verify -d /backups/broker
    """
    with progress("copying", quiet=as_json) as show:
        steps = back_up(RealDisk(data, is_read_only=True), RealDisk(folder), RealClock().wall_ms())
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        report: BackupReport = finish(steps, show)
    if as_json:
        print_json(
            _row(report.manifest)
            | {
                "copied_bytes": report.copied_bytes,
                "removed": report.removed,
                "damage": [list(stretch) for stretch in report.damage],
            }
        )
    else:
        click.echo(f"{_said(report.manifest)}; {report.copied_bytes:,} bytes copied, {report.removed} segments removed")
        for first, last in report.damage:
            click.echo(f"damage   positions {first:,} to {last:,} fail their checksum in the log itself")
    if report.damage:
        context.exit(1)


@click.command("restore")
@click.argument("folder", type=_FOLDER)
@click.option("-d", "--data", required=True, type=_FOLDER, help="The new data folder of the broker, without a log.")
@click.option(
    "--same-log",
    is_flag=True,
    help="Keep the log's identity: for a move, where the backup was made after the broker had ended.",
)
@json_option
def restore_command(folder: Path, data: Path, same_log: bool, as_json: bool) -> None:
    """Make a broker's data folder from the backup in FOLDER.

    The restored log gets an identity of its own, because messages after the backup are missing: Spark checkpoints and
    readers that kept offsets of the old log are refused (`LogReplaced`) in place of reading other messages. Offsets
    that the broker keeps, those of groups and devices, are in the backup and continue.

    \b
    Example:
      penstock restore /backups/broker -d penstock-data/broker
    """
    with progress("restoring", quiet=as_json) as show:
        disk = RealDisk(data)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        manifest: Manifest = finish(restore(RealDisk(folder, is_read_only=True), disk), show)
        state = BrokerState()
        store = open_store(disk, StoreSettings(), state, RealClock().wall_ms(), show)
        try:
            if not same_log:
                rename_log(state.identity, store, Rng(), store.last_ms)
        finally:
            store.close(store.last_ms)
    if as_json:
        print_json(_row(manifest) | {"log_id": state.identity.log_id})
    else:
        click.echo(f"{_said(manifest)}; log {state.identity.log_id}")


def _row(manifest: Manifest) -> dict[str, Any]:
    return {
        "made_ms": manifest.made_ms,
        "start": manifest.start,
        "end": manifest.end,
        "segments": len(manifest.files),
    }


def _said(manifest: Manifest) -> str:
    made = datetime.fromtimestamp(manifest.made_ms / 1000, UTC)
    return (
        f"backup of {made:%Y-%m-%d %H:%M:%S} UTC: positions {manifest.start:,} to {manifest.end:,} "
        f"in {len(manifest.files)} segments"
    )
