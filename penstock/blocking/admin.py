"""The administration client without an event loop: the same as ``penstock.Admin``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from penstock.blocking.routes import Routes
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
from penstock.client.administration import AllNameServers, Ask, Question, Steps, Task
from penstock.client.arguments import OnlyBlocking, check_wait
from penstock.client.completeness import check_whole
from penstock.client.credentials import Tls, credentials_of
from penstock.client.retry import TIMEOUT_S
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.addresses import SERVERS

P = ParamSpec("P")
R = TypeVar("R")


def carried_out(task: Callable[P, Task[R]]) -> Callable[Concatenate[Admin, P], R]:
    """The method of ``Admin`` that carries such tasks out."""

    @functools.wraps(task)
    def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(task(*args, **kwargs))

    return method


class Admin(OnlyBlocking):
    """Administers a cluster. Use it with ``with``. Its methods are those of ``penstock.Admin``.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: how long a server may take for one answer.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = SERVERS,
        *,
        timeout_s: float = TIMEOUT_S,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: Tls = None,
    ) -> None:
        check_wait("timeout_s", timeout_s)
        self._routes = Routes(servers, timeout_s, credentials_of(user, password, token, tls))
        self._open = False

    def __enter__(self) -> Admin:
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open = False
        self._routes.close()

    topics = carried_out(topic_tasks.topics)
    topic = carried_out(topic_tasks.topic)
    topic_counts = carried_out(topic_tasks.topic_counts)
    topics_page = carried_out(page_tasks.topics_page)
    create_topic = carried_out(topic_tasks.create_topic)
    change_topic = carried_out(topic_tasks.change_topic)
    purge_topic = carried_out(topic_tasks.purge_topic)
    delete_topic = carried_out(topic_tasks.delete_topic)
    brokers = carried_out(topic_tasks.brokers)
    allow_broker = carried_out(topic_tasks.allow_broker)
    change_setting = carried_out(topic_tasks.change_setting)
    replicas = carried_out(replica_tasks.replicas)
    promote_replica = carried_out(replica_tasks.promote_replica)
    demote_replica = carried_out(replica_tasks.demote_replica)
    remove_replica = carried_out(replica_tasks.remove_replica)
    replace_replica = carried_out(replica_tasks.replace_replica)
    set_copies = carried_out(replica_tasks.set_copies)
    move_leader = carried_out(replica_tasks.move_leader)
    force_leader = carried_out(replica_tasks.force_leader)
    figures = carried_out(page_tasks.figures)
    broker_readers = carried_out(group_tasks.broker_readers)
    groups = carried_out(group_tasks.groups)
    groups_page = carried_out(page_tasks.groups_page)
    group = carried_out(group_tasks.group)
    delete_group = carried_out(group_tasks.delete_group)
    reset_group = carried_out(group_tasks.reset_group)
    message = carried_out(message_tasks.message)
    browse = carried_out(message_tasks.browse)
    retained_page = carried_out(retained_tasks.retained_page)
    trace = carried_out(message_tasks.trace)
    audit = carried_out(audit_tasks.audit)
    clients = carried_out(session_tasks.clients)
    sessions_page = carried_out(page_tasks.sessions_page)
    session = carried_out(page_tasks.session)
    filter_levels = carried_out(page_tasks.filter_levels)
    disconnect = carried_out(session_tasks.disconnect)
    watch_client = carried_out(session_tasks.watch_client)
    end_session = carried_out(session_tasks.end_session)
    config = carried_out(config_tasks.config)
    change_name_servers = carried_out(config_tasks.change_name_servers)
    set_config = carried_out(config_tasks.set_config)
    delayed = carried_out(tasks.delayed)
    delayed_page = carried_out(page_tasks.delayed_page)
    cancel = carried_out(tasks.cancel)
    frozen_clocks = carried_out(tasks.frozen_clocks)
    confirm_clock = carried_out(tasks.confirm_clock)
    transactions = carried_out(tasks.transactions)
    commit = carried_out(tasks.commit)
    rollback = carried_out(tasks.rollback)
    check = carried_out(tasks.check)
    dead_letters = carried_out(tasks.dead_letters)
    letters_of = carried_out(tasks.letters_of)
    redrive = carried_out(tasks.redrive)

    def run(self, task: Task[R]) -> R:
        """Carries a task out. Raises what its servers answer."""
        if not self._open:
            raise InvalidRequest("this admin is not open", hint="use it inside `with Admin(...) as a:`")
        steps = Steps(task)
        while steps.wanted is not None:
            try:
                answer = self._answer(steps.wanted)
            except PenstockError as error:
                steps.fail(error)
            else:
                steps.answer(answer)
        return steps.result

    def _answer(self, wanted: Question) -> object:
        if isinstance(wanted, Ask):
            return self._routes.link(wanted.address).ask(wanted.request, wanted.reply)
        if isinstance(wanted, AllNameServers):
            return self._routes.servers
        found = self._routes.holders()
        check_whole(found.away, "all brokers")
        return found.brokers
