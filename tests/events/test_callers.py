from __future__ import annotations

from typing import Any

import pytest

from events.callers import Callers
from events.problems import Problem


def request(at: str, **headers: str) -> dict[str, Any]:
    return {"headers": [(name.encode(), value.encode()) for name, value in headers.items()], "server": (at, 8095)}


@pytest.mark.parametrize("host", ["localhost:8095", "127.0.0.1:1", "[::1]:80", "10.0.0.5:8095", ""])
def test_this_machines_own_names_are_served(host: str) -> None:
    Callers().check(request("10.0.0.5", host=host))


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"host": "localhost", "origin": "http://evil.example"}, 403)],
)
def test_a_web_page_reaches_nothing_through_a_name_or_another_origin(headers: dict[str, str], status: int) -> None:
    with pytest.raises(Problem) as caught:
        Callers().check(request("127.0.0.1", **headers))
    assert caught.value.status == status


def test_what_the_operator_lists_and_a_page_of_the_same_origin_are_served() -> None:
    Callers(["events.example"]).check(request("10.0.0.5", host="events.example"))
    Callers(["*"]).check(request("10.0.0.5", host="any.example", origin="http://any.example"))
