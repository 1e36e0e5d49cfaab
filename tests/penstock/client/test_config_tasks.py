"""What administrators ask of several name servers, with the answers by hand."""

from __future__ import annotations

import pytest

from penstock.client.administration import ALL_NAME_SERVERS, Ask
from penstock.client.config_tasks import config, set_config
from penstock.errors import Unavailable
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import ConfigEntries, ConfigEntry, PutConfig, QueryConfig


def test_an_entry_is_set_at_all_name_servers_and_one_that_is_away_is_an_error_behind_the_others() -> None:
    task = set_config("n", "k", "v")
    assert next(task) is ALL_NAME_SERVERS
    assert task.send(("a:1", "b:2")) == Ask("a:1", PutConfig("n", "k", "v"), Done)
    assert task.throw(Unavailable("a:1 is away")) == Ask("b:2", PutConfig("n", "k", "v"), Done)
    with pytest.raises(Unavailable, match="a:1 is away"):
        task.send(Done())


def test_the_first_name_server_that_answers_is_believed() -> None:
    task = config("n")
    next(task)
    task.send(("a:1", "b:2"))
    assert task.throw(Unavailable("a:1 is away")) == Ask("b:2", QueryConfig("n"), ConfigEntries)
    with pytest.raises(StopIteration) as ended:
        task.send(ConfigEntries((ConfigEntry("n", "k", "v"),)))
    assert ended.value.value == [ConfigEntry("n", "k", "v")]
    task = config("n")
    next(task)
    task.send(("a:1",))
    with pytest.raises(Unavailable):
        task.throw(Unavailable("a:1 is away"))
