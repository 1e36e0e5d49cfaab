from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.briefly import HIDE, briefly, hide_traceback

WORKER = {"SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"}


def test_only_a_worker_of_spark_is_made_to_leave_its_traceback_out() -> None:
    worker, program = dict(WORKER), dict[str, str]()
    hide_traceback(worker)
    hide_traceback(program)
    assert (HIDE in worker, HIDE in program) == (True, False)


@pytest.mark.parametrize(("error", "is_brief"), [(InvalidConfig("no"), True), (KeyError("a bug of ours"), False)])
def test_a_bug_keeps_its_traceback_and_a_mistake_of_users_has_none(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_brief: bool
) -> None:
    import os

    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.delenv(HIDE, raising=False)

    @briefly
    def fail(said: str) -> None:
        raise error

    with pytest.raises(type(error)):
        fail("x")
    assert (HIDE in os.environ) == is_brief
    monkeypatch.delenv(HIDE, raising=False)


def test_what_works_is_passed_on() -> None:
    assert briefly(lambda one, *, other: one + other)(1, other=2) == 3
