from __future__ import annotations

from rich.console import Console

from node.demo_view import Aggregate, DemoFigures, Stage, line, screen, sparkline


def figures() -> DemoFigures:
    return DemoFigures("127.0.0.1:1883", "127.0.0.1:10911", "127.0.0.1:9876", "127.0.0.1:8080", "/tmp/data")


def drawn(shown: DemoFigures, width: int = 110, height: int = 24) -> str:
    console = Console(width=width, height=height, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(screen(shown, height))
    return capture.get()


def test_a_stage_takes_its_rate_from_the_time_that_passed() -> None:
    stage = Stage("x", "y")
    stage.total = 50
    stage.tick(0.5)
    stage.total = 60
    stage.tick(2.0)
    assert list(stage.rates) == [100.0, 5.0]
    assert stage.rate == 5.0


def test_a_sparkline_is_scaled_to_its_highest_rate() -> None:
    assert sparkline([0, 50, 100]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"


def test_the_screen_shows_addresses_and_a_line_to_try() -> None:
    text = drawn(figures())
    assert "http://127.0.0.1:8080" in text
    assert "penstock mqtt sub -v 'telemetry/#'" in text


def test_the_hints_use_the_command_as_it_is_called_here_and_name_unusual_addresses() -> None:
    shown = DemoFigures("127.0.0.1:7", "b:1", "127.0.0.1:8", "h:1", "d", command=".venv/bin/penstock")
    text = drawn(shown)
    assert ".venv/bin/penstock mqtt sub --gateway 127.0.0.1:7 -v 'telemetry/#'" in text
    assert ".venv/bin/penstock --server 127.0.0.1:8 group show demo-service" in text


def test_a_second_start_shows_what_it_found() -> None:
    shown = figures()
    assert "a new folder" not in drawn(shown), "nothing is known yet"
    shown.found = 0
    assert "a new folder, in /tmp/data" in drawn(shown)
    shown.found = 12_345
    assert "12,345 messages of earlier starts found in /tmp/data" in drawn(shown)


def test_a_terminal_of_80_columns_and_24_lines_shows_all_stages_and_hints() -> None:
    shown = DemoFigures(
        "127.0.0.1:18831", "127.0.0.1:10911", "127.0.0.1:19876", "127.0.0.1:18080", "/var/lib/penstock/" + "x" * 80
    )
    shown.aggregates = [
        Aggregate("2026-11-28 12:00:10", f"dev-{number:02}", "temperature", 1234, 21.5, -20.0, 123.25)
        for number in range(20)
    ]
    shown.spark, shown.found = "10 seconds windows, 20 rows in batch 1234", 123_456_789
    for stage in shown.stages:
        stage.total = 123_456_789
        stage.rates.extend([1000.0] * 30)
    for height in (24, 40):
        lines = drawn(shown, 80, height).rstrip("\n").splitlines()
        assert len(lines) < height
        assert max(map(len, lines)) <= 80
        assert sum("dev-" in one for one in lines) == (4 if height == 24 else 12)
        assert "group show demo-service" in lines[-1]
        assert any("lag of demo-service" in one for one in lines)


def test_the_screen_shows_the_aggregates_once_spark_has_some() -> None:
    shown = figures()
    assert "Spark starts behind this view" in drawn(shown)
    shown.aggregates = [Aggregate("12:00:10", "dev-03", "temperature", 42, 21.5, 20.0, 23.25)]
    shown.aggregates.append(Aggregate("12:00:10", "[/a]", "x\x1b[2J", 1, 1.0, 1.0, 1.0))
    text = drawn(shown)
    assert "[/a]" in text
    assert "x\\x1b[2J" in text
    assert "dev-03" in text
    assert "23.25" in text


def test_the_line_for_pipes_names_every_stage_with_its_rate_since_the_last_line_and_the_lag() -> None:
    shown = figures()
    shown.lag = 7
    shown.stored.rates.extend([100.0, 0.0, 10.0, 0.0, 0.0, 0.0])
    assert "lag 7" in line(shown)
    assert line(shown).startswith("published 0/s  stored 2.0/s  received 0/s  consumed 0/s  ")
