from __future__ import annotations

from events.problems import Problem, invalid_config


def test_a_problem_is_a_document_of_rfc_9457() -> None:
    document = Problem(409, "in-use", "the bus has rules", rules=["a"]).document()
    wanted = {"type": "urn:penstock:in-use", "title": "Conflict", "status": 409, "detail": "the bus has rules"}
    assert document == wanted | {"rules": ["a"]}


def test_a_fault_of_a_configuration_has_its_place() -> None:
    assert invalid_config("no", "/a").document()["pointer"] == "/a"
    assert "pointer" not in invalid_config("no").document()
