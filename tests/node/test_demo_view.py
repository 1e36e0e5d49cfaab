from __future__ import annotations

from rich.console import Console

from node.demo_view import Aggregate, DemoFigures, Stage, line, screen, sparkline


def figures() -> DemoFigures:
    return DemoFigures("127.0.0.1:1883", "127.0.0.1:10911", "127.0.0.1:9876", "127.0.0.1:8080", "/tmp/data")


def drawn(shown: DemoFigures) -> str:
    console = Console(width=110, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(screen(shown))
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
    assert "http://127.0.0.1:8080/metrics" in text
    assert "mosquitto_sub -h 127.0.0.1 -p 1883 -t 'telemetry/#' -v" in text


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


def test_the_line_for_pipes_names_every_stage_and_the_lag() -> None:
    shown = figures()
    shown.lag = 7
    assert "lag 7" in line(shown)
    assert line(shown).startswith("published 0/s  stored 0/s  received 0/s  consumed 0/s  ")
