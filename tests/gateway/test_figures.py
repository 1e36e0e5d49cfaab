"""What a gateway counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rig import Gateway

from gateway.figures import Figures
from gateway.limits.counters import METRICS
from gateway.login.access import Access
from gateway.login.attempts import CAUSES
from gateway.login.auth import Credentials, Identity, Peer
from gateway.login.verifier import Bell, Verifier
from penstock.access.passwords import Users
from penstock.protocol.requests.sessions import KeepSessions
from penstock.service.metrics import expose
from penstock.world import real_world

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGE = (GUIDE / "metrics.md").read_text()


def figures(gateway: Gateway, **more: Any) -> Figures:
    return Figures(gateway.parts, **more)


def test_figures_follow_what_happens() -> None:
    gateway = Gateway(subscriptions_max=1)
    client = gateway.connect("c", level=5)
    client.subscribe("a/#", "b/#")
    client.publish("a/b", b"x")
    read = figures(gateway).read()
    assert read["gateway_connections"] == read["gateway_sessions"] == read["gateway_subscriptions"] == 1
    assert read["gateway_published_total"] == read["gateway_delivered_total"] == 1
    assert read["gateway_refused_subscriptions_max_total"] == 1
    assert read['gateway_publications_in_total{listener="tcp"}'] == 1
    assert figures(gateway).sums()["gateway_publications_in_total"] == 1


def test_latencies_are_counted_from_the_connection_to_the_delivery() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5)
    client.subscribe("a/#")
    client.publish("a/b", b"x")
    read = figures(gateway).read()
    for family in ("connect", "publish", "delivery", "end_to_end"):
        assert read[f"gateway_{family}_seconds_count"] == 1, family
        assert read[f'gateway_{family}_seconds_bucket{{le="0.0005"}}'] == 1, family
    gateway.pass_time(3)
    late = gateway.connect("d", level=5)
    late.subscribe("b/#")
    assert figures(gateway).read()["gateway_connect_seconds_count"] == 2


def test_a_gateway_that_may_have_lost_its_sessions_shows_it_for_as_long_as_it_stores_nothing() -> None:
    gateway = Gateway()
    gateway.pass_time(1)
    held = [figures(gateway).read()["gateway_held"]]
    gateway.broker.holds = (KeepSessions,)
    gateway.lease_recovery.doubt()
    gateway.round()
    held.append(figures(gateway).read()["gateway_held"])
    gateway.broker.let_go()
    gateway.round()
    held.append(figures(gateway).read()["gateway_held"])
    assert held == [0, 1, 0]


def test_a_family_is_on_the_page_once_with_and_without_labels_never_both() -> None:
    page = expose(figures(Gateway()).read(), openmetrics=True)
    families = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    gateway = Gateway()
    gateway.connect()
    read = figures(gateway).read()
    assert not {name.partition("{")[0] for name in read if "{" in name} & {name for name in read if "{" not in name}


def test_the_metrics_page_names_every_figure() -> None:
    named = [*figures(Gateway()).sums(), *METRICS.values()]
    assert [name for name in named if f"`{name}`" not in PAGE] == []


def test_refused_and_turned_away_logins_are_counted() -> None:
    gateway = Gateway()
    access = Access("nobody", 0, 0, b"key", lambda: None, gateway.clock.monotonic)
    verifier = Verifier(access, real_world(), Bell(), "", "", on_rules=lambda: None, on_users=lambda: None)
    shown, answers = figures(gateway, access=access, verifier=verifier), list[Identity | int]()
    access.connect(Credentials("c", None, None, Peer("127.0.0.1")), answers.append)
    access.set_users(Users({}))
    access.connect(Credentials("c", "alice", b"x", Peer("127.0.0.1")), answers.append)
    assert answers == [0x87, 0x89]
    read = shown.read()
    assert read["gateway_logins_busy_total"] == 1
    assert read['gateway_logins_refused_total{cause="no_credentials"}'] == 1
    assert [
        name for name in read if name.startswith("gateway_logins") and f"`{name.partition('{')[0]}`" not in PAGE
    ] == []
    assert [cause for cause in CAUSES if f"`{cause}`" not in (GUIDE / "operator.md").read_text()] == []
