from __future__ import annotations

from console.alerts import ERROR, LAG_MAX, LAGGING_SHOWN, WARNING, alerts_of
from penstock.client.group_tasks import GroupState
from penstock.service.metrics import with_label


def test_nothing_wrong_is_no_alert() -> None:
    figures = {"broker-a": {"penstock_disk_full": 0.0, "rocketmq_messages_in_total": 5.0}}
    assert alerts_of(figures, (), [GroupState("g", 1, 4, LAG_MAX)], "") == []


def test_everything_that_is_wrong_is_told_the_errors_first() -> None:
    silent = with_label("penstock_gateway_silent_s", "gateway", "gw-1")
    figures = {"broker-a": {"penstock_disk_full": 1.0, "penstock_damaged_frames_total": 2.0, silent: 20.0}}
    found = alerts_of(figures, ("broker-b",), [GroupState("g", 0, 4, LAG_MAX + 1)], "no name server answers")
    assert [one.level for one in found] == [ERROR] * 4 + [WARNING] * 2
    told = " | ".join([one.text for one in found])
    for part in ("no name server answers", "broker-b is away", "disk is full", "passed over: 2", "gw-1", "no members"):
        assert part in told


def test_of_many_groups_the_furthest_behind_are_named() -> None:
    found = alerts_of({}, (), [GroupState(f"g{at}", 1, 1, LAG_MAX + at) for at in range(1, 9)], "")
    assert len(found) == LAGGING_SHOWN + 1
    assert "group g8 is 10,008 messages behind" in found[0].text
    assert found[-1].text == "3 further groups are far behind"
