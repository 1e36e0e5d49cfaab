"""``python -m loadtest.guard``: the processor time that a check of access rules costs a broker, by itself.

What a login costs in all is a row of ``loadtest native`` (``login-many`` and the like), whose rates need a machine on
which nothing else runs; processor time does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from penstock.access.acl import parse_acl
from penstock.access.authority import Authority
from penstock.access.policy import SCRAM, Identity
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.messages import AppendRuns, Pull
from penstock.protocol.runs import checksum_of, encode_runs, run_of
from penstock.service.audit import Audit
from penstock.service.permissions import Permissions

RULES = "allow user ada produce *\nallow user ada consume *"


def costs(calls: int = 5_000, rounds: int = 5) -> Iterator[tuple[str, float]]:
    """What is checked, and microseconds of processor time for each check, the least of some rounds."""
    authority = Authority(lambda: bytes(32), lambda: 0)
    authority.set_acl(parse_acl(RULES))
    audit = Audit(lambda: 0, lambda: 0.0)
    permissions = Permissions(authority, audit, "127.0.0.1:1", Identity("ada", SCRAM))
    pull, single, many = Pull("orders:0", 0), _append(1), _append(100)
    yield "a pull", _least(lambda: permissions.check_request(pull), calls, rounds)
    yield "a message sent alone", _least(lambda: permissions.check_request(single), calls, rounds)
    yield "100 messages sent together", _least(lambda: permissions.check_request(many), calls // 50 + 1, rounds)


def _append(count: int) -> AppendRuns:
    """Messages with keys of their own."""
    records = [encode_message(Message("orders", bytes(100), key=f"key-{number}")) for number in range(count)]
    body = encode_runs([run_of(record) for record in records])
    return AppendRuns(count, checksum_of(body), body)


def _least(check: Callable[[], None], calls: int, rounds: int) -> float:
    took = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(calls):
            check()
        took.append((time.process_time() - began) / calls * 1e6)
    return min(took)


if __name__ == "__main__":
    for what, microseconds in costs():
        print(f"{what:30} {microseconds:8.2f} us")
