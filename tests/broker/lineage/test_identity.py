from __future__ import annotations

import msgpack
import pytest

from broker.lineage.identity import Identity
from penstock.errors import LogReplaced
from tests.broker.facts import take


def named(*log_ids: str) -> Identity:
    made = Identity()
    for log_id in log_ids:
        take(made, Identity.fact(log_id))
    return made


def test_a_log_keeps_its_first_id() -> None:
    assert named().log_id == ""
    assert named("a", "b").log_id == "a"


def test_a_restored_copy_takes_an_id_in_place_of_the_one_that_it_has() -> None:
    copy = named("a")
    take(copy, Identity.fact("c", replaces="b"))
    assert copy.log_id == "a"
    take(copy, Identity.fact("b", replaces="a"))
    assert copy.log_id == "b"


def test_the_id_is_in_the_snapshot() -> None:
    copy = Identity()
    copy.restore(msgpack.unpackb(b"".join(named("a").freeze())))
    assert copy.log_id == "a"
    copy.restore(None)
    assert copy.log_id == ""


def test_offsets_of_another_log_are_refused_and_those_of_no_known_log_are_not() -> None:
    with pytest.raises(LogReplaced, match="offset 7 is of log b, and this broker has log a now"):
        named("a").check("b", "offset 7")
    named("a").check("a", "offset 7")
    named("a").check("", "offset 7")
    named().check("b", "offset 7")
