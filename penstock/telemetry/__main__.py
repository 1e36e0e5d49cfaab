"""The telemetry job as a program: ``python -m penstock.telemetry``, or this file given to ``spark-submit``."""

from __future__ import annotations

import sys

from penstock.telemetry.command import program

if __name__ == "__main__":
    program(["run", *sys.argv[1:]], prog_name="penstock.telemetry")
