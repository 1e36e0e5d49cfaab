"""Twin of penstock/service/troubles.py."""

from __future__ import annotations

from penstock.service.troubles import clock_troubles_of, troubles_of


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
        "sessions_max is used to 99 %; when all of it is, further ones are refused",
    ]
    assert troubles_of({"penstock_topics": 10.0}) == []


def test_a_jump_of_the_clock_is_one_sentence_however_many_processes_see_it() -> None:
    figures = {'process_clock_jump_s{service="broker"}': 7200.2, 'process_clock_jump_s{service="gateway"}': 7200.3}
    assert clock_troubles_of(figures) == ["the machine's clock has jumped by +7200 s, which is not believed yet"]
    assert clock_troubles_of({"process_clock_jump_s": -30.0}) == [
        "the machine's clock has jumped by -30 s, which is not believed yet"
    ]
    assert clock_troubles_of({"process_clock_jump_s": 0.0, "process_clock_jumps_total": 3.0}) == []


def test_times_that_are_not_right_yet_are_sentences() -> None:
    told = troubles_of({"penstock_store_time_ahead_s": 7200.0, "penstock_ages_behind_s": 3600.0})
    assert ["store time" in told[0], "retention" in told[1], len(told)] == [True, True, 2]


def test_copies_that_are_missing_or_damaged_are_sentences() -> None:
    silent = {'penstock_replica_heard_s{node="c"}': 40.0}
    assert troubles_of({"penstock_replica_leads": 1.0, "penstock_replica_has_leader": 1.0, **silent}) == [
        "node c, which has a copy of its log, has been silent for 40 s"
    ]
    assert troubles_of({"penstock_replica_leads": 0.0, "penstock_replica_has_leader": 1.0, **silent}) == []
    [no_leader] = troubles_of({"penstock_replica_has_leader": 0.0})
    assert "nothing is stored until one is elected" in no_leader
    told = troubles_of({"penstock_replica_unready": 1.0, "penstock_replica_damaged": 2.0})
    assert ["too few nodes" in told[0], "damaged" in told[1], len(told)] == [True, True, 2]
