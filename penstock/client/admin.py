"""The administration client on asyncio and trio: topics, groups, delayed messages, transactions, dead letters.

Tasks (penstock/client/administration.py and beside it) decide which requests to send; this module sends them and waits.
A method has the arguments, result and errors of its task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.client import administration as tasks
from penstock.client import (
    audit_tasks,
    config_tasks,
    group_tasks,
    message_tasks,
    page_tasks,
    replica_tasks,
    retained_tasks,
    session_tasks,
    topic_tasks,
)
from penstock.client.addressing import check_servers
from penstock.client.administration import AllNameServers, Ask, Question, Steps, Task
from penstock.client.arguments import OnlyAsync, check_flag, check_seconds
from penstock.client.completeness import check_whole
from penstock.client.credentials import Tls, credentials_of
from penstock.client.discovery import Discovery
from penstock.client.retry import TIMEOUT_S
from penstock.client.task_scope import TaskScope
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Links
from penstock.world import Clock, RealClock, Rng, new_rng

P = ParamSpec("P")
R = TypeVar("R")


def awaited(task: Callable[P, Task[R]]) -> Callable[Concatenate[Admin, P], Coroutine[Any, Any, R]]:
    """The method of ``Admin`` that carries such tasks out."""

    @functools.wraps(task)
    async def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(task(*args, **kwargs))

    return method


class Admin(OnlyAsync):
    """Administers a cluster. Use it with ``async with``. Methods ask all brokers; if one is away, they raise
    ``BrokerAway``.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: seconds for each answer of a broker.
        allow_incomplete: leave out brokers that are away; without it they are an error.
        user, password: of the cluster's users; or ``token``, a JSON Web Token. The password is not sent. Left out: what
            the environment says (``PENSTOCK_USER`` and others).
        tls: true, the path of the authority's certificate, or an ``ssl.SSLContext``; left out as above.
        links: connections other than TCP, for programs that embed the servers.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = SERVERS,
        *,
        timeout_s: float = TIMEOUT_S,
        allow_incomplete: bool = False,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: Tls = None,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_servers(servers)
        check_seconds("timeout_s", timeout_s)
        check_flag("allow_incomplete", allow_incomplete)
        self._allow_incomplete = allow_incomplete
        self._servers = servers
        self._timeout_s = timeout_s
        self._links = links
        self._credentials = credentials_of(user, password, token, tls)
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._tasks: TaskScope | None = None
        self._discovery: Discovery | None = None

    async def __aenter__(self) -> Admin:
        self._tasks = TaskScope()
        await self._tasks.open()
        links = self._links or WireLinks(self._tasks, clock=self._clock, rng=self._rng, credentials=self._credentials)
        self._discovery = Discovery(self._servers, links, clock=self._clock)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        tasks, self._tasks, self._discovery = self._tasks, None, None
        await tasks.close()

    topics = awaited(topic_tasks.topics)
    topic = awaited(topic_tasks.topic)
    topic_counts = awaited(topic_tasks.topic_counts)
    topics_page = awaited(page_tasks.topics_page)
    create_topic = awaited(topic_tasks.create_topic)
    change_topic = awaited(topic_tasks.change_topic)
    purge_topic = awaited(topic_tasks.purge_topic)
    delete_topic = awaited(topic_tasks.delete_topic)
    brokers = awaited(topic_tasks.brokers)
    allow_broker = awaited(topic_tasks.allow_broker)
    change_setting = awaited(topic_tasks.change_setting)
    replicas = awaited(replica_tasks.replicas)
    promote_replica = awaited(replica_tasks.promote_replica)
    demote_replica = awaited(replica_tasks.demote_replica)
    remove_replica = awaited(replica_tasks.remove_replica)
    replace_replica = awaited(replica_tasks.replace_replica)
    set_copies = awaited(replica_tasks.set_copies)
    move_leader = awaited(replica_tasks.move_leader)
    force_leader = awaited(replica_tasks.force_leader)
    figures = awaited(page_tasks.figures)
    broker_readers = awaited(group_tasks.broker_readers)
    groups = awaited(group_tasks.groups)
    groups_page = awaited(page_tasks.groups_page)
    group = awaited(group_tasks.group)
    delete_group = awaited(group_tasks.delete_group)
    reset_group = awaited(group_tasks.reset_group)
    message = awaited(message_tasks.message)
    browse = awaited(message_tasks.browse)
    retained_page = awaited(retained_tasks.retained_page)
    trace = awaited(message_tasks.trace)
    audit = awaited(audit_tasks.audit)
    clients = awaited(session_tasks.clients)
    sessions_page = awaited(page_tasks.sessions_page)
    session = awaited(page_tasks.session)
    filter_levels = awaited(page_tasks.filter_levels)
    disconnect = awaited(session_tasks.disconnect)
    watch_client = awaited(session_tasks.watch_client)
    end_session = awaited(session_tasks.end_session)
    config = awaited(config_tasks.config)
    change_name_servers = awaited(config_tasks.change_name_servers)
    set_config = awaited(config_tasks.set_config)
    delayed = awaited(tasks.delayed)
    delayed_page = awaited(page_tasks.delayed_page)
    cancel = awaited(tasks.cancel)
    frozen_clocks = awaited(tasks.frozen_clocks)
    confirm_clock = awaited(tasks.confirm_clock)
    transactions = awaited(tasks.transactions)
    commit = awaited(tasks.commit)
    rollback = awaited(tasks.rollback)
    check = awaited(tasks.check)
    dead_letters = awaited(tasks.dead_letters)
    letters_of = awaited(tasks.letters_of)
    redrive = awaited(tasks.redrive)

    async def run(self, task: Task[R]) -> R:
        """Carries a task out. Raises what its servers answer."""
        if self._discovery is None:
            raise _closed()
        steps = Steps(task)
        while steps.wanted is not None:
            try:
                answer = await self._answer(self._discovery, steps.wanted)
            except PenstockError as error:
                steps.fail(error)
            else:
                steps.answer(answer)
        return steps.result

    async def _answer(self, discovery: Discovery, wanted: Question) -> object:
        if isinstance(wanted, Ask):
            return await ask(discovery.link(wanted.address), wanted.request, wanted.reply, self._timeout_s)
        if isinstance(wanted, AllNameServers):
            return await discovery.name_servers()
        found = await discovery.holders("")
        if not self._allow_incomplete:
            check_whole(found.away, "all brokers")
        return found.brokers

    async def away(self) -> tuple[str, ...]:
        """Names of the brokers that are away."""
        if self._discovery is None:
            raise _closed()
        return (await self._discovery.holders("")).away


def _closed() -> InvalidRequest:
    return InvalidRequest("this admin is not open", hint="use it inside `async with Admin(...) as a:`")
