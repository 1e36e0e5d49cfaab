"""Consumer groups: members, lag now and over time, and moving their offsets with a preview."""

from __future__ import annotations

from typing import Final, Literal

from markupsafe import Markup
from starlette.responses import JSONResponse, Response

from console import markup
from console.visits import PAGE_ROWS, Visit, number_of, time_of
from penstock.client.arguments import Place
from penstock.client.group_tasks import GroupAt, Moved
from penstock.client.page_tasks import GroupsOnPage
from penstock.errors import InvalidRequest

PATH: Final = "/groups"
RESET_SHOWN: Final = 500


async def groups(visit: Visit) -> Response:
    """A page of groups."""
    after, contains = visit.ask("after"), visit.ask("contains")
    page = await visit.cluster.reads.groups_page(after, PAGE_ROWS, contains)
    return visit.page(
        "Groups",
        markup.listing(PATH, "a part of a group's name", contains, after, page.after, _table(page)),
        path=PATH,
    )


async def live(visit: Visit) -> Response:
    """The rows, which are fetched again and again."""
    return visit.part(
        _table(await visit.cluster.reads.groups_page(visit.ask("after"), PAGE_ROWS, visit.ask("contains")))
    )


def _table(page: GroupsOnPage) -> Markup:
    rows = [
        (markup.link(one.group, "/group", name=one.group), one.members, one.queues, one.lag, one.passed)
        for one in page.rows
    ]
    columns = ("Group", "Members#", "Queues#", "Lag#", "Processed#")
    return markup.table("Groups", columns, rows, empty="No group has such a name.")


async def group(visit: Visit) -> Response:
    """One group."""
    name = visit.ask("name")
    found = await visit.cluster.reads.group(name)
    return visit.page(
        name,
        markup.live(markup.address("/group/live", name=name), _standing(found), every_s=3),
        markup.chart("Lag, the last hour", markup.address("/group/lag", name=name), "messages"),
        _reset_form(visit, name) if visit.may_act else Markup(""),
        Markup('<p class="links">{}</p>').format(markup.link("Its dead letters", "/letters/of", group=name)),
        path=PATH,
    )


async def group_live(visit: Visit) -> Response:
    """Members and lag, which are fetched again and again."""
    return visit.part(_standing(await visit.cluster.reads.group(visit.ask("name"))))


async def lag(visit: Visit) -> Response:
    """Lag over time, for the chart."""
    return JSONResponse(visit.watch.lags.of(visit.ask("name")).columns())


def _standing(found: list[GroupAt]) -> Markup:
    members: list[tuple[markup.Cell, ...]] = [
        (member.member, one.broker, len(member.queues), ", ".join(member.queues[:8]))
        for one in found
        for member in one.detail.members
    ]
    members += [(taker, one.broker, None, "pops") for one in found for taker in one.detail.takers]
    members += [(holder, one.broker, None, "gateway") for one in found for holder in one.detail.holders]
    lags = [
        (f"{row.queue}@{one.broker}", None if row.offset < 0 else row.offset, row.end, row.end - max(row.offset, 0))
        for one in found
        for row in one.detail.lags
    ]
    lags.sort(key=lambda row: -row[3])
    total = sum([row[3] for row in lags])
    return markup.joined(
        [
            markup.facts([("Lag", total), ("Members", len(members)), ("Queues", len(lags))]),
            markup.section(
                "Members", markup.table("Members", ("Member", "Broker", "Queues#", "Which"), members, empty="None.")
            ),
            markup.section(
                "Lag of each queue",
                markup.table("Lag of each queue", ("Queue", "Offset#", "End#", "Lag#"), lags[:RESET_SHOWN]),
            ),
        ]
    )


def _reset_form(visit: Visit, name: str) -> Markup:
    parts = [
        markup.hidden_field("name", name),
        markup.choice("Go to", "to", _PLACES, "earliest"),
        markup.field("Time (UTC) or offset", "at", hint="for the last two choices, as 2026-11-28T10:00 or 120"),
        markup.field("Topic", "topic", hint="empty: all topics that it has read"),
    ]
    form = Markup('<form method="get" action="/group/reset" class="action">{}<button>Preview</button></form>')
    return markup.section("Move its offsets", form.format(markup.joined(parts)))


_PLACES: Final = (
    ("earliest", "the first message"),
    ("latest", "the end"),
    ("time", "a time"),
    ("offset", "an offset"),
)


def _place(visit: Visit) -> Place:
    """The new place of a group. Raises ``InvalidRequest``."""
    to, at = visit.ask("to"), visit.ask("at")
    if to in ("earliest", "latest"):
        word: Literal["earliest", "latest"] = "earliest" if to == "earliest" else "latest"
        return word
    if to == "time":
        return time_of("the time", at)
    if to == "offset" and at.strip():
        return number_of("the offset", at, 0)
    raise InvalidRequest("say where to: the first message, the end, a time or an offset")


async def preview(visit: Visit) -> Response:
    """The effect of moving a group."""
    name, topic = visit.ask("name"), visit.ask("topic")
    moved = await visit.cluster.acts.reset_group(name, topic, to=_place(visit), dry_run=True)
    hidden = {"name": name, "topic": topic, "to": visit.ask("to"), "at": visit.ask("at")}
    return visit.page(
        f"Move {name}?",
        Markup("<p>{}</p>").format(_sum(moved)),
        visit.action("/group/reset", f"Move {name}", hidden, kind="danger"),
        Markup('<p class="links">{}</p>').format(markup.link("Leave it as it is", "/group", name=name)),
        _moves(moved),
        path=PATH,
    )


def _sum(moved: list[Moved]) -> str:
    again = sum([max(0, one.before - one.after) for one in moved if one.before >= 0])
    skipped = sum([max(0, one.after - max(one.before, 0)) for one in moved])
    return f"{again:,} messages are read again, {skipped:,} are skipped, in {len(moved):,} queues."


def _moves(moved: list[Moved]) -> Markup:
    rows = [
        (str(one.queue), None if one.before < 0 else one.before, one.after, one.end, one.end - one.after)
        for one in moved[:RESET_SHOWN]
    ]
    columns = ("Queue", "Offset now#", "Offset then#", "End#", "Lag then#")
    return markup.section("Queue by queue", markup.table("What moves", columns, rows))


async def reset(visit: Visit) -> Response:
    """Moves a group."""
    name = visit.ask("name")
    moved = await visit.cluster.acts.reset_group(name, visit.ask("topic"), to=_place(visit))
    return visit.done(f"{name} was moved in {len(moved):,} queues.", "/group", name=name)
