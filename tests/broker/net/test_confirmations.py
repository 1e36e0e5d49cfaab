from __future__ import annotations

from functools import partial

from broker.net.confirmations import Confirmations


def test_those_who_come_during_a_round_wait_for_the_next_one_and_share_it() -> None:
    confirmations, told = Confirmations(), list[str]()
    confirmations.wait(partial(told.append, "first"))
    assert confirmations.is_due()
    confirmations.begun(3, 1)
    for name in ("second", "third"):
        confirmations.wait(partial(told.append, name))
    assert not confirmations.is_due()
    confirmations.answer(3, 0)
    assert told == []
    confirmations.answer(3, 1)
    assert told == ["first"]
    assert confirmations.is_due()
    confirmations.begun(3, 2)
    confirmations.answer(3, 2)
    assert told == ["first", "second", "third"]


def test_a_node_that_has_ceased_to_lead_confirms_nothing_even_if_it_leads_again() -> None:
    confirmations, told = Confirmations(), list[str]()
    confirmations.wait(partial(told.append, "before"))
    confirmations.begun(3, 1)
    confirmations.wait(partial(told.append, "before"))
    confirmations.answer(0, 0)
    assert not confirmations.is_due()
    confirmations.wait(partial(told.append, "between"))
    confirmations.begun(5, 1)
    confirmations.answer(7, 9)
    confirmations.wait(partial(told.append, "after"))
    confirmations.begun(7, 1)
    confirmations.answer(7, 1)
    assert told == ["after"]
