"""Figures and health of services that are processes of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
import trio

from node.child_status import READ_S, fetch, labelled, read_figures, read_page, read_reasons
from penstock.service.histogram import Histogram
from penstock.service.metrics import expose
from penstock.service.status import ANSWER_S, serve_status

FIGURES = {"a_total": 3.0, 'b{listener="tcp"}': 1.5}


async def figures() -> Mapping[str, float]:
    return FIGURES


async def reasons(said: Sequence[str]) -> Sequence[str]:
    return said


def test_a_page_of_metrics_is_read_back_as_it_was_written() -> None:
    assert read_page(expose(FIGURES)) == FIGURES


def test_exemplars_go_from_the_page_of_a_child_to_that_of_all() -> None:
    histogram = Histogram()
    histogram.observe(0.0007, "ab" * 16)
    histogram.observe(0.3)
    figures = histogram.figures("d_seconds")
    page = expose(figures, openmetrics=True)
    assert read_page(page) == figures
    assert expose(read_page(page), openmetrics=True) == page
    labels = labelled(read_page(page), "gateway 2")
    both = f'd_seconds_bucket{{gateway="2",le="0.001"}} 1 # {{trace_id="{"ab" * 16}"}} 0.0007'
    assert both in expose(labels, openmetrics=True)


def test_a_label_says_which_gateway_it_is() -> None:
    assert labelled(FIGURES, "gateway 2") == {'a_total{gateway="2"}': 3.0, 'b{gateway="2",listener="tcp"}': 1.5}
    assert labelled(FIGURES, "broker") == FIGURES


def test_what_a_process_takes_has_the_service_as_a_label() -> None:
    taken = {"process_open_fds": 7.0}
    assert labelled(taken, "broker") == {'process_open_fds{service="broker"}': 7.0}
    assert labelled(taken, "gateway 1") == {'process_open_fds{gateway="1",service="gateway"}': 7.0}


@contextmanager
def socket_that_is_not_served() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


async def test_gateways_that_do_not_answer_cost_the_time_of_one() -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        addresses = {f"gateway {n}": f"127.0.0.1:{one.getsockname()[1]}" for n, one in enumerate(silent)}
        began = trio.current_time()
        assert await read_figures(addresses) == {}
        assert trio.current_time() - began == READ_S
        assert [one.partition(":")[0] for one in await read_reasons(addresses)] == [f"gateway {n}" for n in range(4)]
        assert trio.current_time() - began == 2 * READ_S < ANSWER_S, "what the page of all of them has"


@pytest.mark.endtoend
async def test_figures_and_reasons_of_several_gateways_come_together() -> None:
    async with trio.open_nursery() as nursery:
        well = await nursery.start(partial(serve_status, "127.0.0.1", 0, figures, partial(reasons, ())))
        ill = await nursery.start(
            partial(serve_status, "127.0.0.1", 0, figures, partial(reasons, ("no broker", "slow")))
        )
        with socket_that_is_not_served() as gone:
            assert await read_figures({"gateway": well}) == FIGURES
            several = {"gateway 0": well, "gateway 1": gone, "gateway 2": ill}
            assert await read_figures(several) == labelled(FIGURES, "gateway 0") | labelled(FIGURES, "gateway 2")
            assert await read_reasons({"gateway": well}) == []
            assert await read_reasons({"gateway": ill}) == ["gateway: no broker", "gateway: slow"]
            [first, *rest] = await read_reasons({"gateway 0": gone, "gateway 1": ill})
            assert first.startswith("gateway 0: does not answer")
            assert rest == ["gateway 1: no broker", "gateway 1: slow"]
            assert await read_reasons({"broker": "", "gateway": well}) == ["broker: starting"]
            assert await read_figures({"broker": "", "gateway": well}) == FIGURES
            assert (await fetch(well, "/nothing"))[0] == 404
        nursery.cancel_scope.cancel()
