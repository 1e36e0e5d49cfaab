from __future__ import annotations

from broker.figures import Figures


def test_counters_add_up_and_gauges_are_what_they_are_now() -> None:
    figures = Figures(lambda: 5_000)
    figures.appended(3, 100, 1)
    figures.appended(2, 50, 0)
    figures.pulled(4, 70)
    figures.synced(0.002)
    figures.answered(0.2)
    figures.delivered(4_000, 6_000)
    read = figures.read(penstock_topics=7)
    latencies = {name: read[name] for name in read if name.endswith(("_sum", "_count"))}
    assert latencies == {
        "penstock_sync_seconds_sum": 0.002,
        "penstock_stored_seconds_sum": 0.2,
        "penstock_delivery_seconds_sum": 1.0,
        "penstock_end_to_end_seconds_sum": 0.0,  # by its sender's clock it comes from the future
    } | {name.replace("_sum", "_count"): 1 for name in latencies if name.endswith("_sum")}
    assert {name: read[name] for name in read if "_seconds_" not in name} == {
        "rocketmq_messages_in_total": 5,
        "rocketmq_throughput_in_total": 150,
        "rocketmq_messages_out_total": 4,
        "rocketmq_throughput_out_total": 70,
        "penstock_messages_refused_total": 1,
        "penstock_syncs_total": 1,
        "penstock_topics": 7,
    }
