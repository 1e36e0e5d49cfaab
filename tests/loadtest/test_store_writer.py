from __future__ import annotations

from loadtest.store_writer import body, record
from penstock.protocol.message import check_record, record_body
from tests.broker.store.store_rig import record_of


def test_every_record_has_a_body_of_its_own_that_begins_with_its_number() -> None:
    bodies = [body(number) for number in range(500)]
    assert len(set(bodies)) == 500
    assert [int.from_bytes(one[:8], "big") for one in bodies] == list(range(500))
    assert len({len(one) for one in bodies}) > 50


def test_a_record_is_well_formed() -> None:
    made = record_of(record(3))
    check_record(made)
    assert record_body(made) == body(3)
