from __future__ import annotations

from broker.figures import Figures


def test_counters_add_up_and_gauges_are_what_they_are_now() -> None:
    figures = Figures()
    figures.appended(3, 100, 1)
    figures.appended(2, 50, 0)
    figures.pulled(4, 70)
    figures.synced()
    assert figures.read(penstock_topics=7) == {
        "rocketmq_messages_in_total": 5,
        "rocketmq_throughput_in_total": 150,
        "rocketmq_messages_out_total": 4,
        "rocketmq_throughput_out_total": 70,
        "penstock_messages_refused_total": 1,
        "penstock_syncs_total": 1,
        "penstock_topics": 7,
    }
