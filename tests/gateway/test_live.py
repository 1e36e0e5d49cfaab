from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from gateway.connections.journal import Journal
from gateway.live import LiveGatewaySettings
from gateway.settings import GatewaySettings
from penstock.errors import Unavailable
from penstock.protocol.requests.routes import GATEWAY_SETTINGS, ConfigEntries, ConfigEntry
from penstock.service.audit import Audit

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.service.otel_spans import OtelSpans


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """The log has its level again afterwards."""
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.WARNING)
    yield
    logging.getLogger().setLevel(before)


def entries(**values: str) -> ConfigEntries:
    return ConfigEntries(tuple([ConfigEntry(GATEWAY_SETTINGS, *one) for one in values.items()]))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the gateway has logged, without the lines of systems that other tests have in this process."""
    return [one.getMessage() for one in caplog.records if one.name == "gateway.live"]


def test_entries_count_until_they_are_gone_and_bad_ones_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    spans = OtelSpans(InMemorySpanExporter(), "g", 0.0)
    live = LiveGatewaySettings(GatewaySettings(), Journal("off", Audit(lambda: 0, lambda: 0.0)), spans)
    live.take(entries())
    live.take(Unavailable("no name server"))
    assert told(caplog) == []
    live.take(entries(trace_sample="1", log_level="info", connection_log="on", status_host="0.0.0.0"))
    assert (spans.draw(), logging.getLogger().level) == (True, logging.INFO)
    for _ in range(2):  # it is told once
        live.take(entries(trace_sample="much", log_level="loud"))
    assert logging.getLogger().level == logging.INFO
    live.take(entries())
    assert logging.getLogger().level == logging.WARNING
    assert told(caplog) == [
        *["connection_log is on now", "log_level is info now", "trace_sample is 1 now"],
        "connection_log is sampled now",
        f"the name server's entry {GATEWAY_SETTINGS} log_level: level is 'loud'",
        f"the name server's entry {GATEWAY_SETTINGS} trace_sample: 'much' is no part",
        *["log_level is warning now", "trace_sample is 0.0 now"],
    ]
    spans.close()
