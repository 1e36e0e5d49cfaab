"""Requests left open at several servers at once, without threads: ``wait`` dispatches the replies.

It keeps what to call for each open request. Every one ends in exactly one call: with its result, or with
``Unavailable`` when the connection that it left on was lost. A request that a node refuses because it does not lead
goes on to the leader, once. Callbacks run inside ``wait`` and ``submit``.
"""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.blocking.link import BlockingLink
from penstock.errors import PenstockError
from penstock.protocol.addresses import lost
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request, Result
from penstock.world import pause


@dataclass(frozen=True, slots=True)
class _Open:
    on_result: OnResult
    losses: int  # of the link when the request left
    request: Request | None  # the request, while it may still go on to the leader; else None


class Exchange:
    """The open requests of one program."""

    def __init__(self) -> None:
        self._open: dict[BlockingLink, dict[int, _Open]] = {}

    def submit(self, link: BlockingLink, requests: Sequence[tuple[Request, OnResult]], *, follows: bool = True) -> None:
        """Sends requests with one write; each ends in one call of its ``on_result``."""
        try:
            ids = link.submit([request for request, _on_result in requests])
        except PenstockError as error:
            for _request, on_result in requests:
                on_result(error)
            return
        opened = self._open.setdefault(link, {})
        for request_id, (request, on_result) in zip(ids, requests, strict=True):
            opened[request_id] = _Open(on_result, link.losses, request if follows else None)

    def wait(self, wait_s: float) -> None:
        """Dispatches the replies that have come; if there are none, the first within ``wait_s`` seconds."""
        if self._dispatch_lost() + self._dispatch_arrived(list(self._open)):
            return
        with selectors.DefaultSelector() as selector:
            for link, opened in self._open.items():
                if opened:
                    selector.register(link, selectors.EVENT_READ, link)
            if not selector.get_map():
                pause(wait_s)
                return
            ready = [key.data for key, _events in selector.select(wait_s)]
        self._dispatch_arrived(ready, read=True)
        self._dispatch_lost()

    def _dispatch_arrived(self, links: list[BlockingLink], *, read: bool = False) -> int:
        count = 0
        for link in links:
            try:
                results = link.receive(0.0) if read else link.take_arrived()
            except PenstockError:
                continue  # the link is closed now: ``_dispatch_lost`` answers all
            for request_id, result in results.items():
                opened = self._open[link].pop(request_id, None)
                if opened is not None:
                    self._dispatch(link, opened, result)
                    count += 1
        return count

    def _dispatch(self, link: BlockingLink, opened: _Open, result: Result) -> None:
        leader = None if opened.request is None else link.leader_of(result)
        if leader is None or opened.request is None:
            opened.on_result(result)
        else:
            self.submit(leader, [(opened.request, opened.on_result)], follows=False)

    def _dispatch_lost(self) -> int:
        gone: list[tuple[BlockingLink, OnResult]] = []
        for link, opened in self._open.items():
            for request_id in [at for at, one in opened.items() if one.losses != link.losses]:
                gone.append((link, opened.pop(request_id).on_result))
        for link, on_result in gone:
            on_result(lost(link.address, "it ended"))
        return len(gone)
