"""Unmodified MQTT clients against the real system: every publisher with every subscriber at every QoS, over TCP, TLS,
WebSocket and WebSocket over TLS as far as the client has them, and what each client must find of wildcards, retained
messages, wills and sessions.

Set PENSTOCK_MQTT_ADDRESS=HOST:PORT to run the same against another server, over TCP.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
import trustme

from tests.endtoend.conftest import System
from tests.endtoend.mqtt_clients import LABELS, Library, Places, Received, Will, labels

pytestmark = pytest.mark.endtoend

_numbers = itertools.count()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    given = os.environ.get("PENSTOCK_MQTT_ADDRESS")
    if given:
        host, _, port = given.rpartition(":")
        yield Places({"tcp": (host, int(port))})
        return
    folder = tmp_path_factory.mktemp("clients")
    authority, ca, server = trustme.CA(), folder / "ca.pem", folder / "server.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(str(server))
    kinds = {"tls": f" certificate={server}", "ws": "", "wss": f" certificate={server}"}
    listening = [f"--listen={kind} 127.0.0.1:0{options}" for kind, options in kinds.items()]
    system = System(folder / "data", *listening)
    try:
        system.start()
        addresses = {"tcp": (system.mqtt_host, system.mqtt_port)}
        for kind, address in system.listeners.items():
            host, _, port = address.rpartition(":")
            addresses[kind] = host, int(port)
        yield Places(addresses, str(ca))
    finally:
        system.end()


def fresh(what: str) -> str:
    """A name that no other test uses."""
    return f"{what}{next(_numbers)}"


SCHEMES = ("tcp", "tls", "ws", "wss")
CELLS = [
    (scheme, publisher, subscriber)
    for scheme in SCHEMES
    for publisher in labels(scheme)
    for subscriber in labels(scheme)
]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("scheme", "publisher", "subscriber"), CELLS)
def test_every_client_receives_what_every_client_publishes(
    library: Callable[[str], Library], places: Places, scheme: str, publisher: str, subscriber: str, qos: int
) -> None:
    if scheme not in places.addresses:
        pytest.skip(f"the server has no {scheme}")
    sender, receiver = library(publisher), library(subscriber)
    source, target, root = fresh("source"), fresh("target"), fresh("cell")
    receiver.connect(target, target, scheme=scheme)
    assert receiver.subscribe(target, f"{root}/+/value", qos) == qos
    sender.connect(source, source, scheme=scheme)
    for number in range(3):
        sender.publish(source, f"{root}/é/value", f"{number} on {root}", qos)
    assert receiver.received(target, 3) == [Received(f"{root}/é/value", f"{n} on {root}", qos, False) for n in range(3)]
    sender.disconnect(source)
    receiver.disconnect(target)


@pytest.mark.parametrize("label", LABELS)
def test_a_wildcard_filter_gets_what_it_matches_and_nothing_else(library: Callable[[str], Library], label: str) -> None:
    client, root = library(label), fresh("plant")
    source, target = fresh("source"), fresh("target")
    client.connect(target, target)
    client.subscribe(target, f"{root}/+/temperature/#", 1)
    client.connect(source, source)
    names = ["a/temperature", "a/humidity", "b/temperature/raw/1", "a/b/temperature", "/temperature", "z/temperature"]
    for name in names:
        client.publish(source, f"{root}/{name}", "x", 1)
    matching = [f"{root}/{name}" for name in names if name not in ("a/humidity", "a/b/temperature")]
    assert sorted(message.topic for message in client.received(target, 4)) == sorted(matching)
    client.disconnect(source)
    client.disconnect(target)


@pytest.mark.parametrize("label", LABELS)
def test_the_delivered_qos_is_the_lower_of_published_and_granted(library: Callable[[str], Library], label: str) -> None:
    client, root = library(label), fresh("lower")
    source, target = fresh("source"), fresh("target")
    client.connect(target, target)
    assert client.subscribe(target, f"{root}/#", 1) == 1
    client.connect(source, source)
    for qos in (0, 1, 2):
        client.publish(source, f"{root}/{qos}", "x", qos)
    assert sorted((message.topic[-1], message.qos) for message in client.received(target, 3)) == [
        ("0", 0),
        ("1", 1),
        ("2", 1),
    ]
    client.disconnect(source)
    client.disconnect(target)


@pytest.mark.parametrize("label", LABELS)
def test_a_retained_message_is_there_for_later_subscribers_until_it_is_cleared(
    library: Callable[[str], Library], label: str
) -> None:
    client, root = library(label), fresh("state")
    source, first, second = fresh("source"), fresh("first"), fresh("second")
    client.connect(source, source)
    client.publish(source, f"{root}/old", "before", 1, retain=True)
    client.publish(source, f"{root}/kept", "old", 1, retain=True)
    client.publish(source, f"{root}/kept", "new", 1, retain=True)
    client.connect(first, first)
    client.subscribe(first, f"{root}/#", 1)
    assert sorted(client.received(first, 2)) == [
        Received(f"{root}/kept", "new", 1, True),
        Received(f"{root}/old", "before", 1, True),
    ]
    client.publish(source, f"{root}/old", "", 1, retain=True)
    assert client.received(first, 1) == [Received(f"{root}/old", "", 1, False)]
    client.connect(second, second)
    client.subscribe(second, f"{root}/#", 1)
    client.publish(source, f"{root}/live", "now", 1)
    assert client.received(second, 2) == [
        Received(f"{root}/kept", "new", 1, True),
        Received(f"{root}/live", "now", 1, False),
    ]
    for name in (source, first, second):
        client.disconnect(name)


@pytest.mark.parametrize("label", LABELS)
def test_a_will_is_published_for_a_client_that_vanishes_and_not_for_one_that_says_goodbye(
    library: Callable[[str], Library], label: str
) -> None:
    client, watcher = library(label), library("paho 3.1.1")
    root, watching = fresh("wills"), fresh("watcher")
    watcher.connect(watching, watching)
    watcher.subscribe(watching, f"{root}/#", 1)
    vanishing, leaving = fresh("vanishing"), fresh("leaving")
    if not label.startswith("mosquitto"):  # whose mosquitto_sub leaves "with will" at a signal
        client.connect(leaving, leaving, will=Will(f"{root}/{leaving}", "gone"))
        client.subscribe(leaving, fresh("nothing"), 0)
        client.disconnect(leaving)
    client.connect(vanishing, vanishing, will=Will(f"{root}/{vanishing}", "gone"))
    client.subscribe(vanishing, fresh("nothing"), 0)
    client.drop(vanishing)
    assert watcher.received(watching, 1) == [Received(f"{root}/{vanishing}", "gone", 1, False)]
    watcher.disconnect(watching)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("label", LABELS)
def test_a_durable_session_gets_what_was_published_while_it_was_away(
    library: Callable[[str], Library], label: str, qos: int
) -> None:
    client, sender = library(label), library("paho 3.1.1")
    root, device, source = fresh("away"), fresh("device"), fresh("source")
    assert not client.connect(f"{device}-1", device, clean=False)
    client.subscribe(f"{device}-1", f"{root}/#", qos)
    client.disconnect(f"{device}-1")
    sender.connect(source, source)
    for number in range(3):
        sender.publish(source, f"{root}/a", str(number), qos)
    assert client.connect(f"{device}-2", device, clean=False) in (True, None)
    if label.startswith("mosquitto"):
        client.subscribe(f"{device}-2", f"{root}/#", qos)  # that is how mosquitto_sub begins to read
    assert client.received(f"{device}-2", 3) == [Received(f"{root}/a", str(n), qos, False) for n in range(3)]
    client.disconnect(f"{device}-2")
    sender.disconnect(source)


@pytest.mark.parametrize("label", LABELS)
def test_a_clean_session_finds_nothing_of_the_one_before(library: Callable[[str], Library], label: str) -> None:
    client, sender = library(label), library("paho 3.1.1")
    root, device, source = fresh("clean"), fresh("device"), fresh("source")
    client.connect(f"{device}-1", device, clean=False)
    client.subscribe(f"{device}-1", f"{root}/before", 1)
    client.disconnect(f"{device}-1")
    sender.connect(source, source)
    sender.publish(source, f"{root}/before", "lost", 1)
    assert not client.connect(f"{device}-2", device, clean=True)
    client.subscribe(f"{device}-2", f"{root}/after", 1)
    sender.publish(source, f"{root}/before", "lost", 1)
    sender.publish(source, f"{root}/after", "found", 1)
    assert client.received(f"{device}-2", 1) == [Received(f"{root}/after", "found", 1, False)]
    client.disconnect(f"{device}-2")
    sender.disconnect(source)


@pytest.mark.parametrize("label", [label for label in LABELS if not label.startswith("mosquitto")])
def test_nothing_comes_for_a_filter_after_it_is_unsubscribed(library: Callable[[str], Library], label: str) -> None:
    client, root = library(label), fresh("stop")
    source, target = fresh("source"), fresh("target")
    client.connect(target, target)
    client.subscribe(target, f"{root}/a/#", 1)
    client.subscribe(target, f"{root}/b", 1)
    client.connect(source, source)
    client.publish(source, f"{root}/a/1", "x", 1)
    assert client.received(target, 1) == [Received(f"{root}/a/1", "x", 1, False)]
    client.unsubscribe(target, f"{root}/a/#")
    client.publish(source, f"{root}/a/2", "x", 1)
    client.publish(source, f"{root}/b", "y", 1)
    assert client.received(target, 1) == [Received(f"{root}/b", "y", 1, False)]
    client.disconnect(source)
    client.disconnect(target)
