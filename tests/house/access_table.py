"""Draws the table of docs/formats/access.md that says who may ask what at native ports; ``python
tests/house/access_table.py`` writes it there.

Each cell is what a guarded session answers to a request of that type from somebody who has that one right, and no
other: so there is none that nobody has tried.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from penstock.access.acl import NATIVE, parse_acl  # noqa: E402
from penstock.access.authority import Authority, Known  # noqa: E402
from penstock.access.needs import NEEDS  # noqa: E402
from penstock.access.passwords import Users  # noqa: E402
from penstock.access.policy import PASSWORD, SERVICE, Identity  # noqa: E402
from penstock.errors import NotAuthorized, PenstockError  # noqa: E402
from penstock.protocol.link import OnResult  # noqa: E402
from penstock.protocol.message import Message, encode_message  # noqa: E402
from penstock.protocol.requests.request import Done, Request, Result  # noqa: E402
from penstock.protocol.requests.servers import Login  # noqa: E402
from penstock.protocol.requests.table import REQUESTS  # noqa: E402
from penstock.protocol.runs import checksum_of, encode_runs, run_of  # noqa: E402
from penstock.protocol.wire import FrameReader  # noqa: E402
from penstock.service.audit import Audit  # noqa: E402
from penstock.service.frame_connection import Peer  # noqa: E402
from penstock.service.guard import Guard, GuardedSession  # noqa: E402

PAGE = ROOT / "docs" / "formats" / "access.md"
BEGIN, END = "<!-- who: begin -->\n", "<!-- who: end -->\n"
COLUMNS: Final = ("nobody", *[f"`{action}`" for action in NATIVE], *[f"`{action} *`" for action in NATIVE], "service")
RULES: Final = "\n".join(
    [f"allow user {action}-one {action} orders-1\nallow user {action}-all {action} *" for action in NATIVE]
)
IDENTITIES: Final = (
    Identity(),
    *[Identity(f"{action}-one", PASSWORD) for action in NATIVE],
    *[Identity(f"{action}-all", PASSWORD) for action in NATIVE],
    Identity("gateway-1", SERVICE),
)
_TEXTS: Final = {"queue": "orders-1:0", "topic": "orders-1", "group": "orders-1"}


class Taker:
    """A session that carries out whatever reaches it."""

    def __init__(self) -> None:
        self.taken: list[Request] = []

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.taken.append(request)
        on_result(Done())

    def flush(self) -> None: ...

    hold = release = close = flush


def guarded(identity: Identity, rules: str = RULES, taker: Taker | None = None) -> tuple[GuardedSession, Taker]:
    """The session of somebody who has logged in, at a port that asks for it. ``taker``: what is behind it."""
    taker = taker or Taker()
    authority = Authority(lambda: bytes(32), lambda: 0, bytes(32))
    authority.set_users(Users({one.user: Users({}).decoy(one.user) for one in IDENTITIES if one.user}))
    authority.set_acl(parse_acl(rules))
    guard = Guard(authority, Audit(lambda: 0, lambda: 0.0), lambda: 0.0, lambda: 0.0)
    session = guard.watch(taker, Peer(1, "192.0.2.1:5"), FrameReader(), lambda seconds: None)
    if identity.user:
        session.become(Known(identity))
    return session, taker


def sample(kind: type[Request]) -> Request:
    """A request of a type, about the topic and the group ``orders-1``."""
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    record = encode_message(Message("orders-1", b"x"))
    runs = encode_runs([run_of(record)])
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint = hints[field.name]
        if field.name == "body":
            given["body"] = runs if "checksum" in hints else record
        elif field.name == "checksum":
            given["checksum"] = checksum_of(runs)
        elif field.name == "count":
            given["count"] = 1
        elif field.default is not dataclasses.MISSING:
            continue
        elif field.name in ("queues", "topics") and hint == tuple[str, ...]:
            given[field.name] = (_TEXTS[field.name[:-1]],)
        elif typing.get_origin(hint) is tuple:
            given[field.name] = ()
        else:
            given[field.name] = {str: _TEXTS.get(field.name, "x"), int: 0, float: 0.0, bool: False, bytes: b""}[hint]
    return kind(**given)


def answer(identity: Identity, request: Request) -> Result:
    """What a guarded session answers."""
    session, _ = guarded(identity)
    results: list[Result] = []
    session.submit(request, results.append)
    assert len(results) == 1, "a request is answered once"
    return results[0]


def cell(identity: Identity, kind: type[Request]) -> str:
    """Whether it may."""
    if kind is Login:
        return "yes"
    result = answer(identity, sample(kind))
    if isinstance(result, NotAuthorized):
        return "–"
    assert not isinstance(result, PenstockError), result
    return "yes"


def table() -> str:
    """The table, as it stands in the page."""
    lines = [f"| request | needs | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for _, kind in sorted(REQUESTS.items()):
        cells = " | ".join(cell(identity, kind) for identity in IDENTITIES)
        lines.append(f"| `{kind.__name__}` | {NEEDS[kind].words} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the table into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
