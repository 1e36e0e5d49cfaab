"""``penstock event`` without an event bridge; with one: tests/events/test_event_command.py."""

from __future__ import annotations

import pytest

from penstock.cli.event import Face, _told, event
from penstock.client.credentials import Credentials
from penstock.errors import InvalidRequest, NotAuthorized, TopicNotFound, Unavailable


def test_a_problem_document_is_an_error_with_its_place() -> None:
    error = _told(400, b'{"detail": "no url", "pointer": "/url"}')
    assert isinstance(error, InvalidRequest)
    assert (error.message, error.hint) == ("no url", "at /url")
    assert isinstance(_told(404, b'{"detail": "no rule"}'), TopicNotFound)
    assert isinstance(_told(502, b"<html>"), Unavailable)


@pytest.mark.parametrize("address", ["bridge:8095", "http://bridge:8095", "HTTP://bridge:8095"])
def test_no_password_goes_to_another_machine_in_clear(address: str) -> None:
    with pytest.raises(NotAuthorized):
        Face(address, Credentials(user="ada", password="pencil"))
    Face("HTTP://127.0.0.1:8095", Credentials(user="ada", password="pencil"))
    Face("HTTPS://bridge:8095", Credentials(user="ada", password="pencil"))


def test_each_kind_has_the_same_commands() -> None:
    for kind in ("bus", "source", "rule", "target", "schema"):
        assert {"list", "show", "put", "delete"} <= set(event.commands[kind].commands)  # type: ignore[attr-defined]
