"""Bugs of groups, numbered as in issue 46, each planted and caught: by a hard case, or by worlds of chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from broker.replica import core as cores
from broker.replica import leading as leadings
from broker.replica.commit_rule import agreed
from broker.replica.core import Core
from broker.replica.events import Message, Received, ToPeer
from broker.replica.leading import Leading
from broker.replica.own_log import OwnLog
from broker.replica.replica import Replica
from broker.store.raw import BadPlace
from penstock.protocol.requests.replicas import AskVote, EpochAt, Members, TakeEntries
from tests.broker.replica import test_replica as whole
from tests.simulation import test_rafts as cases
from tests.simulation.rafts import Habits, Node, World
from tests.simulation.seeds import must_see

WORLDS = 400
sound_commit = Replica._commit
HARD = Habits(mix=0.3, crash=0.02, cut=0.02, move=0.02)
CHANGING = Habits(spares=2, crash=0.01, change=0.3, move=0.02)


def say_it_before_it_is_saved(self: Core, node: str, message: Message) -> None:
    self._send.append(ToPeer(node, message))


def answer_for_what_the_disk_has_not(self: Core) -> int:
    return self._matched


def count_the_leader_at_its_append(self: Leading) -> dict[str, int]:
    return {self._node: self._log.end, **{node: peer.durable for node, peer in self._peers.items()}}


def commit_older_epochs_by_counting(self: Leading) -> int:
    return max(self._log.committed, agreed(self._log.members, self._durables()))


def begin_an_epoch_without_a_record(self: World, node: Node) -> None:
    pass


def vote_by_the_length_of_the_log(self: Core, ask: AskVote) -> bool:
    return ask.end >= self.log.end


def cut_to_where_a_stretch_begins(own: list[EpochAt], theirs: list[EpochAt], start: int, stop: int) -> int:
    return start


def listen_to_any_folder(self: Core, event: Received) -> bool:
    return True


def count_observers(members: Members, durable: Mapping[str, int]) -> int:
    return agreed(members._replace(nodes=tuple([one._replace(is_voter=True) for one in members.nodes])), durable)


def know_all_from_the_beginning(self: Leading) -> bool:
    return True


def see_no_open_change(self: OwnLog) -> bool:
    return False


def vote_whatever_is_lost(self: Core) -> bool:
    return False


def say_that_what_the_leader_has_is_promised(self: World, node: Node) -> int:
    assert node.core
    return node.core.log.durable


def commit_what_the_leader_has_committed(self: Core, entries: TakeEntries) -> None:
    self.log.committed = max(self.log.committed, entries.committed)


def append_while_the_lead_moves(self: Leading, now: float) -> str:
    return ""


def move_the_lead_to_one_that_lacks_some(self: Leading) -> ToPeer | None:
    return ToPeer(self._moves_to, cores.TakeLead(self.epoch)) if self._moves_to else None


def take_in_what_is_not_committed(self: Replica, point: int) -> None:
    sound_commit(self, point if self.leads else self.log.end)


def read(bug: Callable[..., Any]) -> property:
    """An attribute that always has this value, whatever it is set to."""
    return property(bug, lambda self, value: None)


def worlds(habits: Habits) -> Callable[[Any], None]:
    return lambda bug: must_see(bug, lambda seed: World(seed, habits).run(), WORLDS)


def case(test: Callable[[], None]) -> Callable[[Any], None]:
    def killer(_bug: Any) -> None:
        with pytest.raises((AssertionError, BadPlace)):
            test()

    return killer


PLANTS: list[tuple[str, object, str, Any, Callable[[Any], None]]] = [
    ("R1", Core, "_say", say_it_before_it_is_saved, case(cases.test_a_vote_is_saved_before_it_is_given)),
    ("R2", Core, "_promised", answer_for_what_the_disk_has_not, worlds(HARD)),
    ("R3", Leading, "_durables", count_the_leader_at_its_append, worlds(HARD)),
    (
        "R4",
        Leading,
        "committed",
        commit_older_epochs_by_counting,
        case(cases.test_earlier_epochs_are_not_committed_by_counting),
    ),
    ("R5", World, "begin_epoch", begin_an_epoch_without_a_record, worlds(HARD)),
    (
        "R6",
        Core,
        "_is_level",
        vote_by_the_length_of_the_log,
        case(cases.test_the_longer_log_of_an_older_epoch_does_not_win),
    ),
    ("R7", cores, "parting", cut_to_where_a_stretch_begins, worlds(HARD)),
    (
        "R10",
        Replica,
        "_commit",
        take_in_what_is_not_committed,
        case(whole.test_a_fact_that_was_acknowledged_is_in_every_copy_whoever_died),
    ),
    (
        "R15",
        Core,
        "_is_of_its_folder",
        listen_to_any_folder,
        case(cases.test_a_new_folder_under_an_old_name_has_no_vote),
    ),
    ("R16", leadings, "agreed", count_observers, case(cases.test_an_observer_is_never_counted)),
    ("R17", Leading, "is_settled", know_all_from_the_beginning, worlds(CHANGING)),
    ("R18", OwnLog, "has_open_change", see_no_open_change, worlds(CHANGING)),
    (
        "R22",
        Core,
        "_is_behind_mark",
        vote_whatever_is_lost,
        case(cases.test_who_has_lost_what_it_promised_does_not_vote_before_it_is_level),
    ),
    ("R25", World, "watermark", say_that_what_the_leader_has_is_promised, worlds(HARD)),
    ("R26", Core, "_commit", commit_what_the_leader_has_committed, worlds(HARD)),
    (
        "R27",
        Leading,
        "refusal",
        append_while_the_lead_moves,
        case(cases.test_a_lead_moves_and_nothing_that_was_appended_is_taken_back),
    ),
    (
        "R27",
        Leading,
        "_take_lead",
        move_the_lead_to_one_that_lacks_some,
        case(cases.test_a_lead_moves_to_a_voter_that_has_become_level),
    ),
]


@pytest.mark.parametrize(("number", "owner", "name", "bug", "killer"), PLANTS, ids=[one[3].__name__ for one in PLANTS])
def test_a_planted_bug_is_caught(
    number: str, owner: Any, name: str, bug: Any, killer: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_value = name == "_is_behind_mark" or isinstance(vars(owner).get(name), property)
    monkeypatch.setattr(owner, name, read(bug) if is_value else bug, raising=name != "_is_behind_mark")
    killer(bug)


def test_the_numbers_are_those_that_cores_and_their_logs_can_show() -> None:
    numbers = {1, 2, 3, 4, 5, 6, 7, 10, 15, 16, 17, 18, 22, 25, 26, 27}
    assert {one[0] for one in PLANTS} == {f"R{number}" for number in numbers}
