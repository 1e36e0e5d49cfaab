"""The table of jobs: names, options that a run checks before Spark starts, and what a mistake is answered with."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry import catalog
from penstock.telemetry.catalog import JOBS, WINDOWS, job_of


def test_each_job_is_a_fold_or_not_has_keys_among_its_columns_and_a_name_of_its_own() -> None:
    assert len({job.name for job in JOBS} | {WINDOWS}) == len(JOBS) + 1
    for job in JOBS:
        assert (job.make is None) == (job.fold is not None) == bool(job.state)
        assert job.name == "devices" or set(job.keys) <= set(job.columns)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"percentiles": "50,x"}, "no list of percentiles"),
        ({"percentiles": "101"}, "no list of percentiles"),
        ({"rule": ()}, "no rule is given"),
        ({"rule": ("temp ~ 3",)}, "is no rule"),
        ({"registry": ""}, "no registry"),
    ],
)
def test_values_that_no_job_takes_are_told_in_a_sentence(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        catalog.check(given)


def test_an_unknown_job_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match=r"there is no job 'gasp' \(did you mean gaps\?\)"):
        job_of("gasp")
    with pytest.raises(InvalidConfig, match="telemetry list"):
        job_of("xyz")
