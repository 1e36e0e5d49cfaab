"""Access rules: what they allow, what they deny, and that ids with odd characters gain nothing."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.access.acl import parse_acl
from penstock.errors import InvalidConfig
from topicmap.names import matches

RULES = """
# devices say what they are
allow user alice publish devices/%c/#
allow user alice subscribe devices/%c/commands
deny all subscribe secret/#
allow all subscribe public/+/state
allow anonymous publish public/in
deny all all $SYS/#
allow user root all #
allow user root subscribe $SYS/#
"""


@pytest.mark.parametrize(
    ("user", "client", "name", "line"),
    [
        ("alice", "d1", "devices/d1/state", 3),
        ("alice", "d1", "devices/d1", 3),
        ("alice", "d1", "devices/d2/state", -1),
        ("bob", "d1", "devices/d1/state", -1),
        ("", "d1", "public/in", 7),
        ("alice", "d1", "public/in", -1),
        ("root", "x", "anything/at/all", 9),
        ("root", "x", "$SYS/a", -8),
        ("alice", "+", "devices/+/state", -1),
        ("alice", "#", "devices/x", -1),
        ("alice", "", "devices//state", -1),
        ("alice", "d1/state", "devices/d1/state/x", -1),
    ],
)
def test_the_first_rule_that_applies_decides_what_is_published(user: str, client: str, name: str, line: int) -> None:
    verdict = parse_acl(RULES).publish(user, client, name)
    assert (verdict.allowed, verdict.line) == (line > 0, abs(line) if line != -1 else 0)


@pytest.mark.parametrize(
    ("user", "client", "filter", "allowed"),
    [
        ("alice", "d1", "devices/d1/commands", True),
        ("alice", "d1", "devices/+/commands", False),
        ("alice", "+", "devices/+/commands", False),
        ("alice", "d1", "devices/d1/#", False),
        ("bob", "b", "public/x/state", True),
        ("bob", "b", "public/+/state", True),
        ("bob", "b", "public/#", False),
        ("root", "r", "everything/#", True),
        ("root", "r", "#", False),  # it would show secret/#
        ("root", "r", "+/x", False),
        ("root", "r", "secret", False),
        ("root", "r", "$SYS/#", False),  # denied before it is allowed
    ],
)
def test_a_filter_is_allowed_only_with_every_name_that_it_can_match(
    user: str, client: str, filter: str, allowed: bool
) -> None:
    assert parse_acl(RULES).subscribe(user, client, filter).allowed is allowed


def test_two_filters_for_the_same_names_have_the_same_rights() -> None:
    assert parse_acl("allow all subscribe +/#").subscribe("u", "c", "#").allowed
    assert parse_acl("allow all subscribe #").subscribe("u", "c", "+/#").allowed
    assert not parse_acl("allow all subscribe +/+/#").subscribe("u", "c", "#").allowed


def test_without_a_rule_the_answer_is_no() -> None:
    empty = parse_acl("")
    assert not empty.publish("root", "c", "a").allowed
    assert not empty.subscribe("root", "c", "a").allowed


LEVELS = st.sampled_from(["a", "b", "", "$s", "é"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(["a", "b", "", "+", "$s"]), min_size=1, max_size=4))
    return "/".join(parts + (["#"] if draw(st.booleans()) else []))


@given(filters(), filters(), NAMES)
def test_a_filter_is_judged_by_the_names_that_it_matches(pattern: str, filter: str, name: str) -> None:
    assume(filter and pattern)
    allowing = parse_acl(f"allow all all {pattern}")
    denying = parse_acl(f"deny all all {pattern}\nallow all all #\nallow all all $s/#")
    assert allowing.publish("u", "c", name).allowed == matches(pattern, name)
    assert denying.publish("u", "c", name).line == (1 if matches(pattern, name) else 3 if name[:1] == "$" else 2)
    if matches(filter, name):
        if allowing.subscribe("u", "c", filter).allowed:
            assert matches(pattern, name)
        if matches(pattern, name):
            assert denying.subscribe("u", "c", filter).line == 1


@pytest.mark.parametrize(
    "line",
    [
        "allow",
        "permit all publish a",
        "allow alice publish a",
        "allow user alice",
        "allow user alice publish",
        "allow all write a",
        "allow all publish a b",
        "allow all publish a/#/b",
        "allow all publish x%c/a",
        "allow all publish a+",
    ],
)
def test_a_line_that_is_no_rule_is_named(line: str) -> None:
    with pytest.raises(InvalidConfig, match="line 2"):
        parse_acl("# first\n" + line)


@pytest.mark.parametrize("hostile", ["", "+", "#", "a/b"])
def test_no_id_gets_round_a_denial(hostile: str) -> None:
    acl = parse_acl("deny all all d/%c/#\nallow all all #")
    assert not acl.publish("u", hostile, "d/a/b").allowed
    assert not acl.subscribe("u", hostile, "d/+/b").allowed


def test_no_id_opens_the_systems_topics() -> None:
    assert not parse_acl("allow all all %c/#").subscribe("u", "$SYS", "$SYS/#").allowed
    assert parse_acl("allow all all d/%c/#").subscribe("u", "$SYS", "d/$SYS/#").allowed


GROUPS = """
allow group operators all $SYS/#
deny user bob publish plant/1/#
allow group fitters publish plant/#
group operators alice carol
group fitters bob
group fitters dave alice
"""


@pytest.mark.parametrize(
    ("user", "name", "line"),
    [
        ("alice", "$SYS/a", 2),
        ("bob", "$SYS/a", 0),
        ("", "$SYS/a", 0),
        ("operators", "$SYS/a", 0),
        ("bob", "plant/1/x", -3),
        ("bob", "plant/2/x", 4),
        ("alice", "plant/1/x", 4),
        ("dave", "plant/1/x", 4),
        ("carol", "plant/1/x", 0),
    ],
)
def test_a_rule_about_a_group_is_about_its_users_wherever_they_are_named(user: str, name: str, line: int) -> None:
    rules = parse_acl(GROUPS)
    for _ in range(2):  # also when they are kept
        verdict = rules.publish(user, "c", name)
        assert (verdict.allowed, verdict.line) == (line > 0, abs(line))


def test_a_group_that_is_not_there_or_empty_is_an_error() -> None:
    for text in ("allow group nobody all #", "group empty", "group", "allow group"):
        with pytest.raises(InvalidConfig, match="line 1"):
            parse_acl(text)


def test_rules_and_members_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.access.acl.RULES_MAX", 3)
    monkeypatch.setattr("penstock.access.acl.MEMBERS_MAX", 3)
    parse_acl("allow all all a\n" * 3 + "group g a b c\n")
    with pytest.raises(InvalidConfig, match=r"line 4.*at most 3 rules"):
        parse_acl("allow all all a\n" * 4)
    with pytest.raises(InvalidConfig, match=r"line 2.*at most 3 members"):
        parse_acl("group g a b c\ngroup h d\n")


USERS = st.sampled_from(["a", "b", "c", ""])
WHO = st.sampled_from(["all", "anonymous", "user a", "user b", "group g", "group h"])


@given(
    st.lists(st.tuples(st.sampled_from(["allow", "deny"]), WHO, st.sampled_from(["x", "+", "y"])), max_size=8),
    USERS,
    st.sampled_from(["x", "y"]),
)
def test_looking_rules_up_finds_what_going_through_them_finds(
    rules: list[tuple[str, str, str]], user: str, name: str
) -> None:
    text = "group g a b\ngroup h b c\n" + "".join(f"{verdict} {who} all {one}\n" for verdict, who, one in rules)
    about = {"all": "abc", "anonymous": "", "user a": "a", "user b": "b", "group g": "ab", "group h": "bc"}
    expected = (False, 0)
    for number, (verdict, who, pattern) in enumerate(rules, 3):
        applies = who == "all" or (user in about[who] if user else who == "anonymous")
        if applies and pattern in ("+", name):
            expected = (verdict == "allow", number)
            break
    acl = parse_acl(text)
    assert tuple(acl.publish(user, "c", name)) == expected


@pytest.mark.parametrize(
    ("name", "lines"), [("area7/x", [8, 1002]), ("other", [1002]), ("#", [1001, 1002]), ("+/x", [1001, 1002])]
)
def test_of_very_many_rules_those_alone_are_looked_at_that_may_speak_of_a_name(name: str, lines: list[int]) -> None:
    text = "".join(f"allow all all area{number}/#\n" for number in range(1000))
    acl = parse_acl(f"{text}deny all all secret/#\nallow user u all %u/#\n")
    assert [rule.line for rule in acl._rules_for("subscribe", "u", name)] == lines


@pytest.mark.parametrize(
    ("user", "client", "name", "allowed"),
    [
        ("auditor", "x", "audit", True),
        ("auditor", "x", "billing", False),
        ("alice", "d1", "d1", True),
        ("alice", "d1", "d2", False),
        ("alice", "+", "d2", False),
        ("root", "x", "billing", True),
        ("reader", "x", "billing", False),
    ],
)
def test_a_position_needs_a_right_of_its_own(user: str, client: str, name: str, allowed: bool) -> None:
    rules = """
allow user auditor position audit
allow all subscribe #
allow user alice position %c
allow user root all #
"""
    assert parse_acl(rules).position(user, client, name).allowed is allowed


LEVELS = st.sampled_from(["a", "b", "", "+", "%c", "%u", "$x"])
LINES = st.builds(
    lambda verdict, who, action, levels, deep: f"{verdict} {who} {action} {'/'.join([*levels, *deep]) or '#'}",
    st.sampled_from(["allow", "deny"]),
    st.sampled_from(["all", "anonymous", "user u", "user v", "group g", "group h"]),
    st.sampled_from(["publish", "subscribe", "position", "all"]),
    st.lists(LEVELS, max_size=3),
    st.sampled_from([[], ["#"]]),
)
MEMBERS = "group g u v\ngroup h u\n"


@given(
    lines=st.lists(LINES, max_size=12),
    user=st.sampled_from(["u", "v", "w", ""]),
    client=st.sampled_from(["a", "+", "$x", ""]),
    filter=st.lists(st.sampled_from(["a", "b", "", "+", "u", "$x"]), min_size=1, max_size=3).map("/".join),
    deep=st.sampled_from(["", "/#"]),
)
def test_the_first_rule_decides_that_would_decide_alone(
    lines: list[str], user: str, client: str, filter: str, deep: str
) -> None:
    assume(filter + deep)
    acl = parse_acl(MEMBERS + "\n".join(lines))
    actions = ["subscribe"] if "+" in filter or deep else ["publish", "position", "subscribe"]
    for action in actions:
        alone = (
            getattr(parse_acl("\n" * at + line + "\n" + MEMBERS), action)(user, client, filter + deep)
            for at, line in enumerate(lines, 1 + MEMBERS.count("\n"))
        )
        expected = next((one.allowed for one in alone if one.line), False)
        assert getattr(acl, action)(user, client, filter + deep).allowed is expected


CLIENTS = """
deny all client admin-*
allow user alice client d1-*
allow all client %u
group fleet bob carol
allow group fleet client van-*
allow anonymous client guest-*
allow all all #
"""


@pytest.mark.parametrize(
    ("user", "client", "line"),
    [
        ("alice", "d1-7", 3),
        ("alice", "d2-7", 0),
        ("alice", "alice", 4),
        ("alice", "van-1", 0),
        ("bob", "d1-7", 0),
        ("bob", "van-1", 6),
        ("", "guest-1", 7),
        ("bob", "guest-1", 0),
        ("", "", 0),
        ("alice", "admin-1", -2),
    ],
)
def test_rules_say_who_may_use_which_client_id(user: str, client: str, line: int) -> None:
    assert parse_acl(CLIENTS).client(user, client) == (line > 0, abs(line))


def test_without_a_rule_about_client_ids_everybody_may_use_all() -> None:
    assert parse_acl("allow all all #").client("alice", "x") == (True, 0)
    assert parse_acl("deny all client x").client("alice", "y") == (False, 0)


def test_a_rule_about_client_ids_says_nothing_of_names() -> None:
    rules = parse_acl("allow all client a")
    assert not rules.publish("alice", "a", "a").allowed
    assert not rules.subscribe("alice", "a", "a").allowed


@pytest.mark.parametrize(
    "line", ["allow all client #", "allow all client %c", "allow all client", "allow all client a b"]
)
def test_a_bad_rule_about_client_ids_is_named_by_its_line(line: str) -> None:
    with pytest.raises(InvalidConfig, match="line 2"):
        parse_acl(f"\n{line}")
