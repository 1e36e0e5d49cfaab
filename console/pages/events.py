"""The event bridge: buses with their rules, targets, sources, contracts and types, as the log keeps them.

The console asks brokers and no bridge: position, lag and dead letters of a rule are those of its group. The bridge's
HTTP face and ``penstock event`` change the configuration.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from starlette.responses import Response

from console import markup
from console.visits import Visit
from penstock.errors import InvalidRequest
from penstock.protocol.received import ReceivedMessage
from topicmap.names import EVENTS_LEVEL

PATH: Final = "/events"
FETCHED: Final = 1_000
SHOWN: Final = 1_000
_JSON_CHARACTERS: Final = 400


class _Fact(NamedTuple):
    """A value of the configuration (docs/formats/events.md)."""

    name: str
    spec: dict[str, Any]
    message: ReceivedMessage


async def events(visit: Visit) -> Response:
    """The buses."""
    buses = await _facts(visit, "bus/+/#")
    rules = await _facts(visit, "rule/#")
    found = sorted({one.message.name.split("/")[2] for one in buses})
    rows = [
        (
            markup.link(bus, "/events/bus", name=bus),
            sum([one.message.name.split("/")[2] == bus for one in rules]),
            markup.link("messages", "/messages", topic=bus),
        )
        for bus in found
    ]
    hint = "There are none: a bridge makes the first one (penstock up --events-port 8095)."
    return visit.page("Event buses", markup.table("Buses", ("Bus", "Rules#", "Events"), rows, empty=hint), path=PATH)


async def bus(visit: Visit) -> Response:
    """One bus."""
    name = visit.ask("name", "default")
    if not name or any([one in name for one in "+#/"]):
        raise InvalidRequest(f"{name!r:.80} names no bus")
    rules, targets, sources, schemas, types = [
        await _facts(visit, f"{kind}/{name}/+") for kind in ("rule", "target", "source", "schema", "type")
    ]
    waiting = {one.group: one.waiting for one in await visit.cluster.reads.dead_letters()}
    return visit.page(
        f"Event bus {name}",
        markup.section(
            "Rules",
            markup.table(
                "Rules",
                ("Rule", "Target", "Pattern", "Position and lag", "Dead letters#", "Changed"),
                [_rule(name, one, waiting) for one in rules],
                empty="No rule reads it.",
            ),
        ),
        _plain("Targets", "Target", targets),
        _plain("Sources", "Source", sources),
        _plain("Contracts", "Type", schemas),
        markup.section(
            "Types",
            markup.table(
                "Types", ("Type", "Contract", "A sample"), _types(types, schemas), empty="None came over HTTP."
            ),
        ),
        path=PATH,
    )


def _rule(bus: str, one: _Fact, waiting: dict[str, int]) -> tuple[markup.Cell, ...]:
    group = f"event/{bus}/{one.name}"
    is_enabled = one.spec.get("enabled", True) is not False
    letters = waiting.get(group, 0)
    return (
        Markup("{}").format(one.name) if is_enabled else Markup("{} (disabled)").format(one.name),
        str(one.spec.get("target", "")),
        _code(one.spec["pattern"]) if "pattern" in one.spec else "every event",
        markup.link("group", "/group", name=group),
        markup.link(str(letters), "/letters/of", group=group) if letters else letters,
        markup.moment(one.message.stored_ms),
    )


def _plain(title: str, column: str, found: list[_Fact]) -> Markup:
    rows = [(one.name, _code(one.spec), markup.moment(one.message.stored_ms)) for one in found]
    return markup.section(title, markup.table(title, (column, "As it is written", "Changed"), rows, empty="None."))


def _types(types: list[_Fact], schemas: list[_Fact]) -> list[tuple[markup.Cell, ...]]:
    with_contract = {one.name for one in schemas}
    samples = {one.name: one.spec.get("sample") for one in types}
    return [
        (name, "yes" if name in with_contract else "no", _code(samples[name]) if samples.get(name) else None)
        for name in sorted(samples.keys() | with_contract)
    ]


def _code(value: object) -> Markup:
    """A value as JSON, its beginning if it is long. The values of secrets are no part of any: targets name files."""
    text = json.dumps(value, ensure_ascii=False)
    return Markup("<code>{}</code>").format(text if len(text) <= _JSON_CHARACTERS else text[:_JSON_CHARACTERS] + " …")


async def _facts(visit: Visit, filter: str) -> list[_Fact]:
    """The values under a filter, up to ``SHOWN``. What cannot be read is left out, as bridges do."""
    found: list[_Fact] = []
    after = ""
    while True:
        page = await visit.cluster.reads.retained_page(f"{EVENTS_LEVEL}/{filter}", after, FETCHED)
        for message in page.messages:
            try:
                spec = json.loads(message.body)["spec"]
            except (ValueError, KeyError, TypeError):
                continue
            if isinstance(spec, dict):
                found.append(_Fact(message.name.split("/", 3)[-1], spec, message))
        after = page.after
        if not after or len(found) >= SHOWN:
            return found[:SHOWN]
