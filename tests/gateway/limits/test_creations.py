"""How many topics clients make."""

from __future__ import annotations

from gateway.limits.creations import Creations
from gateway.limits.quotas import Quotas
from gateway.settings import GatewaySettings
from penstock.errors import Busy
from penstock.protocol.requests.topics import DescribeTopic


def made(clients: int = 2, users: int = 3) -> tuple[Creations, Quotas]:
    quotas = Quotas()
    settings = GatewaySettings(client_topics_per_min_max=clients, user_topics_per_min_max=users)
    return Creations(settings, quotas), quotas


def said(creations: Creations, *who: str, now: float = 0.0) -> str:
    """The limit that one more topic breaks, empty if it breaks none."""
    client_id, user, address = who
    result = creations.take("t", client_id, user, address, now)
    if isinstance(result, Busy):
        return result.message
    assert result == DescribeTopic("t", create=True, is_anonymous=not user)
    return ""


def test_a_client_makes_so_many_topics_at_once_and_then_one_after_the_other() -> None:
    creations, quotas = made()
    assert [said(creations, "c", "u", "") for _ in range(2)] == ["", ""]
    assert said(creations, "c", "u", "") == "the limit client_topics_per_min_max is reached"
    assert quotas.refused["client_topics_per_min_max"] == 1
    assert said(creations, "c", "u", "", now=29.0) != ""
    assert said(creations, "c", "u", "", now=30.0) == ""


def test_all_clients_of_a_user_share_a_limit_and_what_is_refused_counts_for_neither() -> None:
    creations, quotas = made()
    assert [said(creations, client, "u", "") for client in ("a", "a", "b")] == ["", "", ""]
    assert said(creations, "b", "u", "") == "the limit user_topics_per_min_max is reached"
    assert quotas.refused["user_topics_per_min_max"] == 1
    assert said(creations, "b", "v", "") == "", "the client's own limit was not touched"
    assert said(creations, "c", "v", "") == ""


def test_clients_without_a_user_name_share_the_limit_of_their_address() -> None:
    creations, _ = made()
    assert [said(creations, str(n), "", "10.0.0.1") for n in range(3)] == ["", "", ""]
    assert said(creations, "other", "", "10.0.0.1") == "the limit user_topics_per_min_max is reached"
    assert said(creations, "other", "", "10.0.0.2") == ""
    assert said(creations, "other", "10.0.0.1", "") == "", "a user of that name is another"


def test_a_limit_of_0_is_none() -> None:
    creations, _ = made(clients=0, users=0)
    assert {said(creations, "c", "", "10.0.0.1") for _ in range(10_000)} == {""}
