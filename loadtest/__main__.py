"""``python -m loadtest COMMAND``: ``bench`` (side by side with mosquitto and amqtt), ``native`` (the native path,
beside RocketMQ), ``spark`` (the Spark source, beside Kafka's), ``store`` (the store by itself), ``filters`` (the filter
index, selectors), ``soak`` (the long proofs), ``timers`` (many delayed messages),
``events`` (the event bridge), ``scrape`` (a page of many metrics),
``replica`` (what copies of a log cost), ``modules`` (the gain of each compiled module)."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from hatch_build import hot_modules
from loadtest import (
    bench,
    events,
    filter_bench,
    modules,
    replica,
    report,
    scrape,
    selector_bench,
    soak,
    store_bench,
    store_scale,
    timer_scale,
)
from loadtest.native import bench as native
from loadtest.native import report as native_report
from loadtest.native.scenarios import SCENARIOS as NATIVE_SCENARIOS
from loadtest.scenarios import SCENARIOS
from loadtest.servers import SERVERS
from loadtest.spark import bench as spark
from loadtest.spark import report as spark_report
from loadtest.spark.job import SOAK


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; the status is 1 where a run of the benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m loadtest", description="Load and benchmarks for Penstock.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("bench", help="side by side with mosquitto and amqtt, interleaved (about 12 minutes)")
    one.add_argument("--quick", action="store_true", help="one short round, large runs at 2 %% (about 2 minutes)")
    one.add_argument("--full", action="store_true", help="also large runs in full: 1,000,000 waiting messages")
    one.add_argument("--starts", type=int, default=1, help="how often every server is started, for so many rounds each")
    one.add_argument("--rounds", type=int, help="how often every server is run")
    one.add_argument("--seconds", type=float, help="how long one run measures, but for paced ones and filters")
    one.add_argument("--servers", nargs="+", default=[], choices=[kind.name for kind in SERVERS], metavar="NAME")
    one.add_argument("--scenarios", nargs="+", default=[], choices=[s.name for s in SCENARIOS], metavar="NAME")
    one.add_argument("--json", type=Path, metavar="FILE", help="also write every single run there")
    _add_native(commands.add_parser("native", help="the native path, beside RocketMQ, interleaved (about 5 minutes)"))
    _add_spark(commands.add_parser("spark", help="the Spark source and sink, beside Kafka's source (15 minutes)"))
    commands.add_parser("filters", help="what the filter index costs with 100,000 filters, and a selector")
    three = commands.add_parser("store", help="what the store costs by itself, beside plain calls (about a minute)")
    three.add_argument(
        "--long", action="store_true", help="also 100,000 queues and recoveries (3 minutes, 14 GB of disk)"
    )
    two = commands.add_parser("soak", help="kill -9, power loss and a full disk, again and again (about 10 minutes)")
    two.add_argument("--kills", type=int, default=500, help="cycles of kill -9")
    two.add_argument("--power", type=int, default=300, help="cycles of power loss")
    five = commands.add_parser("timers", help="1,000,000 delayed messages: memory, a start, none early (5 minutes)")
    five.add_argument("--count", type=int, default=timer_scale.COUNT)
    commands.add_parser("events", help="the event bridge: patterns, events in by HTTP, out to a local API (a minute)")
    commands.add_parser("scrape", help="a page of 100,000 metrics: how long it takes, and holds the loop (seconds)")
    seven = commands.add_parser("replica", help="a group of three nodes beside one node, and failover (2 minutes)")
    seven.add_argument("--rounds", type=int, default=replica.ROUNDS, help="how often the two are measured")
    seven.add_argument("--seconds", type=float, default=replica.SECONDS, help="how long one run measures")
    eight = commands.add_parser("modules", help="the gain of each compiled module: a tree without it (an hour or more)")
    eight.add_argument("paths", nargs="*", metavar="PATH", help="only these modules, or folders of them as a whole")
    eight.add_argument("--together", action="store_true", help="one tree without all of these")
    eight.add_argument("--rounds", type=int, default=3, help="how often every tree is measured")
    eight.add_argument("--seconds", type=float, default=1.0, help="how long one run measures")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 132)
    if options.command == "filters":
        filter_bench.run(console)
        selector_bench.run(console)
        return 0
    if options.command == "store":
        made = store_bench.run()
        if options.long:
            with Console(stderr=True).status("starting") as status:
                made += store_scale.run(status.update)
        store_bench.show(console, made)
        return 0
    if options.command == "native":
        return _native(options, console)
    if options.command == "spark":
        return _spark(options, console)
    if options.command == "soak":
        return soak.run(console, options.kills, options.power)
    if options.command == "events":
        return events.run(console)
    if options.command == "scrape":
        return scrape.run(console)
    if options.command == "replica":
        return replica.run(console, options.rounds, options.seconds)
    if options.command == "modules":
        chosen = modules.variants(options.paths, hot_modules(), together=options.together)
        with Console(stderr=True).status("starting") as status:
            return modules.run(console, chosen, options.rounds, options.seconds, status.update)
    if options.command == "timers":
        return timer_scale.run(console, options.count)
    return _bench(options, console)


def _bench(options: argparse.Namespace, console: Console) -> int:
    plan = bench.QUICK if options.quick else bench.Plan()
    plan = replace(
        plan,
        starts=options.starts,
        rounds=options.rounds or plan.rounds,
        measure_s=options.seconds or plan.measure_s,
        is_full=options.full,
        servers=tuple(options.servers),
        scenarios=tuple(options.scenarios),
    )
    with Console(stderr=True).status("starting") as status:
        measured = bench.measure(plan, status.update)
    report.show(measured, console)
    return _status(report.failures(measured), measured.as_json(), options.json)


def _status(failures: int, runs: dict[str, Any], file: Path | None) -> int:
    """The status of a benchmark, 1 where a run failed; its runs are written to the file that ``--json`` names."""
    if file:
        file.write_text(json.dumps(runs, indent=1) + "\n")
    return 1 if failures else 0


def _add_native(four: argparse.ArgumentParser) -> None:
    plan = native.Plan()
    names = [scenario.name for scenario in NATIVE_SCENARIOS]
    four.add_argument("--rounds", type=int, default=plan.rounds, help="how often every server is run")
    four.add_argument("--seconds", type=float, default=plan.measure_s, help="how long one run measures")
    four.add_argument("--share", type=float, default=plan.share, help="the part of the backlogs that is stored")
    four.add_argument("--servers", nargs="+", default=[], choices=[kind.name for kind in native.SERVERS])
    four.add_argument("--scenarios", nargs="+", default=[], choices=names)
    four.add_argument("--loop", choices=native.LOOPS, default=plan.loop, help="the event loop of our clients")
    four.add_argument("--json", type=Path, metavar="FILE", help="also write every single run there")


def _native(options: argparse.Namespace, console: Console) -> int:
    plan = native.Plan(
        rounds=options.rounds,
        measure_s=options.seconds,
        share=options.share,
        servers=tuple(options.servers),
        scenarios=tuple(options.scenarios),
        loop=options.loop,
    )
    with Console(stderr=True).status("starting") as status:
        measured = native.measure(plan, status.update)
    native_report.show(measured, console)
    return _status(native_report.failures(measured), measured.as_json(), options.json)


def _add_spark(six: argparse.ArgumentParser) -> None:
    plan = spark.Plan()
    names = [*spark.SCENARIOS, SOAK]
    six.add_argument("--rounds", type=int, default=plan.rounds, help="how often every source is read")
    six.add_argument("--count", type=int, default=plan.count, help="number of messages to store")
    six.add_argument("--scenarios", nargs="+", default=list(plan.scenarios), choices=names)
    six.add_argument("--batches", type=int, default=plan.soak_batches, help="of the soak")
    six.add_argument("--json", type=Path, metavar="FILE", help="also write every single run there")


def _spark(options: argparse.Namespace, console: Console) -> int:
    plan = spark.Plan(options.count, options.rounds, tuple(options.scenarios), soak_batches=options.batches)
    with Console(stderr=True).status("starting") as status:
        measured = spark.measure(plan, status.update)
    spark_report.show(measured, console)
    return _status(spark_report.failures(measured), measured.as_json(), options.json)


if __name__ == "__main__":
    sys.exit(main())
