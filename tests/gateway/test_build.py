"""The composition of a gateway: whole, and the same for the same choices."""

from __future__ import annotations

import random
from inspect import getmembers

from rig import Gateway, HandClock

from gateway.build import build
from gateway.connections.journal import Journal
from gateway.limits.quotas import Quotas
from gateway.login.auth import Anonymous
from gateway.net.rounds import Stage
from gateway.settings import GatewaySettings
from penstock.service.audit import Audit


def test_a_gateway_without_a_name_has_one_by_chance_and_each_has_an_epoch_of_its_own() -> None:
    broker, clock = Gateway().broker, HandClock()
    made = [
        build(
            GatewaySettings(),
            clock,
            broker,
            random.Random(seed),
            Anonymous("everyone"),
            lambda: None,
            (),
            Quotas(),
            Journal("off", Audit(int, float)),
        )
        for seed in (1, 1, 2)
    ]
    assert made[0].name == made[1].name != made[2].name
    assert made[0].lease.epoch == made[0].upstream.epoch != made[2].lease.epoch


def test_every_stage_that_is_made_has_its_turn_in_a_round() -> None:
    parts = Gateway().parts
    made = [one for holder in (parts, parts.services) for _, one in getmembers(holder)]
    stages = {id(one) for one in made if isinstance(one, Stage)}
    assert len(stages) > 5
    assert stages <= {id(one) for one in parts.rounds._stages}
