"""What went through each listener."""

from __future__ import annotations

from inspect import isdatadescriptor

from rig import Gateway

from gateway.limits.counters import METRICS, Counters, ListenerCounters
from penstock.service.metrics import expose


def test_a_tally_is_kept_per_listener_and_summed_up() -> None:
    tallies = Counters()
    tallies.of("tcp").bytes_in += 3
    tallies.of("ws").bytes_in += 4
    assert tallies.of("tcp").bytes_in == 3
    assert tallies.sums()["gateway_bytes_in_total"] == 7
    assert tallies.by_listener()['gateway_bytes_in_total{listener="ws"}'] == 4


def test_every_counter_has_a_metric() -> None:
    assert set(METRICS) == {name for name, one in vars(ListenerCounters).items() if isdatadescriptor(one)} - {
        "is_lenient",
        "mount",
    }
    assert all(metric.endswith("_total") == (field != "connected") for field, metric in METRICS.items())


def test_only_a_lenient_listener_has_room_beyond_the_receive_maximum_and_counts_it() -> None:
    tally = ListenerCounters()
    assert tally.room_beyond() == 0
    assert tally.over_receive_max == 0
    tally.is_lenient = True
    assert tally.room_beyond() > 0
    assert tally.over_receive_max == 1


def test_an_odd_name_of_a_listener_spoils_no_page() -> None:
    tallies = Counters()
    tallies.of('a"b\\c\nd')
    page = expose(tallies.by_listener())
    assert page.count("\n") == 3 * len(METRICS)  # what it means, what it is, and the figure
    assert 'listener="a\\"b\\\\c d"' in page


def test_connections_are_counted_as_they_come_and_go() -> None:
    gateway = Gateway()
    clients = [gateway.connect(f"c{one}") for one in range(3)]
    clients[0].cut()
    clients[1].cut()
    gateway.connect("d")
    tallies = gateway.connections.counters
    assert tallies.of("tcp").connects == 4
    assert tallies.of("tcp").connected == 2
    assert tallies.most_connected == 3


def test_packets_and_publications_count_the_same_by_either_way() -> None:
    straight, other = Gateway(), Gateway()
    for gateway, pieces in ((straight, 1), (other, 3)):
        client = gateway.connect("c")
        client.publish("a/b")
        data = b"\x32\x07\x00\x03a/b\x00\x01" * 5 + b"\x30\x05\x00\x03a/b" * 5
        for at in range(pieces):
            client.send_bytes(data[at * len(data) // pieces : (at + 1) * len(data) // pieces])
    tallies = [gateway.connections.counters.of("tcp") for gateway in (straight, other)]
    assert [one.publications_in for one in tallies] == [11, 11]
    assert [one.packets_in for one in tallies] == [12, 12]
    assert tallies[0].bytes_in == tallies[1].bytes_in
