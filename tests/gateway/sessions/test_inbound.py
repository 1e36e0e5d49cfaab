"""QoS 2 messages on their way in."""

from __future__ import annotations

import pytest

from gateway.sessions.inbound import STORED, STORING
from gateway.sessions.session import Session


def test_an_inbound_qos_2_id_goes_from_storing_to_stored_to_free() -> None:
    session = Session("c", window=10)
    assert session.begin_incoming(9) is None
    assert session.begin_incoming(9) == STORING
    session.stored_incoming(9)
    assert session.begin_incoming(9) == STORED
    assert session.forget_incoming(9)
    assert not session.forget_incoming(9)
    assert session.begin_incoming(9) is None


@pytest.mark.mqtt("4.3.3-10", "4.3.3-12", old=("4.3.3-2",))
def test_an_inbound_id_of_an_earlier_connection_is_inherited_until_it_is_sent_again_or_released() -> None:
    session = Session("c", window=10)
    session.inherit_incoming([7, 8, 8, 9])
    assert session.inherited == 3
    assert session.begin_incoming(8) == session.begin_incoming(8) == STORED
    assert session.inherited == 2
    assert session.forget_incoming(7)
    assert session.forget_incoming(8)
    assert (session.inherited, len(session.incoming)) == (1, 1)
