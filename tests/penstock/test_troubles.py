"""Twin of penstock/troubles.py."""

from __future__ import annotations

from penstock.troubles import troubles_of


def test_each_figure_that_is_wrong_is_a_sentence() -> None:
    figures = {
        "penstock_disk_full": 1.0,
        "penstock_namesrv_away": 0.0,
        'penstock_limit_used{limit="sessions_max"}': 0.999,
        'penstock_limit_used{limit="topics_max"}': 0.94,
        "penstock_sessions_unreadable": 2.0,
        "penstock_topics": 10.0,
    }
    assert troubles_of(figures) == [
        "the disk is full; messages are refused until there is room",
        "what was saved of some MQTT sessions cannot be read; the broker's log names one",
        "sessions_max is used to 99 %; when all of it is, whoever needs more is refused",
    ]
    assert troubles_of({"penstock_topics": 10.0}) == []
