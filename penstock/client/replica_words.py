"""Texts for operators about a group of copies: the state of each node, its meaning, and the next steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.replica_tasks import LEADER, ReplicaGroup, ReplicaNode

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def shown_bytes(count: int) -> str:
    """A number of bytes with one unit."""
    return next((f"{count / size:,.1f} {unit}" for size, unit in _UNITS if count >= size), f"{count:,} bytes")


def state_of(node: ReplicaNode) -> str:
    """The state of a node, in a few words."""
    if node.is_away:
        return "does not answer" if node.heard_s is None else f"silent for {node.heard_s:,.0f} s"
    if node.damaged:
        return f"{node.damaged} damaged parts, being repaired"
    if node.role == LEADER:
        return "leads"
    if node.behind is None:
        return "answers"
    if not node.behind:
        return "level"
    since = f", for {node.behind_s:,.0f} s" if node.behind_s is not None and node.behind_s >= 1 else ""
    return f"lacks {shown_bytes(node.behind)}{since}"


def advice_on(group: ReplicaGroup) -> list[str]:
    """Advice on a group: the failures that it bears, and what to do; a sentence or two each, the most urgent first."""
    said = _on_the_lead(group)
    if group.leader:
        said += _on_voters(group)
    return said + _on_nodes(group)


def _on_the_lead(group: ReplicaGroup) -> list[str]:
    if group.leader:
        return [f"Nothing is stored just now: {group.refusal}."] if group.refusal else []
    away = [one.node for one in group.voters if one.is_away]
    there = len(group.voters) - len(away)
    if there >= group.majority:
        return ["There is no leader: an election takes a few seconds. Look again."]
    left = [one.node for one in group.nodes if one.answers]
    lost = " ".join(f"--lost {name}" for name in away)
    forced = f" If their disks are lost for good: penstock replica force-leader {left[0]} {lost}" if left else ""
    return [
        f"Nothing is stored; reads work: {there} of {len(group.voters)} voters answer, and it takes"
        f" {group.majority}. Start {_listed(away)}.{forced}"
    ]


def _on_voters(group: ReplicaGroup) -> list[str]:
    voters, observers = group.voters, [one.node for one in group.nodes if not one.is_voter]
    if len(group.nodes) == 1:
        return [
            "There is one copy: if its disk is lost, all is lost. Another node adds one:"
            " penstock up --node NAME --join HOST:REPLICA_PORT --key FILE"
        ]
    if len(voters) == 1:
        more = f"penstock replica promote {' '.join(observers[:2])}"
        hint = (
            f" Three voters go on by themselves: {more}"
            if len(observers) >= 2
            else " With a third node two more can be voters."
        )
        return [f"{voters[0].node} alone votes: if it is lost, reads work and nothing is stored.{hint}"]
    spare = len([one for one in voters if not one.is_away]) - group.majority
    if len(voters) == 2:
        return ["There are two voters: nothing is stored while either is away. A third one mends that."]
    if spare <= 0:
        return ["No further voter may be lost: nothing would be stored then."]
    return [f"{spare} of {len(voters)} voters may be lost without stopping the storage of messages."]


def _on_nodes(group: ReplicaGroup) -> list[str]:
    said = []
    for one in group.nodes:
        if one.is_away and group.leader:
            said.append(
                f"Start {one.node}. If its disk is lost, start a new node with another name, then:"
                f" penstock replica replace {one.node} --by NEW"
            )
        elif one.damaged and len(group.nodes) == 1:
            said.append(f"{one.node} has damage and no other copy to repair it from: penstock store verify")
    return said


def losses(group: ReplicaGroup, node: str, lost: Sequence[str]) -> list[str]:
    """The possible losses when a node is forced to lead, and the effects; a sentence each."""
    chosen = group.node(node)
    gone, others = _listed(lost), [one.node for one in group.nodes if one.node != node and one.node not in lost]
    with_whom = f" with {_listed(others)}" if others else " alone"
    return [
        f"Node {node} has the log of broker {group.group} up to position {chosen.end or 0:,}, in epoch"
        f" {chosen.last_epoch or 0}; it knows that all before {min(group.committed, chosen.end or 0):,} was committed.",
        f"What {gone} stored behind that is lost for good, also where it was acknowledged: messages, and changes of"
        " offsets, sessions and topics.",
        f"{node} then goes on{with_whom}, 1,000 epochs higher.",
        f"{gone} must never start again with the old {'folders' if len(lost) > 1 else 'folder'}: remove"
        f" {'them' if len(lost) > 1 else 'it'}, and add new nodes under other names.",
    ]


def words_for(lost: Sequence[str]) -> str:
    """The words that an operator types to confirm the loss."""
    return f"lose what only {_listed(lost)} had"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
