"""How many topics the messages of native clients make, at a broker behind a guard."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.lead import BrokerSession
from broker.topics.quota import TopicQuota
from penstock.access.acl import parse_acl
from penstock.access.authority import Authority, Known
from penstock.access.passwords import Users
from penstock.access.policy import SCRAM, SERVICE, UNPROVEN, Identity
from penstock.errors import Busy
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.messages import Appended, AppendRuns
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, TopicDetail
from penstock.protocol.runs import checksum_of, encode_runs, run_of
from penstock.protocol.wire import FrameReader
from penstock.service.audit import Audit
from penstock.service.frame_connection import Peer
from penstock.service.guard import Asker, Guard, GuardedSession
from tests.broker.broker_rig import Rig

RULES = "allow user u produce *\nallow user v produce *\nallow user boss admin *\nallow anonymous produce *\n"
U, V, BOSS = [Identity(user, SCRAM) for user in ("u", "v", "boss")]


class Port:
    """A broker at a port that asks for logins, or not."""

    def __init__(self, asks: bool = True, **settings: Any) -> None:
        authority = Authority(lambda: bytes(32), lambda: 0, bytes(32))
        if asks:
            authority.set_users(Users({user: Users({}).decoy(user) for user in ("u", "v", "boss")}))
            authority.set_acl(parse_acl(RULES))
        self.guard = Guard(authority, Audit(lambda: 0, lambda: 0.0), lambda: 0.0, lambda: 0.0)
        self.rig = Rig(asker=self.guard.asker, **settings)
        self.peers = 0

    def connect(self, who: Identity = UNPROVEN, host: str = "192.0.2.1") -> GuardedSession:
        self.peers += 1
        inner = BrokerSession(self.rig.lead, self.peers, ends_rounds=False)
        session = self.guard.watch(inner, Peer(self.peers, f"{host}:{self.peers}"), FrameReader(), lambda seconds: None)
        if who is not UNPROVEN:
            session.become(Known(who))
        return session

    def ask(self, session: GuardedSession, request: Request) -> Result:
        results: list[Result] = []
        session.submit(request, results.append)
        self.rig.sync()
        assert len(results) == 1
        return results[0]

    def made(self, session: GuardedSession, *topics: str) -> str:
        """Sends a message to each of these topics; returns what those that were refused were told."""
        body = encode_runs([run_of(encode_message(Message(topic, b"x"))) for topic in topics])
        answer = self.ask(session, AppendRuns(len(topics), checksum_of(body), body))
        assert isinstance(answer, Appended)
        assert {one.code for one in answer.refused} <= {Busy.code}
        return ", ".join([f"{topics[one.at]}: {one.message}" for one in answer.refused])


def test_a_user_makes_so_many_topics_over_all_its_connections_and_learns_what_helps() -> None:
    port = Port(user_topics_per_min_max=3)
    first, second = port.connect(U), port.connect(U, "192.0.2.2")
    assert port.made(first, "a", "b") == ""
    refused = port.made(second, "c", "a", "d")
    assert refused == (
        "d: messages of user u make more than 3 topics in a minute (user_topics_per_min_max): "
        "`penstock topic create` makes others"
    ), "the others are stored"
    assert isinstance(port.ask(first, DescribeTopic("d", create=True)), Busy), "it is no way round"
    assert port.made(port.connect(V), "d") == ""
    assert isinstance(port.ask(port.connect(BOSS), CreateTopic("e")), TopicDetail)
    assert port.made(first, "d", "e") == "", "they are there"
    port.rig.clock.now += 20
    assert port.made(first, "f") == ""
    assert port.made(first, "g") != ""


def test_clients_without_a_user_name_share_the_limit_of_their_address_and_leave_topics_to_others() -> None:
    port = Port(user_topics_per_min_max=2, topics_max=5, topics_anonymous_share=0.6)
    assert port.made(port.connect(), "a", "b") == ""
    assert "messages of address 192.0.2.1 make more than 2 topics" in port.made(port.connect(), "c")
    far = port.connect(host="192.0.2.9")
    assert port.made(far, "c") == ""
    assert "topics_anonymous_share" in port.made(far, "d")
    assert port.made(port.connect(U), "d", "e") == ""
    assert "the limit topics_max is reached; `penstock topic delete` makes room" in port.made(port.connect(V), "f")


@pytest.mark.parametrize(("asks", "who"), [(True, Identity("gateway-a", SERVICE)), (False, UNPROVEN)])
def test_services_and_open_ports_have_no_limit(asks: bool, who: Identity) -> None:
    port = Port(asks, user_topics_per_min_max=1)
    assert port.made(port.connect(who), *"abcdef") == ""


def test_names_that_cannot_be_topics_cost_nothing_and_0_is_no_limit() -> None:
    port = Port(user_topics_per_min_max=1)
    session = port.connect(U)
    assert not isinstance(port.ask(session, DescribeTopic("no topic!", create=True)), TopicDetail)
    assert port.made(session, "a") == ""
    quota = TopicQuota(0, lambda: Asker("u", "192.0.2.1"))
    assert {quota.take(0) for _ in range(10_000)} == {False}
