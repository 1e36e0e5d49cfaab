"""Users, access rules and the audit log: who may do what, and who did."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup
from console.visits import Visit
from penstock.access.acl import ADMIN, CONSUME, PRODUCE, VIEW, Rule
from penstock.access.acl import GROUP as USE_GROUP
from penstock.client.audit_tasks import Audited

ACCESS_PATH: Final = "/access"
AUDIT_PATH: Final = "/audit"
AUDITED_SHOWN: Final = 200
USERS_SHOWN: Final = 500
RULES_SHOWN: Final = 1_000
OUTCOMES: Final = (("", "all"), ("refused", "refused"))
ACTIONS: Final = (VIEW, PRODUCE, CONSUME, USE_GROUP, ADMIN)
COLUMNS: Final = ("When", "Outcome", "Act", "About", "User", "By", "From", "Server", "Why", "Times#")


async def access(visit: Visit) -> Response:
    """The users and rules of the console's own files, which are those of the cluster where all services share them."""
    users = visit.console.users
    if users is None:
        told = "No password file is set: everyone who reaches a port may do everything there."
        return visit.page("Users and rules", Markup('<p class="empty">{}</p>').format(told), path=ACCESS_PATH)
    names, rules = users.names(), users.rules()
    asked, action = visit.ask("user"), visit.ask("action") or VIEW
    parts = [_question(asked, action, visit.ask("about"))]
    if asked and action in ACTIONS:
        refusal = users.refusal(users.named(asked), action, visit.ask("about"))
        parts.append(Markup('<p role="status">{}</p>').format(refusal.message if refusal else f"{asked} may."))
        if refusal is not None and refusal.hint:
            parts.append(Markup('<p class="hint">{}</p>').format(refusal.hint))
    rows = [(markup.link(one, AUDIT_PATH, user=one),) for one in names[:USERS_SHOWN]]
    listed = markup.table("Users, and what each did", ("User",), rows, empty="The password file has none.")
    parts.append(markup.section(f"Users ({len(names):,})", listed))
    if rules is None:
        words = "There is no file of rules: users may all but administer."
        parts.append(markup.section("Rules", Markup('<p class="empty">{}</p>').format(words)))
    else:
        lines = [_rule(one) for one in rules[:RULES_SHOWN]]
        columns = ("Line", "Verdict", "Who", "Action", "Pattern")
        table = markup.table("Rules; the first that applies decides", columns, lines, empty="The file has none.")
        parts.append(markup.section(f"Rules ({len(rules):,})", table))
    return visit.page("Users and rules", *parts, path=ACCESS_PATH)


def _rule(one: Rule) -> tuple[markup.Cell, ...]:
    who = f"{one.who} {one.name}".strip()
    return f"{one.line:,}", "allow" if one.allows else "deny", who, one.action, one.pattern


def _question(user: str, action: str, about: str) -> Markup:
    fields = [
        markup.field("User", "user", user),
        markup.choice("May it", "action", [(one, one) for one in ACTIONS], action),
        markup.field("Topic or group", "about", about, hint="empty: the cluster"),
    ]
    return markup.search(ACCESS_PATH, fields, "Ask")


async def audit(visit: Visit) -> Response:
    """The latest entries of the audit log, the newest first."""
    user, outcome = visit.ask("user").strip(), visit.ask("outcome")
    found = await visit.cluster.reads.audit(count=AUDITED_SHOWN, user=user, refused=outcome == "refused")
    fields = [markup.field("User", "user", user), markup.choice("Outcome", "outcome", OUTCOMES, outcome)]
    table = markup.table(
        "The latest entries, the newest first",
        COLUMNS,
        [_row(one) for one in reversed(found)],
        empty="Nothing was noted. Ports that ask for no login note nothing.",
    )
    return visit.page("Audit log", markup.search(AUDIT_PATH, fields, "Show"), table, path=AUDIT_PATH)


def _row(one: Audited) -> tuple[markup.Cell, ...]:
    return (
        markup.moment(one.time_ms),
        markup.badge("allowed", "good") if one.allowed else markup.badge("refused", "error"),
        one.act,
        one.name,
        one.user or "nobody",
        f"{one.how}, client {one.client}" if one.client else one.how,
        one.address,
        one.server,
        one.why,
        one.times,
    )
