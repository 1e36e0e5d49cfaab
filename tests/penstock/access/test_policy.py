"""The policy: who may do what to which topic and group, and the words that mend a refusal."""

from __future__ import annotations

import pytest

from penstock.access.acl import ADMIN, CONSUME, GROUP, NATIVE, PRODUCE, VIEW, parse_acl
from penstock.access.policy import (
    ANONYMOUS,
    AT_OPEN_PORT,
    CERTIFICATE,
    CLUSTER,
    HOW,
    LOCAL,
    PASSWORD,
    SCRAM,
    SERVICE,
    SIGNATURE,
    TOKEN,
    UNPROVEN,
    Identity,
    Policy,
)

RULES = """
group operators ada
deny  group operators admin secret-*
allow group operators admin *
allow user billing produce orders-*
allow user billing consume orders-*
allow user billing group   billing-*
allow all          group   %u-own
allow user auditor view    *
allow anonymous    produce inbox
"""
ALL = "produce consume group view admin"


@pytest.mark.parametrize(
    ("user", "name", "actions"),
    [
        ("ada", "orders-1", ALL),
        ("ada", CLUSTER, ALL),
        ("ada", "secret-1", "produce consume group view"),
        ("billing", "orders-1", "produce consume"),
        ("billing", "billing-x", "group"),
        ("billing", "billing-own", "group"),
        ("billing", "orders", ""),
        ("billing", CLUSTER, ""),
        ("auditor", "orders-1", "view"),
        ("auditor", CLUSTER, "view"),
        ("stranger", "stranger-own", "group"),
        ("stranger", "orders-1", ""),
        ("", "inbox", "produce"),
        ("", "-own", ""),
        ("", CLUSTER, ""),
    ],
)
def test_the_first_rule_that_applies_decides_and_admin_includes_the_rest(user: str, name: str, actions: str) -> None:
    identity = Identity(user, PASSWORD if user else ANONYMOUS)
    policy = Policy(parse_acl(RULES))
    assert " ".join(one for one in NATIVE if policy.may(identity, one, name)) == actions


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("rules", [None, "", "allow all all #"])
def test_what_nobody_has_written_a_rule_for(how: str, rules: str | None) -> None:
    policy = Policy(None if rules is None else parse_acl(rules))
    user = "" if how in (ANONYMOUS, LOCAL) else "x"
    told = [one for one in NATIVE if policy.may(Identity(user, how), one, "t")]
    if how in (SERVICE, LOCAL):
        assert told == list(NATIVE)
    elif rules is None and how in (PASSWORD, SCRAM, TOKEN, CERTIFICATE, SIGNATURE):
        assert told == [PRODUCE, CONSUME, GROUP, VIEW]
    else:
        assert told == []  # rules of MQTT say nothing of native ports


@pytest.mark.parametrize(
    ("policy", "identity", "administers", "views"),
    [
        (Policy(parse_acl(RULES)), Identity("ada", SCRAM), True, True),
        (Policy(parse_acl(RULES)), Identity("auditor", SCRAM), False, True),
        (Policy(parse_acl(RULES)), Identity("billing", SCRAM), False, False),
        (Policy(parse_acl(RULES)), UNPROVEN, False, False),
        (Policy(parse_acl(RULES)), AT_OPEN_PORT, True, True),
        (Policy(), Identity("ada", SCRAM), False, True),
    ],
)
def test_rights_to_the_cluster(policy: Policy, identity: Identity, administers: bool, views: bool) -> None:
    assert (policy.may(identity, ADMIN), policy.may(identity, VIEW)) == (administers, views)


@pytest.mark.parametrize("action", NATIVE)
@pytest.mark.parametrize("name", [CLUSTER, "orders-1"])
@pytest.mark.parametrize("rules", ["", None])
def test_the_line_that_a_refusal_names_allows_what_was_refused(action: str, name: str, rules: str | None) -> None:
    identity, policy = Identity("eve", TOKEN), Policy(None if rules is None else parse_acl(rules))
    refusal = policy.refusal(identity, (action,), name)
    assert "eve" in refusal.message
    assert "acl_file" in refusal.hint
    assert Policy(parse_acl(refusal.hint.rpartition(": ")[2])).may(identity, action, name)


def test_a_refusal_names_each_right_of_which_one_will_do() -> None:
    refusal = Policy().refusal(Identity("ada", SCRAM), (CONSUME, PRODUCE, VIEW), "orders")
    assert refusal.hint.endswith(": allow user ada consume orders (or produce or view in place of consume)")


def test_who_has_not_logged_in_is_told_to() -> None:
    assert "log in" in Policy().refusal(UNPROVEN, (VIEW,)).hint


@pytest.mark.parametrize("line", ["allow all produce #", "allow all group a/+", "allow all admin %c", "allow all view"])
def test_patterns_of_native_rules_are_text(line: str) -> None:
    with pytest.raises(Exception, match="line 1 of the access rules"):
        parse_acl(line)


def test_rules_of_native_ports_say_nothing_of_mqtt() -> None:
    acl = parse_acl("allow all admin *\nallow all produce *")
    assert not acl.publish("x", "c", "a").allowed
    assert not acl.subscribe("x", "c", "a").allowed
    assert acl.native("x", GROUP, "g").allowed
    assert not acl.has_client_rules
    assert [acl.native("x", one, "t").line for one in (ADMIN, PRODUCE)] == [1, 1]
