"""``penstock spark``: commands for a Spark cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli.display import json_option, print_json
from penstock.version import VERSION


@click.group()
def spark() -> None:
    """Penstock on a Spark cluster."""


@spark.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=f"penstock-{VERSION}.zip")
@json_option
def package(file: Path, as_json: bool) -> None:
    """Write one archive of Penstock for `spark-submit --py-files`.

    It has Penstock's sources. The packages that these build on are named here: the cluster's Python must have them
    (docs/guide/spark-cluster.md).

    \b
    Examples:
      penstock spark package
      spark-submit --master spark://host:7077 --py-files penstock-0.1.0.zip job.py
    """
    from penstock.spark.package import COMPRESSED, DRIVER, EXECUTORS, write_package

    modules = write_package(file)
    told: dict[str, Any] = {
        "file": str(file),
        "modules": modules,
        "bytes": file.stat().st_size,
        "driver": list(DRIVER),
        "executors": list(EXECUTORS),
        "compressed": list(COMPRESSED),
    }
    if as_json:
        print_json(told)
        return
    click.echo(f"{file}: {modules} modules, {told['bytes'] / 1024:,.0f} KiB")
    click.echo(f"executors need {', '.join(EXECUTORS)}; for compressed bodies also {', '.join(COMPRESSED)}")
    click.echo(f"the driver needs {', '.join(DRIVER)}")
