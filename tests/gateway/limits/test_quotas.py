"""Limits and their reason codes."""

from __future__ import annotations

from gateway.limits.quotas import REASONS, Quotas
from gateway.settings import GatewaySettings


def test_every_limit_is_a_setting_and_has_a_reason_code_of_a_refusal() -> None:
    settings = GatewaySettings()
    assert all(hasattr(settings, limit) and reason >= 0x80 for limit, reason in REASONS.items())


def test_a_refusal_is_counted_and_gives_the_reason() -> None:
    quotas = Quotas()
    assert quotas.refuse("receive_max") == (0x93, "the limit receive_max is reached")
    assert quotas.refused["receive_max"] == 1
    assert sum(quotas.refused.values()) == 1
