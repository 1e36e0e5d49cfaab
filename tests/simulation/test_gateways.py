"""Takeovers, reconnect storms, lost gateways, links and brokers: sessions, order, QoS 2 and retained messages hold.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from broker.kernel.outcomes import AfterQuorum, AfterSync, Now, Outcome
from broker.messages.requests import MessageRequests
from broker.sessions.exchanges import Exchanges
from broker.sessions.fold import Sessions
from broker.sessions.requests import SessionRequests
from broker.state import BrokerState
from gateway.connections.acknowledging import EXCHANGES
from gateway.delivery import resending
from gateway.delivery.filter_leases import FilterLeases
from gateway.delivery.sending import Sending
from gateway.messages.outgoing import Blob
from gateway.mqtt.answers import PUBCOMP, answer
from gateway.mqtt.packets import Pubrec
from gateway.sessions.exchange_ids import ExchangeIds
from gateway.sessions.resuming import Resuming
from gateway.sessions.saver import SessionSaver
from gateway.sessions.session import Session
from tests.simulation.gateways import Moving, World, check
from tests.simulation.seeds import checked, must_see, seeds

CATCH_WITHIN = 700
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(16)


@pytest.fixture(autouse=True)
def few_packet_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packet ids are used again soon, so that one that is taken for free too early does harm."""
    monkeypatch.setattr("gateway.sessions.session.PACKET_ID_MAX", 16)
    monkeypatch.setattr("gateway.messages.outgoing.PACKET_ID_MAX", 16)


def run(seed: int, kind: type[World] = World) -> World:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return checked(kind(seed), check, seed, "test_gateways.py -k hold")


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_order_qos_2_and_retained_messages_hold(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", SEEDS[: (len(SEEDS) + 1) // 2])
def test_all_of_it_holds_where_a_broker_comes_back_at_another_address(seed: int) -> None:
    run(seed, Moving)


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run(3).digest() == run(3).digest() != run(4).digest()


# ---------------------------------------------------------------- planted bugs: the bench must see them


def send_qos_2_before_the_session_is_durable(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Sending, session: Session, qos: int, packets: bytes) -> bool:
        if session.lasting is not None:
            self._saver.note(session)
        return False

    patch.setattr(Sending, "waits", hasty)


def send_the_pubrel_before_the_session_is_durable(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: SessionSaver, session: Session, packets: bytes, told: Callable[[], None] | None = None) -> None:
        if packets[0] == 0x62 and session.device is not None:
            session.device.send(packets)
            self.note(session)
        else:
            before(self, session, packets, told)

    before = SessionSaver.before
    patch.setattr(SessionSaver, "before", hasty)


def complete_before_the_release_is_durable(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: ExchangeIds, session: Session, packet_id: int) -> None:
        assert session.device is not None
        session.device.send(answer(PUBCOMP, packet_id))
        session.forget_incoming(packet_id)
        release(self, session, packet_id)

    release = ExchangeIds.release
    patch.setattr(ExchangeIds, "release", hasty)


def let_late_messages_of_earlier_owners_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerState, "is_fenced", lambda self, client, generation, epoch: False)
    store_what_an_epoch_that_is_over_has_left(patch)  # within one broker that would be enough
    patch.setattr(World, "late", lambda self: [])


def store_what_an_epoch_that_is_over_has_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageRequests, "_check_gateway_epoch", lambda self, gateway_epoch: None)


def never_release_an_exchange(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchanges, "_apply", lambda self, body: None)


def forget_what_was_on_its_way(patch: pytest.MonkeyPatch) -> None:
    begin = Resuming.begin

    def forgetful(self: Resuming, exchanges: ExchangeIds, on_resumed: Callable[..., None]) -> None:
        self._flow = self._flow._replace(sent=[])
        begin(self, exchanges, on_resumed)

    patch.setattr(Resuming, "begin", forgetful)


def forget_the_ids_that_wait_for_a_pubcomp(patch: pytest.MonkeyPatch) -> None:
    begin = Resuming.begin

    def forgetful(self: Resuming, exchanges: ExchangeIds, on_resumed: Callable[..., None]) -> None:
        self._flow = self._flow._replace(releasing=[])
        begin(self, exchanges, on_resumed)

    patch.setattr(Resuming, "begin", forgetful)


def answer_for_a_session_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    give = SessionRequests._give

    def hasty(self: SessionRequests, request: object, entry: object, now: float, now_ms: int) -> Outcome:
        outcome = give(self, request, entry, now, now_ms)  # type: ignore[arg-type]
        return Now(outcome.result) if isinstance(outcome, AfterSync | AfterQuorum) else outcome

    patch.setattr(SessionRequests, "_give", hasty)


def leave_filters_to_the_gateways_lease(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: FilterLeases, shelf: object) -> None:
        for rows in shelf.holding.values():  # type: ignore[attr-defined]
            for row in rows:
                if row.opening is not None:
                    row.opening.answered(None)
        shelf.holding.clear()  # type: ignore[attr-defined]

    patch.setattr(FilterLeases, "_hold", nothing)


def save_for_whoever_asks(patch: pytest.MonkeyPatch) -> None:
    save = Sessions._save

    def careless(self: Sessions, one: object, stored_ms: int) -> None:
        entry = self.get(one.client)  # type: ignore[attr-defined]
        save(self, one if entry is None else one._replace(epoch=entry.epoch), stored_ms)  # type: ignore[attr-defined]

    patch.setattr(Sessions, "_save", careless)

    def epoch_of(self: SessionRequests, owner: str, one: object) -> int:
        entry = self._sessions.get(one.client)  # type: ignore[attr-defined]
        return entry.epoch if entry is not None else 0

    patch.setattr(SessionRequests, "_epoch_of", epoch_of)


def let_packets_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    def shuffled(session: Session, packets: Mapping[int, Blob], now_ms: int) -> Sequence[bytes]:
        return sent_again(session, packets, now_ms)[::-1]

    sent_again = resending.sent_again
    patch.setattr(resending, "sent_again", shuffled)


def take_a_refused_exchange_for_a_known_one(patch: pytest.MonkeyPatch) -> None:
    def deaf(device: object, services: object, packet: Pubrec) -> None:
        device.session.in_flight.pop(packet.packet_id, None)  # type: ignore[attr-defined]
        pubrec(device, services, packet)  # type: ignore[arg-type]

    pubrec = EXCHANGES[Pubrec]
    patch.setattr("gateway.connections.device.EXCHANGES", {**EXCHANGES, Pubrec: deaf})


PLANTED = [
    send_qos_2_before_the_session_is_durable,
    send_the_pubrel_before_the_session_is_durable,
    complete_before_the_release_is_durable,
    let_late_messages_of_earlier_owners_in,
    store_what_an_epoch_that_is_over_has_left,
    never_release_an_exchange,
    forget_what_was_on_its_way,
    forget_the_ids_that_wait_for_a_pubcomp,
    answer_for_a_session_before_it_is_durable,
    leave_filters_to_the_gateways_lease,
    save_for_whoever_asks,
    let_packets_overtake_each_other,
    take_a_refused_exchange_for_a_known_one,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN)
