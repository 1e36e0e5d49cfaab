from __future__ import annotations

from node.local_link import LocalLink, LocalLinks
from penstock.link import Link, OnResult
from penstock.requests.request import Request, Result
from penstock.requests.servers import Ping, ServerInfo


class Recorder:
    """A session that answers at once and notes what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.told.append(type(request).__name__)
        on_result(ServerInfo("broker", "here", "1"))

    def end_batch(self) -> None:
        self.told.append("end of batch")

    def close(self) -> None:
        self.told.append("closed")


class Elsewhere:
    """Links that remember what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def link(self, address: str) -> Link:
        self.asked.append(address)
        return LocalLink(Recorder())


def test_a_local_link_hands_requests_over_and_a_flush_ends_the_batch() -> None:
    session, results = Recorder(), list[Result]()
    link = LocalLink(session)
    link.submit(Ping(), results.append)
    link.flush()
    assert session.told == ["Ping", "end of batch"]
    assert results == [ServerInfo("broker", "here", "1")]


def test_embedded_addresses_are_answered_here_and_others_on_the_wire() -> None:
    here, elsewhere = LocalLink(Recorder()), Elsewhere()
    links = LocalLinks({"127.0.0.1:1": here}, elsewhere)
    assert links.link("127.0.0.1:1") is here
    assert links.link("127.0.0.1:2") is not here
    assert elsewhere.asked == ["127.0.0.1:2"]
