from __future__ import annotations

import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from events.openapi import document
from tests.events.bridge import Bridge


def test_every_parameter_of_a_path_is_described() -> None:
    for path, item in document()["paths"].items():
        described = {one["name"] for one in item.get("parameters", ()) if one["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path)), path


CHECKS = (
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
)


@pytest.mark.endtoend
@pytest.mark.parametrize("name", ["events", "configuration"])
def test_no_request_that_the_document_allows_breaks_the_face(bridge: Bridge, name: str) -> None:
    schema: Any = schemathesis.openapi.from_dict(document())
    operations = [one.ok() for one in schema.get_all_operations()]
    chosen = [one for one in operations if ("vents" in one.path) == (name == "events")]
    assert chosen
    for operation in chosen:
        _fuzz(operation, bridge)


def _fuzz(operation: Any, bridge: Bridge) -> None:
    from hypothesis import given

    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

    @settings(max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=quiet)
    @given(case=operation.as_strategy())
    def fuzz(case: Any) -> None:
        response = case.call(base_url=f"http://{bridge.address}")
        if response.status_code != 503:  # what the cluster refuses is told so
            case.validate_response(response, checks=CHECKS)

    fuzz()
