"""Legal names and filters, and the plain matcher, by the rules of MQTT 4.7 and 4.8.2."""

from __future__ import annotations

import itertools

import pytest

from topicmap.names import (
    LEVELS_MAX,
    NAME_BYTES_MAX,
    SHARE_BYTES_MAX,
    InvalidName,
    Share,
    check_filter,
    check_name,
    covers,
    device_name,
    first_match,
    is_other_device,
    is_reserved,
    is_share,
    legal_filter,
    matches,
    overlaps,
    parse_share,
    plain_filter,
    quoted,
    weight,
)

LEGAL_NAMES = [
    "a",
    "/",
    "//",
    "/a",
    "a/",
    "a b",
    "$SYS/x",
    "温度/1",
    "a%b",
    "Δ",
    "a/" * 127 + "z",
    "x" * NAME_BYTES_MAX,
]
ILLEGAL_NAMES = [
    "",
    "a\x00b",
    "a\nb",
    "\x7f",
    "\x85",
    "\ud800",
    "a" * (NAME_BYTES_MAX + 1),
    "é" * (NAME_BYTES_MAX // 2 + 1),
    "/" * LEVELS_MAX,
]


@pytest.mark.parametrize("name", LEGAL_NAMES)
def test_a_legal_name_is_taken_as_name_and_as_filter(name: str) -> None:
    check_name(name)
    check_filter(name)


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_an_illegal_string_is_refused_as_name_and_as_filter(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)
    with pytest.raises(InvalidName):
        check_filter(name)


@pytest.mark.parametrize("name", ["+", "#", "a/+", "a/#", "a+", "a#b"])
def test_a_name_holds_no_wildcard(name: str) -> None:
    with pytest.raises(InvalidName, match=r"MQTT-3\.3\.2-2"):
        check_name(name)


@pytest.mark.parametrize("filter", ["+", "#", "+/#", "+/+/+", "/+", "+/", "a/+/b", "a/#", "/#", "$SYS/#"])
def test_wildcards_stand_where_they_may(filter: str) -> None:
    check_filter(filter)


@pytest.mark.parametrize("filter", ["#/a", "a#", "#a", "a/#/b", "a+", "+a", "a/b+/c", "##", "++", "+#", "a/##"])
def test_wildcards_elsewhere_are_refused(filter: str) -> None:
    with pytest.raises(InvalidName, match=r"MQTT-4\.7\.1"):
        check_filter(filter)


MATCHING = [
    ("a/b", "a/b"),
    ("+", "a"),
    ("#", "a"),
    ("#", "/"),
    ("#", "a/b/c"),
    ("a/#", "a"),
    ("a/#", "a/"),
    ("a/#", "a/b/c"),
    ("a/+", "a/"),
    ("+/+", "/x"),
    ("/+", "/x"),
    ("+/b/#", "a/b"),
    ("+/b/#", "a/b/c/d"),
    ("$SYS/#", "$SYS/a"),
    ("$SYS/+", "$SYS/a"),
    ("a/$x/+", "a/$x/y"),
    ("a/#", "a/$x"),
]
NOT_MATCHING = [
    ("a/b", "a/b/"),
    ("a/b", "/a/b"),
    ("a/b", "A/b"),
    ("a", "a/"),
    ("a/", "a"),
    ("+", "a/b"),
    ("+", "/x"),
    ("a/+", "a"),
    ("a/+", "a/b/c"),
    ("a/b/#", "a"),
    ("ab/#", "a"),
    ("#", "$SYS"),
    ("#", "$SYS/a"),
    ("+/a", "$SYS/a"),
    ("+", "$"),
    ("+/#", "$SYS/a"),
]


@pytest.mark.parametrize(("filter", "name"), MATCHING)
def test_a_filter_matches(filter: str, name: str) -> None:
    assert matches(filter, name)


@pytest.mark.parametrize(("filter", "name"), NOT_MATCHING)
def test_a_filter_does_not_match(filter: str, name: str) -> None:
    assert not matches(filter, name)


def test_a_shared_subscription_has_a_group_and_a_filter() -> None:
    assert parse_share("$share/g/a/+") == Share("g", "a/+")
    assert parse_share("$share/g//") == Share("g", "/")
    assert parse_share("a/$share/g/b") is None
    assert parse_share("$shared/g/b") is None


@pytest.mark.parametrize(
    "filter", ["$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/#/a", "$share/g/$share/h"]
)
def test_a_malformed_shared_subscription_is_refused(filter: str) -> None:
    with pytest.raises(InvalidName):
        parse_share(filter)


@pytest.mark.parametrize("prefix", ["$share/", "$oshare/"])
@pytest.mark.parametrize("group", ["g", "温度", "$share", "g h", "x" * SHARE_BYTES_MAX])
def test_a_shared_subscription_with_a_legal_group_may_be_subscribed_to(prefix: str, group: str) -> None:
    assert legal_filter(f"{prefix}{group}/a/+") == "a/+"


@pytest.mark.parametrize("group", ["", "g\x07", "\x7f", "\ud800", "x" * (SHARE_BYTES_MAX + 1), "é" * 513])
def test_the_name_of_a_group_obeys_the_rules_of_a_filters_text(group: str) -> None:
    with pytest.raises(InvalidName, match="share name"):
        legal_filter(f"$share/{group}/a")


@pytest.mark.parametrize(
    "filter", ["a#", "$share/g/a#", "$share/g", "", "a\nb", "$share/g/" + "x" * (NAME_BYTES_MAX + 1)]
)
def test_what_is_no_filter_may_not_be_subscribed_to_shared_or_not(filter: str) -> None:
    with pytest.raises(InvalidName):
        legal_filter(filter)
    assert legal_filter("a/#") == "a/#"


FILTERS = [
    "/".join(levels + end)
    for count in (1, 2, 3)
    for levels in itertools.product(("a", "b", "+", "$s"), repeat=count)
    if "$s" not in levels[1:]
    for end in ((), ("#",))
] + ["#"]
NAMES = [
    "/".join(levels) for count in (1, 2, 3, 4) for levels in itertools.product(("a", "b", "c", "$s"), repeat=count)
]


def test_filters_overlap_where_a_name_matches_both_and_cover_where_every_name_does() -> None:
    found = {filter: {name for name in NAMES if matches(filter, name)} for filter in FILTERS}
    for first, second in itertools.product(FILTERS, repeat=2):
        assert overlaps(first, second) == bool(found[first] & found[second]), (first, second)
        assert covers(first, second) == (found[second] <= found[first]), (first, second)


@pytest.mark.parametrize(
    ("filter", "name", "first"),
    [
        ("a/+/x", "a/1/x", "a/1/x"),
        ("a/+/x", "a/1/b", "a/1/x"),  # ahead, in the same subtree
        ("a/+/x/+", "a/1/b", "a/1/x/"),
        ("a/+/x/#", "a/1/b", "a/1/x"),  # "a/1/x" itself matches
        ("a/+/x/#", "a/1/x!", "a/1/x/"),
        ("a/+/x", "a/1/y", "a/10"),  # behind the subtree "a/1/"
        ("a/+/x", "a/1/x/y", "a/10"),
        ("a/+", "a/1/x", "a/10"),
        ("+/+/x", "a/1/y", "a/10"),
        ("a/+/x", "a/1", "a/1\0"),  # "a/1!/x" comes before "a/1/x"
        ("a/b/+", "a/b", "a/b/"),
        ("a/b/+", "a", "a/"),
        ("a/+", "Z", "a/"),
        ("a/+", "b", None),
        ("a/b/+", "a/c", None),
        ("+/x", "$SYS/a", "%"),
        ("$SYS/+/x", "$SYS/a/b", "$SYS/a/x"),
    ],
)
def test_a_search_in_order_goes_on_where_the_next_match_may_be(filter: str, name: str, first: str | None) -> None:
    assert first_match(filter, name) == first


def test_an_ordered_share_has_a_prefix_of_its_own() -> None:
    assert parse_share("$oshare/g/a/#") == Share("g", "a/#", is_ordered=True)
    assert parse_share("$share/g/a/#") == Share("g", "a/#")
    assert parse_share("$oshares/g/a") is None
    assert [is_share(one) for one in ("$share/", "$oshare/x", "$shares", "a/$share/")] == [True, True, False, False]


def test_the_filter_of_a_share_decides_which_messages_are_meant() -> None:
    assert [plain_filter(one) for one in ("$share/g//a", "$oshare/g/#", "a/b")] == ["/a", "#", "a/b"]


def test_only_names_of_the_first_levels_sys_and_events_are_reserved() -> None:
    reserved = [
        is_reserved(one) for one in ("$SYS", "$SYS/", "$SYS/a", "$events/a", "$SYSTEM/a", "a/$SYS", "$sys/a", "")
    ]
    assert reserved == [True, True, True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("filter", "counts"),
    [("a", 1), ("x" * 1024, 1), ("x" * 1025, 2), ("é" * 512, 1), ("é" * 513, 2), ("x" * NAME_BYTES_MAX, 64)],
)
def test_a_filter_counts_once_for_each_1024_bytes(filter: str, counts: int) -> None:
    assert weight(filter) == counts


def test_a_message_quotes_the_beginning_of_a_long_name() -> None:
    assert quoted("a\n") == repr("a\n")
    assert quoted("x" * 100) == repr("x" * 100)
    assert quoted("x" * 60_000) == repr("x" * 100 + "…")


def test_a_device_has_a_name_of_its_own_and_no_filter_of_another_matches_it() -> None:
    assert device_name("d 7") == "$p2p/d 7"
    for client_id in ("", "a/b", "+", "#", "\n"):
        with pytest.raises(InvalidName):
            device_name(client_id)
    filters = [
        "#",
        "+/d7",
        "$p2p",
        "$p2p/#",
        "$p2p/+",
        "$p2p/d8",
        "$p2p/d7/x",
        "$p2p/d7",
        "$p2px/d8",
        "p2p/d8",
        "$P2P/d8",
        "$reply/#",
        "$reply/+",
        "$reply/d8",
        "$reply/d7x",
        "$reply/d7",
        "$reply/d7/#",
    ]
    others = [filter for filter in filters if is_other_device(filter, "d7")]
    assert others == ["$p2p", "$p2p/#", "$p2p/+", "$p2p/d8", "$p2p/d7/x", *filters[-6:-2]]
    for filter in filters:
        is_for_other = any(matches(filter, device_name(client)) for client in ("d8", "d9"))
        assert not is_for_other or filter in others
