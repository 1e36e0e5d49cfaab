"""The `penstock` command: the client's commands, and those that need the services' code."""

from __future__ import annotations

from penstock.cli.root import root

root.add_places(
    {
        "backup": "broker.backup_command:backup_command",
        "config": "node.doctor_command:config",
        "console": "node.console_command:console",
        "doctor": "node.doctor_command:doctor",
        "mqtt": "node.mqtt_command:mqtt",
        "restore": "broker.backup_command:restore_command",
        "session": "node.session_command:session",
        "store": "broker.store_command:store_group",
        "telemetry": "penstock.telemetry.command:telemetry",
        "up": "node.up:up",
    }
)


def main() -> None:
    """Entry point of the console script."""
    root(prog_name="penstock")
