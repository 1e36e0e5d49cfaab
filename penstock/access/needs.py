"""The permissions that each request of the wire needs, at brokers and name servers, in one table.

A request needs one or several things, and all of them. Each names one or more actions of ``acl.NATIVE``, one of which
must be allowed, and their object: a topic, a group, or the cluster. Three words stand beside the actions:
``OPEN`` (every peer may ask), ``KNOWN`` (after a login) and ``PEER`` (services of the cluster only). Topics of retries
and dead letters are their group's. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.access.acl import ADMIN, CONSUME, GROUP, PRODUCE, VIEW
from penstock.access.policy import CLUSTER
from penstock.protocol.requests import (
    filters,
    groups,
    messages,
    pops,
    replicas,
    retries,
    routes,
    servers,
    sessions,
    shares,
    timers,
    topics,
    transactions,
)
from penstock.protocol.requests.request import Bytes, Request
from penstock.protocol.runs import topics_of_records, topics_of_runs
from topicmap.queues import (
    AUDIT_TOPIC,
    DEAD_LETTER_PREFIX,
    EVENTS_TOPIC,
    REDRIVE_PREFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
)

OPEN: Final = "open"
KNOWN: Final = "known"
PEER: Final = "peer"


class Need(NamedTuple):
    """One of ``actions`` must be allowed for ``name``.

    Attributes:
        act, about: what is done, and to what, for the audit log; empty: the request's name, and ``name``.
        goes_on: it is part of an act that began with an earlier request; one entry stands for all of it.
    """

    actions: tuple[str, ...]
    name: str = CLUSTER
    act: str = ""
    about: str = ""
    goes_on: bool = False


class Row(NamedTuple):
    """The needs of requests of one type. ``words``: the same for people. ``needs``: of one request; raises
    ``InvalidRequest`` for a body that cannot be read."""

    words: str
    needs: Callable[[Any], Sequence[Need]]


def of_topic(actions: Sequence[str], topic: str) -> Need:
    """The need of one of these actions on a topic, which may be one of the system's."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return Need((GROUP,), topic.removeprefix(prefix)) if CONSUME in actions else Need((PEER,))
    if topic in (TRACE_TOPIC, AUDIT_TOPIC) and CONSUME in actions:
        return Need((VIEW,))
    if topic == EVENTS_TOPIC and set(actions) & {CONSUME, PRODUCE}:
        return Need((PEER,))
    if topic.startswith(SYSTEM_PREFIX) or (PRODUCE in actions and topic in sessions.GATEWAYS_TOPICS):
        return Need((PEER,))
    return Need(tuple(actions), topic)


def of_group(actions: Sequence[str], group: str) -> Need:
    """The need of one of these actions on a group. The group that remembers which dead letters were sent again counts
    as the group of those."""
    return Need(tuple(actions), group.removeprefix(REDRIVE_PREFIX))


def topic_of_queue(queue: str) -> str:
    """The topic of a queue; a queue of gateways is as one of the system's."""
    topic, colon, _ = queue.rpartition(":")
    return topic if colon and not queue.startswith(("~", "$")) else SYSTEM_PREFIX


_SEEN: Final = (CONSUME, PRODUCE, VIEW)
_READ: Final = (CONSUME,)
_WRITE: Final = (PRODUCE,)
_OPEN: Final = Row("nothing", lambda _: (Need((OPEN,)),))
_PEER: Final = Row("the key of the cluster", lambda _: (Need((PEER,)),))
_VIEW: Final = Row("`view` the cluster", lambda _: (Need((VIEW,)),))
_ADMIN_WORDS: Final = "`admin` of the cluster"
_ADMIN: Final = Row(_ADMIN_WORDS, lambda _: (Need((ADMIN,)),))
_ADMIN_OF_NODE: Final = Row(_ADMIN_WORDS, lambda one: (Need((ADMIN,), about=one.node),))
_ADMIN_TOPIC: Final = Row("`admin` of the topic", lambda one: (of_topic((ADMIN,), one.topic),))
_ADMIN_GROUP: Final = Row("`admin` of the group", lambda one: (Need((ADMIN,), one.group),))
_GROUP: Final = Row("`group`", lambda one: (of_group((GROUP,), one.group),))
_SEE_GROUP: Final = Row("`group` or `view` of the group", lambda one: (of_group((GROUP, VIEW), one.group),))
_CONSUME: Final = Row("`consume` the topic", lambda one: (of_topic(_READ, one.topic),))
_CONSUME_QUEUE: Final = Row("`consume` the queue's topic", lambda one: (of_topic(_READ, topic_of_queue(one.queue)),))


def _each(actions: Sequence[str], names: Sequence[str]) -> list[Need]:
    return [of_topic(actions, topic) for topic in dict.fromkeys(names)]


def _route(one: routes.QueryRoute) -> Sequence[Need]:
    return (of_topic(_SEEN, one.topic),) if one.topic else (Need((KNOWN,)),)


def _describe(one: topics.DescribeTopic) -> Sequence[Need]:
    return (of_topic(_WRITE if one.create else _SEEN, one.topic),)


def _written_runs(body: Bytes) -> list[Need]:
    found = {topic for topic, *_ in topics_of_runs(bytes(body))}
    return _each(_WRITE, [topic.decode(errors="replace") for topic in found])


def _written_records(body: Bytes) -> list[Need]:
    return _each(_WRITE, [topic.decode(errors="replace") for topic in topics_of_records(bytes(body))])


def _ask_subscriptions(one: sessions.AskSubscriptions) -> Sequence[Need]:
    """A watch is one act, however often its client asks for further packets."""
    found = [Need((ADMIN,), act="DisconnectClient", about=id) for id in one.clients if one.disconnects]
    if one.watch_after >= 0:
        goes_on = one.watch_after > 0
        found += [Need((ADMIN,), act="WatchClient", about=id, goes_on=goes_on) for id in one.clients]
    return found or (Need((ADMIN,) if one.disconnects or one.watch_after >= 0 else (VIEW,)),)


def _join(one: groups.JoinGroup) -> Sequence[Need]:
    return [Need((GROUP,), one.group), *_each(_READ, [*one.topics, *map(topic_of_queue, one.queues)])]


def _pop(one: pops.Pop) -> Sequence[Need]:
    return (Need((GROUP,), one.group), of_topic(_READ, topic_of_queue(one.queue)))


NEEDS: Final[Mapping[type[Request], Row]] = MappingProxyType(
    {
        servers.Ping: _OPEN,
        servers.Login: _OPEN,
        servers.ReadFigures: _VIEW,
        servers.ChangeSetting: Row(_ADMIN_WORDS, lambda one: (Need((ADMIN,), about=f"{one.name} = {one.value}"),)),
        routes.RegisterBroker: _PEER,
        routes.BrokerHeartbeat: _PEER,
        routes.UnregisterBroker: _PEER,
        routes.QueryChallenge: _OPEN,
        routes.ProveBroker: _OPEN,
        routes.QueryRoute: Row("`consume`, `produce` or `view` the topic; without one, a login", _route),
        routes.QueryTopics: _VIEW,
        routes.PutConfig: Row(_ADMIN_WORDS, lambda one: (Need((ADMIN,), about=f"{one.namespace} {one.key}"),)),
        routes.QueryConfig: _VIEW,
        topics.CreateTopic: _ADMIN_TOPIC,
        topics.DescribeTopic: Row("`consume`, `produce` or `view` the topic; to create it, `produce`", _describe),
        topics.ListTopics: _VIEW,
        topics.DeleteTopic: _ADMIN_TOPIC,
        topics.ChangeTopic: _ADMIN_TOPIC,
        topics.PurgeTopic: _ADMIN_TOPIC,
        topics.AllowBroker: _ADMIN,
        topics.QueryAllowed: _VIEW,
        topics.CountTopics: _VIEW,
        messages.Append: Row("`produce` to each message's topic", lambda one: _written_records(one.body)),
        messages.AppendRuns: Row("`produce` to each message's topic", lambda one: _written_runs(one.body)),
        messages.Pull: _CONSUME_QUEUE,
        messages.QueryBounds: Row(
            "`consume`, `produce` or `view` each queue's topic",
            lambda one: _each(_SEEN, [topic_of_queue(queue) for queue in one.queues]),
        ),
        messages.SeekTime: _CONSUME_QUEUE,
        messages.FindByKey: _CONSUME,
        messages.ReadAt: Row("`consume` the cluster", lambda _: (Need(_READ),)),
        messages.ListReads: _VIEW,
        messages.TellAcknowledged: _PEER,
        messages.TellAudited: _PEER,
        filters.OpenFilters: _PEER,
        filters.CloseFilters: _PEER,
        filters.KeepFilters: _PEER,
        filters.FetchRetained: Row("`consume` the cluster", lambda _: (Need(_READ),)),
        filters.ListFilters: _VIEW,
        groups.JoinGroup: Row("`group`, and `consume` each topic", _join),
        groups.WatchGroup: _GROUP,
        groups.LeaveGroup: _GROUP,
        groups.CommitOffsets: _GROUP,
        groups.FetchOffsets: _SEE_GROUP,
        groups.ListGroups: _VIEW,
        groups.DescribeGroup: _SEE_GROUP,
        groups.HoldOffsets: _PEER,
        groups.DeleteGroup: _ADMIN_GROUP,
        groups.NoteAttempts: _GROUP,
        sessions.OpenSession: _PEER,
        sessions.SaveSessions: _PEER,
        sessions.EndSession: _PEER,
        sessions.KeepSessions: _PEER,
        sessions.WatchSessions: _PEER,
        sessions.FetchExchanges: _PEER,
        sessions.ReleaseExchanges: _PEER,
        sessions.ListSessionFilters: _PEER,
        sessions.FindEndedSessions: _PEER,
        sessions.ListSessions: _VIEW,
        sessions.EndGatewayEpochs: _PEER,
        replicas.ReplicaHello: _PEER,
        replicas.AskVote: _PEER,
        replicas.TakeEntries: _PEER,
        replicas.TakeLead: _PEER,
        replicas.FetchLog: _PEER,
        replicas.DescribeReplicas: _VIEW,
        replicas.AddReplica: _PEER,
        replicas.SetRole: _ADMIN_OF_NODE,
        replicas.RemoveReplica: _ADMIN_OF_NODE,
        replicas.MoveLeader: _ADMIN_OF_NODE,
        replicas.ForceLeader: _ADMIN,
        replicas.SetCopies: _ADMIN,
        sessions.CloseSession: Row(_ADMIN_WORDS, lambda one: (Need((ADMIN,), about=one.client),)),
        sessions.AskSubscriptions: Row(
            "`view` the cluster; to disconnect a client or follow its packets, `admin` of it",
            _ask_subscriptions,
        ),
        sessions.TellSubscriptions: _PEER,
        shares.TakeShared: _PEER,
        shares.SettleShared: _PEER,
        shares.ListShares: _VIEW,
        pops.Pop: Row("`group`, and `consume` the queue's topic", _pop),
        pops.AckPopped: _GROUP,
        pops.ExtendPopped: _GROUP,
        pops.SendPoppedBack: _GROUP,
        pops.LeavePopped: _GROUP,
        timers.SetTimers: Row("`produce` to each message's topic", lambda one: _written_records(one.body)),
        timers.CancelTimer: Row("`produce` to the cluster", lambda _: (Need(_WRITE),)),
        timers.ListTimers: _VIEW,
        timers.ConfirmClock: _ADMIN,
        retries.SendBack: _GROUP,
        retries.SendAllBack: _GROUP,
        retries.SendLetterAgain: _ADMIN_GROUP,
        transactions.BeginHalves: Row(
            "`group`, and `produce` to each message's topic",
            lambda one: [Need((GROUP,), one.group), *_written_records(one.body)],
        ),
        transactions.BeginHalf: Row(
            "`group`, and `produce` to each message's topic",
            lambda one: [Need((GROUP,), one.group), *_written_runs(one.body)],
        ),
        transactions.EndHalves: _GROUP,
        transactions.WatchHalves: _GROUP,
        transactions.ListHalves: _VIEW,
        transactions.CheckHalf: _ADMIN,
    }
)
"""Every request that the wire can carry."""


def needs_of(request: Request) -> Sequence[Need]:
    """The needs of a request; one without a row is for services alone. Raises ``InvalidRequest``."""
    return NEEDS.get(type(request), _PEER).needs(request)
