"""Thousands of worlds of cores alone, and the hard cases of Raft, each played out message by message."""

from __future__ import annotations

from broker.replica.core import EPOCHS_FORCED
from broker.replica.events import Lost, Missing, MoveLead, RoleKind, Tick
from broker.replica.members import with_member, without_member
from penstock.protocol.requests.replicas import Member
from tests.simulation.rafts import Habits, Node, World
from tests.simulation.seeds import checked, seeds

WORLDS = 500


def run(seed: int, habits: Habits | None = None) -> World:
    return checked(World(seed, habits), lambda world: None, seed, "test_rafts.py -k worlds")


def test_in_all_worlds_what_is_committed_stays_and_all_are_level_in_the_end() -> None:
    count = led = taken_back = 0
    for seed in seeds(WORLDS):
        world = run(seed)
        count, led, taken_back = count + 1, led + len(world.leaders), taken_back + world.taken_back
    if count > 1:  # they have seen something
        assert led > 1.5 * count
        assert taken_back > count / 50


def test_a_world_is_the_same_with_the_same_seed() -> None:
    assert run(7).log == run(7).log


# ---------------------------------------------------------------- the hard cases


def quiet(voters: int = 3, **habits: int) -> World:
    """A world in which only happens what the test says; ``a`` leads."""
    world = World(1, Habits(voters=voters, **habits))  # type: ignore[arg-type]
    world.pass_time(0.01)
    world.campaign("a")
    world.calm()
    assert led_by(world) == "a"
    return world


def led_by(world: World) -> str:
    assert world.leader
    return world.leader.name


def names_of(world: World, kind: RoleKind) -> list[str]:
    return [node.name for node in world.nodes.values() if node.core and node.core.role.kind is kind]


def settle(world: World) -> None:
    """Passes time in which every node that wants to be elected asks for votes more than once."""
    for _ in range(40):
        world.pass_time(0.1)


def test_earlier_epochs_are_not_committed_by_counting() -> None:
    """Figure 8 of Raft's paper, with three nodes."""
    world = quiet()
    a, b, c = world.nodes.values()
    world.part("a")
    world.append(a)
    world.sync(a)
    world.crash(a, power=False)
    world.bag.clear()
    world.part()
    world.ask_to_lead("c")
    world.deliver_until(lambda: c.leads > 0)
    world.crash(c, power=False)  # what it began with is on its disk alone
    world.bag.clear()
    world.start(a)
    world.stretch_entries_max = 1
    for _ in range(2):
        world.ask_to_lead("a")
        world.deliver_until(lambda: not world.bag or a.leads > 0)
    world.deliver_until(lambda: b.disk.end > world.truth[0].end, syncs="ab")
    assert b.disk.end < a.disk.end
    world.bag = [one for one in world.bag if one[2] == "a"]  # a hears that b has the old message, b hears nothing more
    world.deliver_until(lambda: not world.bag)
    world.crash(a, power=False)
    world.bag.clear()
    world.start(c)
    world.campaign("c")
    world.calm()


def test_a_vote_is_saved_before_it_is_given() -> None:
    world = quiet()
    world.crash(world.nodes["a"], power=False)
    world.die_before_save = {"c"}
    world.ask_to_lead("b")
    world.deliver_until(lambda: world.nodes["c"].core is None)
    world.die_before_save = set()
    world.bag = [one for one in world.bag if one[2] != "b"]  # b does not hear of it
    world.start(world.nodes["a"])
    world.start(world.nodes["c"])
    world.campaign("a")
    world.calm()


def test_the_longer_log_of_an_older_epoch_does_not_win() -> None:
    world = quiet()
    world.part("a")
    for _ in range(5):
        world.append(world.nodes["a"])
    world.campaign("b")
    world.append(world.nodes["b"])
    world.pass_time(0.01)
    assert len(world.truth) == 3
    world.crash(world.nodes["b"], power=False)
    world.part()
    settle(world)
    assert names_of(world, RoleKind.LEADER) == ["c"]
    world.calm()


def test_a_node_that_was_cut_off_disturbs_no_leader_when_it_is_back() -> None:
    world = quiet()
    world.part("c")
    settle(world)
    assert names_of(world, RoleKind.CANDIDATE) == ["c"]
    world.part()
    settle(world)
    assert list(world.leaders) == [1]


def test_a_leader_that_hears_no_majority_steps_down() -> None:
    world = quiet()
    world.part("a")
    world.append(world.nodes["a"])
    settle(world)
    assert world.nodes["a"].leads == 0
    assert names_of(world, RoleKind.LEADER) in (["b"], ["c"])
    world.part()
    settle(world)
    assert len(world.leaders) == 2
    assert world.is_level()


def test_a_leader_that_is_heard_by_half_of_the_lines_does_not_flap() -> None:
    world = quiet()
    world.cuts = {("a", "c"), ("c", "a")}
    settle(world)
    assert list(world.leaders) == [1]


def test_a_node_that_stood_still_judges_nobody() -> None:
    world = quiet()
    world.now += 30.0
    for name in "bca":
        world.step(world.nodes[name], Tick())
    assert world.nodes["a"].leads == 1
    assert names_of(world, RoleKind.CANDIDATE) == []


def test_a_group_elects_a_leader_where_all_its_nodes_hardly_get_their_turn() -> None:
    world = quiet()
    world.crash(world.nodes["a"], power=False)
    for _ in range(40):
        world.pass_time(2.0)
    assert led_by(world) in "bc"
    epochs = len(world.leaders)
    for _ in range(40):
        world.pass_time(2.0)
    assert len(world.leaders) == epochs


class SlowStarts(World):
    """Who is elected does nothing else for a long time, and says nothing."""

    STARTS_S = 6.0

    def begin_epoch(self, node: Node) -> None:
        super().begin_epoch(node)
        node.frozen_until = self.now + self.STARTS_S

    def pass_slowly(self) -> None:
        self.now += 0.1
        awake = [node for node in self.nodes.values() if node.frozen_until <= self.now]
        for node in awake:
            self.step(node, Tick())
            self.sync(node)
        while due := [at for at, one in enumerate(self.bag) if self._can_talk(one[0], one[2])]:
            self.bag.insert(0, self.bag.pop(due[0]))
            self.deliver()

    def _can_talk(self, *names: str) -> bool:
        return all(self.nodes[name].frozen_until <= self.now for name in names)


def test_a_leader_comes_to_lead_though_its_start_takes_many_times_an_election() -> None:
    for seed in (0, 4):
        world = SlowStarts(seed, Habits(voters=5))
        for _ in range(250):
            world.pass_slowly()
        assert world.is_level()
        assert len(world.leaders) <= 6


def test_a_lead_moves_and_nothing_that_was_appended_is_taken_back() -> None:
    world = quiet()
    moved = 0
    for _ in range(20):
        leader = world.leader
        assert leader
        world.step(leader, MoveLead("b" if leader.name == "a" else "a"))
        for _ in range(60):
            for node in world.nodes.values():
                if node.leads and node.core and not node.core.refusal(world.now):
                    world.append(node)
            world.deliver()
            world.sync(world.rng.choice(list(world.nodes.values())))
        world.pass_time(0.01)
        moved += led_by(world) != leader.name
    assert moved > 10
    assert world.taken_back == 0


def test_a_lead_moves_to_a_voter_that_has_become_level() -> None:
    world = quiet()
    world.part("b")
    world.append(world.nodes["a"])
    world.pass_time(0.01)
    world.part()
    world.step(world.nodes["a"], Lost("b"))
    world.step(world.nodes["a"], MoveLead("b"))
    settle(world)
    assert world.leaders == {1: "a", 2: "b"}


def test_the_lead_stays_where_the_other_does_not_become_level() -> None:
    world = quiet()
    world.part("b")
    world.append(world.nodes["a"])
    world.step(world.nodes["a"], MoveLead("b"))
    assert "moves" in world.nodes["a"].core.refusal(world.now)  # type: ignore[union-attr]
    settle(world)
    assert list(world.leaders) == [1]
    assert world.nodes["a"].core.refusal(world.now) == ""  # type: ignore[union-attr]


def test_a_learner_becomes_level_and_then_a_voter() -> None:
    world = quiet(spares=1)
    a, x = world.nodes["a"], world.nodes["x"]
    assert a.core
    before = a.core.log.members
    joined = with_member(before, Member("x", x.disk.hard.uuid, "", False))
    voter = with_member(before, Member("x", x.disk.hard.uuid))
    assert "lacks" in a.core.change_refusal(voter)
    assert a.core.change_refusal(joined) == ""
    world.append(a, joined)
    assert "not committed" in a.core.change_refusal(before)
    world.part("x")
    settle(world)
    assert "lacks" in a.core.change_refusal(voter)
    world.part()
    settle(world)
    assert x.disk.entries == a.disk.entries
    assert a.core.change_refusal(voter) == ""
    world.append(a, voter)
    settle(world)
    world.campaign("x")
    assert led_by(world) == "x"


def test_a_leader_that_is_removed_leads_until_that_is_committed() -> None:
    world = quiet()
    a = world.nodes["a"]
    assert a.core
    world.append(a, without_member(a.core.log.members, "a"))
    assert a.leads == 1
    settle(world)
    assert names_of(world, RoleKind.LEADER) in (["b"], ["c"])
    assert len(world.leaders) == 2


def test_without_its_copies_nothing_is_taken() -> None:
    world = quiet(voters=1, observers=1, copies=2)
    a = world.nodes["a"]
    assert a.core
    assert a.core.refusal(world.now) == ""
    world.part("b")
    settle(world)
    assert a.leads == 1
    assert a.core.refusal(world.now) == "1 of 2 nodes are there"
    world.append(a)
    settle(world)
    assert len(world.truth) == 1
    world.part()
    world.calm()
    assert len(world.truth) == 2


def test_an_observer_is_never_counted() -> None:
    world = quiet(voters=2, observers=1)
    world.part("b")
    world.append(world.nodes["a"])
    world.pass_time(0.01)
    assert len(world.truth) == 1
    world.part()
    world.calm()
    world.crash(world.nodes["a"], power=False)
    settle(world)
    assert world.leader is None


def acknowledged_by_two(world: World) -> None:
    """A message that ``a`` and ``b`` have, and ``c`` not."""
    world.part("c")
    world.append(world.nodes["a"])
    for _ in range(4):
        world.pass_time(0.1)
    assert len(world.truth) == 2
    assert world.nodes["b"].disk.hard.mark == world.truth[-1].end
    world.crash(world.nodes["a"], power=False)
    world.crash(world.nodes["b"], power=False)
    world.part()


def test_who_has_lost_what_it_promised_does_not_vote_before_it_is_level() -> None:
    world = quiet()
    acknowledged_by_two(world)
    world.nodes["b"].disk.cut(world.truth[0].end)
    world.start(world.nodes["b"])
    settle(world)
    assert world.leader is None
    world.calm()
    world.crash(world.nodes["a"], power=False)
    settle(world)
    assert led_by(world) in "bc"


def test_a_new_folder_under_an_old_name_has_no_vote() -> None:
    world = quiet()
    acknowledged_by_two(world)
    world.wipe(world.nodes["b"])
    world.start(world.nodes["b"])
    settle(world)
    assert world.leader is None
    world.start(world.nodes["a"])
    settle(world)
    assert world.is_level()
    assert world.nodes["b"].disk.end == 0


def test_a_node_with_damage_follows_and_does_not_lead() -> None:
    world = quiet()
    for name in "bc":
        world.step(world.nodes[name], Missing(name == "b"))
    world.crash(world.nodes["a"], power=False)
    settle(world)
    assert led_by(world) == "c"


def test_a_forced_leader_goes_on_with_what_is_left_and_no_other_epoch_is_above_its_own() -> None:
    world = quiet(voters=5)
    world.part("d", "e")
    world.append(world.nodes["a"])  # what the others have of it is lost
    world.append(world.nodes["a"])
    for _ in range(4):
        world.pass_time(0.1)
    had = world.nodes["d"].disk.end
    assert world.truth[-1].end > had
    world.part()
    world.force("d", "abc")
    assert world.leaders[max(world.leaders)] == "d"
    assert max(world.leaders) > EPOCHS_FORCED
    world.calm()
    assert next(one.position for one in world.truth if one.epoch > EPOCHS_FORCED) == had
    for name in "de":
        core = world.nodes[name].core
        assert core
        assert core.log.members.voters == ["d", "e"]
        world.crash(world.nodes[name], power=True)
        world.start(world.nodes[name])
    settle(world)
    assert led_by(world) in "de"
    assert max(world.leaders) == EPOCHS_FORCED + 2, "a start knows the members, and goes on from the forced epoch"


def test_a_forced_leader_may_be_one_that_has_lost_what_it_promised() -> None:
    world = quiet()
    acknowledged_by_two(world)
    world.nodes["b"].disk.cut(world.truth[0].end)
    world.start(world.nodes["b"])
    world.force("b", "ac")
    world.calm()
    assert led_by(world) == "b"


def test_one_node_alone_leads_at_once_and_commits_what_its_disk_has() -> None:
    world = World(1, Habits(voters=1))
    a = world.nodes["a"]
    settle(world)
    world.append(a)
    assert len(world.truth) == 1
    world.sync(a)
    assert len(world.truth) == 2
    assert not world.bag
