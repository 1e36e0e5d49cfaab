from __future__ import annotations

from node.local_link import LocalLinks
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.request import Request


class Silent:
    """A session that says nothing."""

    def submit(self, request: Request, on_result: OnResult) -> None: ...

    def flush(self) -> None: ...


class Elsewhere:
    """Links that remember what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.given_up: list[str] = []

    def link(self, address: str) -> Link:
        self.asked.append(address)
        return Silent()

    def give_up(self, address: str) -> None:
        self.given_up.append(address)


def test_embedded_addresses_are_answered_here_and_others_on_the_wire() -> None:
    here, elsewhere = Silent(), Elsewhere()
    links = LocalLinks({"127.0.0.1:1": here}, elsewhere)
    assert links.link("127.0.0.1:1") is here
    assert links.link("127.0.0.1:2") is not here
    assert elsewhere.asked == ["127.0.0.1:2"]


def test_only_addresses_on_the_wire_are_given_up() -> None:
    elsewhere = Elsewhere()
    links = LocalLinks({"127.0.0.1:1": Silent()}, elsewhere)
    links.give_up("127.0.0.1:1")
    links.give_up("127.0.0.1:2")
    assert elsewhere.given_up == ["127.0.0.1:2"]
