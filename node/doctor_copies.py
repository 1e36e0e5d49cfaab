"""Checks of `penstock doctor` on a node of a group of copies: its key, its connections to other nodes, their states and
their clocks."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from node.doctor import BAD, GOOD, NOTE, Finding, is_held, port_finding
from node.settings import Configuration, service_settings
from penstock.blocking.admin import Admin
from penstock.client.administration import Ask, Task
from penstock.client.replica_tasks import ReplicaGroup
from penstock.client.replica_words import advice_on, state_of
from penstock.clock import Clock
from penstock.errors import InvalidConfig, PenstockError
from penstock.protocol.addresses import join_address, split_address
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.cluster_secret import read_secret

CONNECT_S: Final = 2.0
ANSWER_S: Final = 2.0
CLOCK_MS_MAX: Final = 1_000
"""Store times are the leader's: after a change of the lead they stand still until its clock is there."""


def copies(configuration: Configuration, environ: Mapping[str, str], clock: Clock) -> Iterator[Finding]:
    """The findings of all these checks; none where the broker's log has no copies."""
    node = configuration.node
    if not node.copies:
        return
    settings = service_settings(configuration, "broker", environ, **node.copies)
    yield key(node.cluster_secret_file)
    yield port_finding("copies", settings.host, settings.replica_port, is_running=is_held(node.data))
    yield from ways(settings.join)
    yield from nodes(settings.advertise or join_address(settings.host, settings.port), clock)


def key(path: str) -> Finding:
    """The file with the key that nodes prove to each other."""
    if not path:
        return Finding("key", BAD, "none is named", "`penstock replica key > cluster.key`, and --key cluster.key")
    try:
        read_secret(Path(path))
    except InvalidConfig as error:
        return Finding("key", BAD, error.message, "`penstock replica key` makes one; every node has the same")
    if stat.S_IMODE(Path(path).stat().st_mode) & 0o077:
        return Finding("key", BAD, f"others may read {path}", f"`chmod 600 {path}`, or make a new one for all nodes")
    return Finding("key", GOOD, path)


def ways(join: Sequence[str]) -> Iterator[Finding]:
    """Whether the nodes answer that this one is to join, at their ports for other nodes."""
    for address in join:
        try:
            host, port = split_address(address)
            with socket.create_connection((host, port), CONNECT_S):
                yield Finding("way to a node", GOOD, f"{address} takes connections")
        except InvalidConfig as error:
            yield Finding("way to a node", BAD, error.message, "HOST:PORT of its --replica-port")
        except OSError as error:
            why = error.strerror or str(error)
            yield Finding(
                "way to a node", BAD, f"{address}: {why}", "start that node, or open its replica port to this one"
            )


def nodes(address: str, clock: Clock) -> Iterator[Finding]:
    """The states and clocks of the group of the broker at ``address``; nothing if it does not answer."""
    with Admin(address, timeout_s=ANSWER_S) as admin:
        try:
            [group] = admin.replicas(address=address)
        except PenstockError:
            return
        yield from states(group)
        for one in group.nodes:
            if one.answers:
                asked = clock.wall_ms()
                try:
                    theirs = admin.run(_time_at(one.address))
                except PenstockError:
                    continue
                yield times(one.node, theirs, asked, clock.wall_ms())


def states(group: ReplicaGroup) -> Iterator[Finding]:
    """The state of each node, and the advice on their group."""
    for one in group.nodes:
        is_bad = one.is_away or bool(one.damaged)
        yield Finding(f"node {one.node}", BAD if is_bad else GOOD, f"{one.role}, {state_of(one)}")
    is_whole = group.leader and not group.refusal and not any(one.is_away for one in group.nodes)
    for sentence in advice_on(group):
        yield Finding("copies", GOOD if is_whole and len(group.voters) > 2 else NOTE, sentence)


def times(node: str, theirs_ms: int, asked_ms: int, answered_ms: int) -> Finding:
    """Whether a node's clock agrees with this machine's: it told its time between these two."""
    early, late = asked_ms - theirs_ms, theirs_ms - answered_ms
    apart = max(early, late, 0)
    check = f"clock of {node}"
    if apart > CLOCK_MS_MAX:
        word = "behind" if early > 0 else "ahead of"
        return Finding(
            check,
            BAD,
            f"{apart / 1000:,.1f} s {word} this machine's",
            "set both by a time server: `timedatectl set-ntp true`",
        )
    return Finding(check, GOOD, "it agrees with this machine's")


def _time_at(address: str) -> Task[int]:
    info: ServerInfo = yield Ask(address, Ping(), ServerInfo)
    return info.now_ms
