from __future__ import annotations

import pytest

from loadtest.spark.job import COUNT, WINDOWS, Job, Order, Run, expect

ORDER = Order("127.0.0.1:1", "t", 10, "/nowhere")


def test_what_was_not_stored_so_is_an_error_of_its_run() -> None:
    expect((1, 2), (1, 2))
    run = Job(ORDER, None).timed(Run(COUNT, "penstock", rows=10), lambda: expect((1, 2), (1, 3)))
    assert run.error == "found (1, 2), stored (1, 3)"
    assert run.seconds > 0


@pytest.mark.parametrize("scenario", [COUNT, WINDOWS])
def test_kafka_takes_part_where_it_is(scenario: str) -> None:
    assert "kafka" not in Job(ORDER, None).sources(scenario)
    assert "kafka" in Job(Order("127.0.0.1:1", "t", 10, "/nowhere", kafka="127.0.0.1:2"), None).sources(scenario)
