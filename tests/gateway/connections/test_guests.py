"""What a CONNECT asks for, as a value."""

from __future__ import annotations

from gateway.connections.connect_mapping import arriving
from gateway.mqtt.packets import Connect
from gateway.mqtt.properties import Properties


def test_what_a_connect_asks_for_is_shown_without_what_is_secret() -> None:
    proof = Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"hidden")
    asked = arriving(Connect("d1", user_name="alice", password=b"secret", properties=proof, level=5))
    assert repr(asked) == "Arriving(client_id='d1', user_name='alice', level=5)"
    assert (asked.password, asked.authentication_data) == (b"secret", b"hidden")
