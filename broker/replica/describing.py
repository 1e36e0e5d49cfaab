"""A group as one of its nodes knows it, for operators and as figures of that node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.replica.core import Core
from broker.replica.events import RoleKind
from penstock.protocol.requests.replicas import ReplicaRow, Replicas
from penstock.service.metrics import with_label

OBSERVER: Final = "observer"


def described(
    core: Core, group: str, clients: Mapping[str, str], now: float, *, damaged: int = 0, repaired: int = 0
) -> Replicas:
    """A node's description of its group. ``group``: the broker's name. ``clients``: the known addresses of nodes for
    clients. ``damaged``, ``repaired``: of its own copy."""
    log, role, me = core.log, core.role, core.state.node
    members = log.members
    leads = role.kind is RoleKind.LEADER
    peers = {one.node: one for one in core.peers(now)}
    rows = []
    for member in members.nodes:
        peer = peers.get(member.node)
        row = ReplicaRow(member.node, member.uuid, member.address, member.is_voter, clients.get(member.node, ""))
        if peer is not None:
            row = row._replace(durable=peer.durable, heard_s=peer.heard_s, behind_s=peer.behind_s)
        elif leads and member.node == me:
            row = row._replace(durable=log.durable, heard_s=0.0, behind_s=0.0)
        elif member.node == role.leader:
            row = row._replace(heard_s=core.heard_s(now))
        rows.append(row)
    word = role.kind.value if leads or members.is_voter(me) else OBSERVER
    return Replicas(
        group,
        me,
        word,
        role.epoch,
        role.leader,
        log.committed,
        log.end,
        members.copies,
        tuple(rows),
        core.refusal(now) if leads else "",
        damaged,
        repaired,
        log.epoch_at(log.end),
    )


def figures_of(said: Replicas) -> dict[str, float]:
    """The figures of a node of a group; none where there is no other copy. Of other nodes only the leader has some."""
    if len(said.rows) < 2:
        return {}
    leads = said.role == RoleKind.LEADER.value
    found: dict[str, float] = {
        "penstock_replica_leads": int(leads),
        "penstock_replica_epoch": said.epoch,
        "penstock_replica_has_leader": int(bool(said.leader)),
        "penstock_replica_unready": int(bool(said.refusal)),
        "penstock_replica_uncommitted_bytes": max(0, said.end - said.committed),
        "penstock_replica_damaged": said.damaged,
        "penstock_replica_repaired_total": said.repaired,
    }
    for row in said.rows:
        if row.node == said.node:
            continue
        if row.heard_s >= 0:
            found[with_label("penstock_replica_heard_s", "node", row.node)] = row.heard_s
        if leads:
            found[with_label("penstock_replica_behind_bytes", "node", row.node)] = max(0, said.end - row.durable)
            found[with_label("penstock_replica_behind_s", "node", row.node)] = max(0.0, row.behind_s)
    return found
