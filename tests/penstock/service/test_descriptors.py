from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from penstock.service.descriptors import SPARE, count_open, limit, raise_limit, room_for_clients


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The limit of this process is as before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def lower(soft: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_the_limit_is_raised_as_far_as_it_may_be() -> None:
    lower(500)
    assert limit() == 500
    raise_limit()
    assert limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 500


def test_what_is_open_is_counted() -> None:
    before = count_open()
    opened = os.open(os.devnull, os.O_RDONLY)
    assert count_open() == before + 1
    os.close(opened)
    assert count_open() == before


def test_clients_are_left_what_is_neither_open_nor_in_reserve() -> None:
    lower(800)
    assert room_for_clients() == 800 - count_open() - SPARE
    lower(4000)
    assert room_for_clients() == 4000 - count_open() - 250


def test_where_there_is_no_room_one_client_may_come_all_the_same() -> None:
    lower(count_open() + 10)
    assert room_for_clients() == 1
