"""``penstock event`` without an event bridge; with one: tests/events/test_event_command.py."""

from __future__ import annotations

from penstock.cli.event import _told, event
from penstock.errors import InvalidRequest, TopicNotFound, Unavailable


def test_a_problem_document_is_an_error_with_its_place() -> None:
    error = _told(400, b'{"detail": "no url", "pointer": "/url"}')
    assert isinstance(error, InvalidRequest)
    assert (error.message, error.hint) == ("no url", "at /url")
    assert isinstance(_told(404, b'{"detail": "no rule"}'), TopicNotFound)
    assert isinstance(_told(502, b"<html>"), Unavailable)


def test_each_kind_has_the_same_commands() -> None:
    for kind in ("bus", "source", "rule", "target", "schema"):
        assert {"list", "show", "put", "delete"} <= set(event.commands[kind].commands)  # type: ignore[attr-defined]
