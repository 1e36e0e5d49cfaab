from __future__ import annotations

import pytest

from events.fact_tasks import standing, store
from events.facts import TOPIC, name_of, record_of
from penstock.client.administration import Ask, Steps, Task
from penstock.errors import RetainedChanged
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import CreateTopic
from tests.broker.broker_rig import Rig

ROUTE = BrokerRoute("b", "here:1", 1, True)


def done(rig: Rig, task: Task[object]) -> object:
    """A task carried out at one broker."""
    steps = Steps(task)
    while steps.wanted is not None:
        steps.answer(rig.ask(steps.wanted.request) if isinstance(steps.wanted, Ask) else [ROUTE])
    return steps.result


def test_a_fact_is_stored_where_the_one_that_it_replaces_stands_and_what_stands_is_found_page_by_page() -> None:
    rig = Rig()
    rig.ask(CreateTopic(TOPIC, 1, "disk"))
    names = [name_of("rule", "b", f"r{number:03}") for number in range(300)]
    places = [done(rig, store("b", record_of(name, 1, 0, 0, "w", 5))) for name in names]
    with pytest.raises(RetainedChanged):
        done(rig, store("b", record_of(names[0], 2, 0, 0, "w", 5)))
    assert isinstance(places[0], int)
    changed = done(rig, store("b", record_of(names[0], 2, places[0], 0, "w", 5)))
    done(rig, store("b", record_of(names[1], None, int(str(places[1])), 0, "w", 5)))
    offset, found = done(rig, standing("b"))  # type: ignore[misc]
    assert offset == 302
    assert [(one.name, one.position) for one in found] == list(
        zip([names[0], *names[2:]], [changed, *places[2:]], strict=True)
    )
