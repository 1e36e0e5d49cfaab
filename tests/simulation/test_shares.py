"""Members of shared subscriptions under takeovers, storms, lost gateways, links and brokers: no message is lost.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from broker.shares.leases import ShareLeases
from gateway.delivery.share_feed import ShareFeed
from gateway.delivery.shared import SharedSubscriptions
from gateway.mqtt.packets import Publish, Subscribe, Subscription, Unsubscribe
from tests.simulation.gateways import Device, Gateway, Line
from tests.simulation.leaving import Aiming
from tests.simulation.seeds import checked, must_see, seeds

CATCH_WITHIN = 60
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(14)
PLAIN, ORDERED = "$share/g/#", "$oshare/h/#"


class Member(Device):
    """A client with one shared subscription; its group sees what comes to all its members."""

    def __init__(self, world: ShareWorld, name: str, share: str, qos: int, *, leaves: bool) -> None:
        super().__init__(world, name, {share: qos}, 0)
        self.group = world.groups.setdefault(share, [])
        self.lines: list[Line] = []
        self.leaves = leaves

    def connect(self, gateway: Gateway) -> None:
        super().connect(gateway)
        if self.line is not None:
            self.lines.append(self.line)

    def act(self) -> None:
        """Leaves its share now and then, to come again, and may be struck as it does."""
        world = self.world
        assert isinstance(world, Aiming)
        if self.leaves and world.has_begun and self.is_admitted and not self.unsubscribed and world.rng.random() < 0.1:
            share, qos = next(iter(self.filters)), world.rng.choice((1, 2))
            self.unsubscribed = {share: qos}
            assert self.line is not None
            packets: list[Any] = [Unsubscribe(self._id(), (share,))]
            if world.rng.random() < 0.3:  # it does not wait for the answer
                self.asked = {self._id(): share}
                packets.append(Subscribe(next(iter(self.asked)), (Subscription(share, qos),)))
            self.line.send(*packets)
            world.aim(self)
        super().act()

    def forget_lines(self) -> None:
        """Gateways notice in the end that earlier connections are dead: that is what keep-alive is for."""
        for line in self.lines:
            if line is not self.line and not line.is_closed and line.gateway in self.world.gateways:
                line.cut()

    def _delivered(self, packet: Publish) -> list[Any]:
        before = self.delivered[packet.payload]
        answers = super()._delivered(packet)
        if self.delivered[packet.payload] > before:
            self.group.append(packet.payload)
        return answers


class ShareWorld(Aiming):
    """A world whose subscribers are members of a plain and of an ordered group."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.groups: dict[str, list[bytes]] = {}
        publishers = [device for device in self.devices if not device.filters]
        members = [Member(self, f"s{number}", PLAIN, self.rng.choice((1, 2)), leaves=number > 0) for number in range(3)]
        members += [Member(self, f"o{number}", ORDERED, 1, leaves=False) for number in range(3)]
        self.devices = [*publishers, *members]

    def run(self) -> None:
        """And what dead gateways and connections had is given to others when their time is over."""
        super().run()
        for device in self.devices:
            if isinstance(device, Member):
                device.forget_lines()
        for _ in range(50):
            self.drain()
            self.reconnect()
            self.pass_time(0.5)


def check(world: ShareWorld) -> None:
    """Every message came to each group, those of a key in their order, and nothing is left."""
    sent = {payload: message for device in world.devices for payload, message in device.sent.items()}
    log = world.stored()
    times = Counter(log)
    for share, group in world.groups.items():
        missing = sent.keys() - set(group)
        assert not missing, f"{share} never got {sorted(missing)[:3]}"
        assert set(group) <= sent.keys(), "made up"
    place = {payload: at for at, payload in enumerate(log)}
    for publisher in {payload.partition(b":")[0] for payload in sent}:
        once = [one for one in log if times[one] == 1 and one.startswith(publisher)]
        wanted = set(once)
        first = [one for one in dict.fromkeys(world.groups[ORDERED]) if one in wanted]
        assert [place[one] for one in first] == sorted(place[one] for one in first), f"{publisher!r} out of order"
    assert world.broker.service.figures()["penstock_shared_unsettled"] == 0
    assert all(len(settled.starts) == 0 for settled in map(world.broker.state.shares.get, world.groups) if settled)


def run(seed: int) -> ShareWorld:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return checked(ShareWorld(seed), check, seed, "test_shares.py -k group")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_group_gets_every_message_and_keys_keep_their_order(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_run_every_time() -> None:
    first, again = run(3), run(3)
    assert (first.digest(), first.groups) == (again.digest(), again.groups)


def forget_what_a_lost_member_had(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareFeed, "give_back", lambda self, offsets: [self.settle(offset) for offset in offsets])


def forget_what_a_silent_taker_had(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareLeases, "give_back", lambda self, taker, offsets: 0)


def never_say_what_is_held(patch: pytest.MonkeyPatch) -> None:
    def silent(self: SharedSubscriptions, feed: ShareFeed) -> None:
        feed.must_resume = False
        serve(self, feed)

    serve = SharedSubscriptions._serve
    patch.setattr(SharedSubscriptions, "_serve", silent)


def give_a_key_to_anyone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareLeases, "taker_of", lambda self, key: None)


@pytest.mark.parametrize(
    "plant",
    [forget_what_a_lost_member_had, forget_what_a_silent_taker_had, never_say_what_is_held, give_a_key_to_anyone],
)
def test_a_planted_bug_is_caught(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN, Exception)
