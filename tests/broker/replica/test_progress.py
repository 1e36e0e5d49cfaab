"""A leader finds out where a peer's log parts from its own, and sends as much as the window holds."""

from __future__ import annotations

from broker.replica.progress import Progress
from penstock.protocol.requests.replicas import Taken


def streaming(durable: int = 100) -> Progress:
    peer = Progress(durable, 0.0)
    peer.probed()
    peer.taken(Taken(1, durable, 1), 0.0)
    return peer


def test_a_peer_is_probed_before_anything_is_sent() -> None:
    peer = Progress(100, 0.0)
    assert peer.probe_due
    assert not peer.is_due(200, 1000)
    peer.probed()
    assert not peer.probe_due
    peer.taken(Taken(1, 0, 1, conflict=40), 0.1)
    assert peer.probe_due
    assert peer.known == 40
    peer.taken(Taken(1, 30, 1), 0.2)
    assert peer.is_due(200, 1000)
    assert (peer.next, peer.durable) == (40, 30)


def test_a_conflict_that_tells_nothing_new_waits_for_the_next_sign_of_life() -> None:
    peer = Progress(40, 0.0)
    peer.probed()
    peer.taken(Taken(1, 0, 1, conflict=40), 0.1)
    assert not peer.probe_due


def test_no_more_is_on_its_way_than_the_window_holds() -> None:
    peer = streaming()
    peer.sent(150)
    assert peer.is_due(200, 60)
    assert not peer.is_due(200, 50)
    peer.taken(Taken(1, 150, 1), 0.1)
    assert peer.is_due(200, 50)


def test_what_is_not_answered_for_long_is_sent_again_from_what_the_peer_has() -> None:
    peer = streaming()
    peer.look_after(5.0, 1.0)
    peer.sent(150)
    peer.look_after(5.9, 1.0)
    assert not peer.probe_due
    peer.look_after(6.1, 1.0)
    assert peer.probe_due
    assert peer.known == 100


def test_a_peer_whose_disk_has_lost_some_is_believed() -> None:
    peer = streaming()
    peer.taken(Taken(1, 20, 2, conflict=20), 0.1)
    assert peer.durable == peer.known == 20
    assert peer.round == 2
