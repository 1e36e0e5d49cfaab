"""The `penstock` command: the client's commands, and those that need the services' code."""

from __future__ import annotations

from broker.backup_command import backup_command, restore_command
from broker.store_command import store_group
from node.console_command import console
from node.doctor_command import check, doctor
from node.mqtt_command import mqtt
from node.session_command import session
from node.up import up
from penstock.cli.config import config
from penstock.cli.root import root
from penstock.telemetry.command import telemetry

root.add_command(up)
root.add_command(mqtt)
root.add_command(session)
root.add_command(store_group)
root.add_command(backup_command)
root.add_command(console)
root.add_command(doctor)
config.add_command(check)
root.add_command(restore_command)
root.add_command(telemetry)


def main() -> None:
    """Entry point of the console script."""
    root(prog_name="penstock")
