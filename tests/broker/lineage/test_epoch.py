"""Epochs of a broker: one more at each start, in the log before anything is promised in it."""

from __future__ import annotations

from broker.store.frames import read_head
from penstock.errors import StorageFull
from penstock.protocol.message import FRAME_HEAD_BYTES, Message
from penstock.protocol.requests.groups import Assignment, JoinGroup
from penstock.protocol.requests.request import Result
from tests.broker.broker_rig import Rig, append


def epoch_of_last_append(rig: Rig) -> int:
    """What the head of the next frame says."""
    position = rig.store.written
    rig.ask(append(Message("t", b"x")))
    return read_head(rig.store._log.read(position, FRAME_HEAD_BYTES)).epoch


def test_every_start_begins_an_epoch_and_its_frames_carry_it() -> None:
    rig = Rig()
    assert (rig.state.epoch, epoch_of_last_append(rig)) == (1, 1)
    again = rig.restarted()
    assert (again.state.epoch, epoch_of_last_append(again)) == (2, 2)
    positions = [position for _, position in again.state.epochs.begun]
    assert positions == sorted(positions)


def test_an_epoch_whose_record_was_lost_with_the_power_is_begun_again() -> None:
    rig = Rig()
    rig.sync()
    lost = rig.restarted()
    assert lost.state.epoch == 2
    lost.disk.lose_power()
    settings = {name: getattr(lost.settings, name) for name in lost.settings.__slots__}
    assert Rig(lost.disk, **settings).state.epoch == 2


def test_generations_of_groups_never_come_again_even_if_the_clock_goes_back() -> None:
    rig = Rig()
    last = generation(rig.ask(JoinGroup("g", "a", ("t",), 10.0)))
    again = rig.restarted(set_ms=1)
    assert generation(again.ask(JoinGroup("g", "a", ("t",), 10.0))) > last


def generation(answer: Result) -> int:
    assert isinstance(answer, Assignment), answer
    return answer.generation


def test_without_room_for_its_record_a_start_serves_but_forms_no_group_until_there_is_some() -> None:
    rig = Rig()
    rig.ask(append(Message("t", b"x")))
    rig.disk.capacity = rig.disk.used()
    for body in (bytes(500), b""):  # until no record fits into what the segment has
        while not isinstance(rig.ask(append(Message("t", body))), StorageFull):
            pass
    full = rig.restarted()
    assert full.state.epoch == 1
    assert isinstance(full.ask(JoinGroup("g", "a", ("t",), 10.0)), StorageFull)
    full.disk.capacity = None
    full.dispatch.tick()
    assert isinstance(full.ask(JoinGroup("g", "a", ("t",), 10.0)), Assignment)
