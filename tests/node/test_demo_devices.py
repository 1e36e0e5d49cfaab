from __future__ import annotations

from node.demo_devices import DEVICES, KEEP_ALIVE_S, PUBLISH_EVERY_S, reading, rest_s
from penstock.world import seeded_rng


def test_a_reading_stays_near_its_metrics_wave_and_the_same_seed_gives_the_same() -> None:
    temperatures = [reading(1, "temperature", second, seeded_rng(7)) for second in range(300)]
    assert 12 < min(temperatures) < max(temperatures) < 30
    assert temperatures == [reading(1, "temperature", second, seeded_rng(7)) for second in range(300)]


def test_two_devices_do_not_show_the_same() -> None:
    assert reading(1, "humidity", 100.0, seeded_rng(7)) != reading(2, "humidity", 100.0, seeded_rng(7))


def test_devices_leave_a_busy_machine_half_of_its_time_and_stay_connected() -> None:
    assert rest_s(0.001) == PUBLISH_EVERY_S
    assert rest_s(10.0) * 1.2 < KEEP_ALIVE_S
    for took_s in (0.1, 0.5):
        assert DEVICES * took_s / (took_s + rest_s(took_s)) < 0.5
