"""The consumers beside the ordinary one, as the benchmark runs them, here with little."""

from __future__ import annotations

import pytest

from loadtest.native.bench import create_topic
from loadtest.native.scenarios import POP, RETRY
from loadtest.native.worker import perform
from loadtest.servers import Penstock
from tests.loadtest.native.test_worker import to

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


@pytest.mark.parametrize("kind", [POP, RETRY])
def test_every_message_comes_once_and_the_rate_is_compared_with_the_ordinary_way(server: Penstock, kind: str) -> None:
    create_topic(server, kind, 2)
    outcome = perform(to(server, kind, kind=kind, messages=1200))
    assert (outcome.error, outcome.messages, outcome.checked) == ("", 1200, 1200)
    assert outcome.figures["share"] > 0
