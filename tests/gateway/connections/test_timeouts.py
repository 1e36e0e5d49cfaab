"""What a connection must do in time, and what it is closed for if it does not."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import Disconnect, Pingreq, Puback, Publish, Will

WILL = Will("will/topic", b"gone", 1)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.mqtt("3.1.2-22", old=("3.1.2-24",))
def test_a_silent_client_is_closed_after_one_and_a_half_times_its_keep_alive(level: int) -> None:
    gateway = Gateway()
    client = gateway.connect(level=level, keep_alive_s=10)
    gateway.pass_time(14)
    assert not client.is_closed
    gateway.pass_time(3)
    assert client.is_closed
    assert client.got() == ([Disconnect(0x8D)] if level == 5 else [])


@pytest.mark.parametrize("begin", [b"\x30\xe8\x07\x00\x01a", b"\x32\xe8\x07\x00\x01a", b"\x82\xe8\x07\x00\x01"])
@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.mqtt("3.1.2-22", old=("3.1.2-24",))
def test_bytes_of_a_packet_that_does_not_end_keep_no_client_alive(level: int, begin: bytes) -> None:
    gateway = Gateway()
    client = gateway.connect(level=level, keep_alive_s=10)
    client.publish("a", b"warm", 1, packet_id=1)
    client.send_bytes(begin)
    for _ in range(14):
        gateway.pass_time(1)
        client.send_bytes(b"\0")
    assert not client.is_closed
    gateway.pass_time(2)
    assert client.is_closed


def test_a_client_that_sends_a_long_packet_over_a_slow_line_is_kept() -> None:
    gateway = Gateway()
    client = gateway.connect(keep_alive_s=10)
    packet = encode(Publish("a", bytes(20_000), 1, packet_id=1), 4)
    for at in range(0, len(packet), 500):
        gateway.pass_time(4)
        client.send_bytes(packet[at : at + 500])
    assert client.got() == [Puback(1)]
    gateway.pass_time(14)
    assert not client.is_closed


def test_a_client_that_speaks_is_kept() -> None:
    gateway = Gateway()
    client = gateway.connect(keep_alive_s=10)
    for _ in range(10):
        gateway.pass_time(14)
        client.send(Pingreq())
    assert not client.is_closed


@pytest.mark.mqtt("3.1.2.10")
def test_keep_alive_0_switches_the_check_off() -> None:
    gateway = Gateway()
    client = gateway.connect(keep_alive_s=0)
    gateway.pass_time(1000)
    assert not client.is_closed


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.mqtt("3.1.2-22", old=("3.1.2-24",))
def test_a_client_that_we_do_not_read_is_called_silent_only_where_it_has_sent_nothing(
    level: int, is_full: bool
) -> None:
    gateway = Gateway()
    watcher = gateway.connect("w")
    watcher.subscribe("will/#")
    client = gateway.connect(level=level, keep_alive_s=10, will=WILL)
    if is_full:  # it does not read what it is sent
        client.is_full = True
    else:
        client.device.hold_reading()
    client.unread = True
    gateway.pass_time(100)
    assert not client.is_closed
    client.unread = False
    gateway.pass_time(2)
    assert client.is_closed
    assert watcher.payloads() == [WILL.payload]


@pytest.mark.parametrize("level", [4, 5])
def test_a_connection_that_does_not_say_who_it_is_is_closed_without_a_word(level: int) -> None:
    gateway = Gateway(connect_wait_s=5)
    silent, spoke = gateway.open(level), gateway.connect("c", level=level)
    gateway.pass_time(4)
    assert not silent.is_closed
    gateway.pass_time(3)
    assert (silent.is_closed, silent.got(), spoke.is_closed) == (True, [], False)
    assert gateway.quotas.refused["connect_wait_s"] == 1
