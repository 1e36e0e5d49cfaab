from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.service.histogram import BOUNDS_S, Histogram
from penstock.service.metrics import expose


def test_each_bucket_has_all_that_took_at_most_so_long() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.0005, 0.0006, 3.0, 10_000.0):
        histogram.observe(seconds)
    figures = histogram.figures("x_seconds")
    assert figures['x_seconds_bucket{le="0.0005"}'] == 2, "a bound belongs to its bucket"
    assert figures['x_seconds_bucket{le="0.001"}'] == 3
    assert figures['x_seconds_bucket{le="600.0"}'] == 4
    assert figures['x_seconds_bucket{le="+Inf"}'] == figures["x_seconds_count"] == 5
    assert figures["x_seconds_sum"] == 10_003.0011
    assert list(BOUNDS_S) == sorted(BOUNDS_S)


def test_it_is_a_histogram_in_both_formats() -> None:
    histogram = Histogram()
    histogram.observe(0.2)
    for openmetrics in (False, True):
        lines = expose(histogram.figures("x_seconds"), openmetrics=openmetrics).splitlines()
        assert lines[0] == "# TYPE x_seconds histogram"
        assert [line for line in lines if line.startswith("# TYPE")] == lines[:1]
        assert lines[1] == 'x_seconds_bucket{le="0.0005"} 0'


def test_a_bucket_tells_the_last_trace_that_it_has_counted_in_openmetrics_alone() -> None:
    histogram, trace = Histogram(), "4bf92f3577b34da6a3ce929d0e0e4736"
    histogram.observe(0.02, "0" * 32)
    histogram.observe(0.021, trace)
    histogram.observe(0.022)
    page = expose(histogram.figures("took_seconds"), openmetrics=True)
    [family] = text_string_to_metric_families(page)
    found = {one.labels.get("le"): one.exemplar for one in family.samples if one.exemplar is not None}
    assert [(le, one.labels, one.value) for le, one in found.items()] == [("0.025", {"trace_id": trace}, 0.021)]
    assert trace not in expose(histogram.figures("took_seconds"))
