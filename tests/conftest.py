"""Async tests run under trio with an auto-jumping clock: a wait takes no real time, and no test sleeps.

Hypothesis tries the same examples in every run, so that a change fails for what it did and nothing else. With
``PENSTOCK_SEARCH=1`` it looks for new ones.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
from pathlib import Path

import pytest
import trio
from hypothesis import settings
from trio.testing import MockClock

if os.environ.get("PENSTOCK_SEARCH"):
    settings.register_profile("penstock", deadline=None)
else:
    settings.register_profile("penstock", deadline=None, derandomize=True, database=None, max_examples=20)
settings.load_profile("penstock")


PLAIN = ("tests/house/", "tests/planted/", "tests/simulation/")
"""They read the tree, or plant bugs in it."""


SAID = ("endtoend", "interpreted", "long", "replicas")
"""Markers that stand in the file of each test that has them, but for those of ``PLAIN``."""


@functools.cache
def said(file: Path, place: str) -> tuple[str, ...]:
    """The markers that a file's tests may have."""
    text = file.read_text()
    return tuple([one for one in SAID if one in text or (one == "interpreted" and place.startswith(PLAIN))])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the tests with a marker does not load the files that never say it."""
    asked = config.option.markexpr
    if collection_path.suffix != ".py" or " or " in asked or "(" in asked:
        return None
    may = said(collection_path, collection_path.relative_to(config.rootpath).as_posix())
    return any(one in SAID and one not in may for one in asked.split(" and ")) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(PLAIN):
        item.add_marker("interpreted")
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")
    may = said(item.path, item.nodeid)
    hidden = [one.name for one in item.iter_markers() if one.name in SAID and one.name not in may]
    assert not hidden, f"{item.nodeid} has {hidden}, but its file does not say so"


LONGEST = ("tests/endtoend/test_rocketmq_clients.py", "tests/endtoend/test_two_brokers.py")
"""Files that take one worker minutes: the others must not wait for them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """What stands for thousands of tests stays until the end: the collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs ``async def`` tests; those marked ``endtoend`` in real time, all others in virtual time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = functools.partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
    real_time = pyfuncitem.get_closest_marker("endtoend") is not None
    trio.run(test, clock=None if real_time else MockClock(autojump_threshold=0))
    return True
