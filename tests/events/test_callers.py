from __future__ import annotations

import pytest

from events.callers import Callers
from events.problems import Problem


@pytest.mark.parametrize("host", ["localhost:8095", "127.0.0.1:1", "[::1]:80", "10.0.0.5:8095", ""])
def test_this_machines_own_names_are_served(host: str) -> None:
    Callers().check({"host": host}, "10.0.0.5")


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"host": "localhost", "origin": "http://evil.example"}, 403)],
)
def test_a_web_page_reaches_nothing_through_a_name_or_another_origin(headers: dict[str, str], status: int) -> None:
    with pytest.raises(Problem) as caught:
        Callers().check(headers, "127.0.0.1")
    assert caught.value.status == status


def test_what_the_operator_lists_and_a_page_of_the_same_origin_are_served() -> None:
    Callers(["events.example"]).check({"host": "events.example"}, "10.0.0.5")
    Callers(["*"]).check({"host": "any.example", "origin": "http://any.example"}, "10.0.0.5")
