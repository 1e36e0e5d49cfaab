"""What a gateway tells of itself under $SYS."""

from __future__ import annotations

import pytest
from rig import Client, Gateway

from gateway.figures import Figures
from gateway.login.auth import Anonymous, Identity
from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Will
from gateway.publishing.sys_topics import SysTopics
from gateway.settings import GatewaySettings
from penstock.errors import InvalidConfig
from penstock.protocol.requests.sessions import KeepSessions
from penstock.protocol.requests.topics import CreateTopic
from penstock.version import VERSION


class Everything(Anonymous):
    """Allows whatever is asked."""

    def may_publish(self, identity: Identity, name: str) -> bool:
        return True


def telling(gateway: Gateway) -> SysTopics:
    return SysTopics(gateway.upstream, "$SYS/brokers/{name}", "gw", 10, gateway.clock.now_s)


def tell(gateway: Gateway, told: SysTopics) -> None:
    figures = Figures(gateway.parts)
    told.tell(figures.sums(), gateway.clock.now_s)
    gateway.round()


def values(client: Client) -> dict[str, str]:
    packets = [one for one in client.got() if isinstance(one, Publish)]
    return {packet.topic.removeprefix("$SYS/brokers/gw/"): packet.payload.decode() for packet in packets}


def test_figures_are_retained_messages_of_their_own() -> None:
    gateway = Gateway()
    publisher, subscriber = gateway.connect("p"), gateway.connect("s")
    subscriber.subscribe("a/#")
    publisher.publish("a/b", b"123", 1, packet_id=1)
    publisher.publish("a/b", b"123", 1, packet_id=2)
    publisher.publish("a/b", b"123", 2, packet_id=3)
    gateway.pass_time(7)
    tell(gateway, telling(gateway))
    late = gateway.connect("late")
    late.subscribe("$SYS/brokers/gw/#")
    got = values(late)
    assert got["clients/connected"] == "2"
    assert got["clients/maximum"] == "2"
    assert got["subscriptions/count"] == "1"
    assert got["publish/messages/received"] == "3"
    assert got["publish/messages/sent"] == "3"
    assert got["messages/received"] == "6"  # two CONNECTs, a SUBSCRIBE, three PUBLISHes
    assert got["messages/sent"] == "9"  # two CONNACKs, a SUBACK, three answers, three deliveries
    assert int(got["bytes/received"]) > 50
    assert int(got["bytes/sent"]) > 30
    assert got["version"] == f"penstock version {VERSION}"


def test_values_come_again_each_interval_and_tell_how_long_it_runs() -> None:
    gateway = Gateway()
    told = telling(gateway)
    watcher = gateway.connect("w")
    watcher.subscribe("$SYS/#")
    seen = []
    for _ in range(50):
        if told.is_due(gateway.clock.now_s):
            tell(gateway, told)
            seen.append(values(watcher)["uptime"])
        gateway.pass_time(0.5)
    assert seen == ["0 seconds", "10 seconds", "20 seconds"]


def test_an_interval_of_0_is_never() -> None:
    assert not SysTopics(Gateway().upstream, "$SYS/x", "gw", 0, 0).is_due(1e9)


def test_their_topic_is_made_with_the_level_cache() -> None:
    gateway = Gateway()
    tell(gateway, telling(gateway))
    assert gateway.broker.made(CreateTopic) == [CreateTopic("%24SYS", 1, "cache")]


@pytest.mark.mqtt("4.7.2-1", old=("4.7.2-1",))
def test_a_wildcard_in_the_first_level_does_not_match_them() -> None:
    gateway = Gateway()
    watcher = gateway.connect("w")
    watcher.subscribe("#", "+/brokers/#")
    tell(gateway, telling(gateway))
    assert values(watcher) == {}


def test_a_value_of_a_gateway_that_is_gone_expires() -> None:
    gateway = Gateway()
    tell(gateway, telling(gateway))
    gateway.pass_time(31)
    late = gateway.connect("late")
    late.subscribe("$SYS/#")
    assert values(late) == {}


def test_a_clean_stop_takes_the_values_back() -> None:
    gateway = Gateway()
    told = telling(gateway)
    tell(gateway, told)
    assert gateway.broker.retained()
    told.take_back()
    gateway.round()
    assert not gateway.broker.retained()


def test_while_nothing_leaves_a_gateway_no_values_heap_up() -> None:
    gateway = Gateway()
    told = telling(gateway)
    tell(gateway, told)
    before = len(gateway.broker.messages())
    gateway.broker.holds = (KeepSessions,)
    gateway.lease_recovery.doubt()
    gateway.pass_time(10)
    for _ in range(10):
        tell(gateway, told)
    gateway.broker.let_go()
    gateway.round()
    assert len(gateway.broker.messages()) == before
    tell(gateway, told)
    assert len(gateway.broker.messages()) == 2 * before


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("name", ["$SYS", "$SYS/brokers/gw/version"])
def test_no_client_publishes_there_whatever_it_may_elsewhere(level: int, name: str) -> None:
    gateway = Gateway(Everything("everyone"))
    client = gateway.connect(level=level)
    client.publish(name, b"x", 1, packet_id=1)
    assert client.got() == [Puback(1, 0x87 if level == 5 else 0)]
    assert gateway.broker.messages() == []
    other = gateway.open(level)
    other.send(Connect("other", will=Will(name, b"x"), level=level))
    assert other.got() == [Connack(False, 0x87 if level == 5 else 5)]


def test_each_value_says_which_gateway_tells_it_as_the_broker_asks() -> None:
    gateway = Gateway()
    tell(gateway, telling(gateway))
    assert gateway.broker.messages(), "a broker stores none that does not"


def test_the_prefix_stays_under_sys() -> None:
    assert GatewaySettings(sys_prefix="$SYS/broker").sys_prefix == "$SYS/broker"
    with pytest.raises(InvalidConfig, match="sys_prefix"):
        GatewaySettings(sys_prefix="plant/sys")
