"""The configuration as a fold of the log: which buses, sources, rules, targets, schemas and types there are.

A fact is a message of the topic ``%24events`` under the key ``KIND/BUS/NAME``: the new value, or nothing for a removal,
and the revision that it replaces. A revision is the offset of its fact plus one. A fact whose ``replaces`` is not the
revision that stands is passed over, by every reader alike: so writers compare and set without asking the broker. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

TOPIC: Final = "%24events"
"""The topic of MQTT names under ``$events``, which gateways and clients refuse. A native program may write it by this
name."""
ANY: Final = -1
"""A fact that replaces whatever stands."""
NONE: Final = 0
"""The revision of a value that is not there."""
KINDS: Final = ("bus", "source", "rule", "target", "schema", "type")


@dataclass(frozen=True, slots=True)
class Fact:
    """A value that stands. ``created_ms``: when it was written where none stood."""

    kind: str
    bus: str
    name: str
    spec: Any
    revision: int
    created_ms: int

    def document(self) -> dict[str, Any]:
        """As the HTTP face shows it."""
        name = {"name": self.name or self.bus}
        return name | ({"bus": self.bus} if self.name else {}) | {"revision": self.revision, "spec": self.spec}


def key_of(kind: str, bus: str, name: str) -> str:
    """The key of a fact's message."""
    return f"{kind}/{bus}/{name}"


def encode(spec: Any, replaces: int) -> bytes:
    """The body of a fact's message. ``spec``: None removes."""
    return orjson.dumps({"replaces": replaces, "spec": spec})


class Facts:
    """The facts that stand after a prefix of the log.

    Attributes:
        offset: of the next message to fold.
        changes: how many messages have changed a fact.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.changes = 0
        self._facts: dict[tuple[str, str], dict[str, Fact]] = {}  # kind and bus -> by name

    def fold(self, offset: int, key: str, body: bytes, stored_ms: int) -> bool:
        """Takes one message in; returns whether it changed anything. What is no fact is passed over."""
        self.offset = offset + 1
        kind, _, rest = key.partition("/")
        bus, _, name = rest.partition("/")
        try:
            given = orjson.loads(body)
            replaces, spec = given["replaces"], given["spec"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False
        if kind not in KINDS or not isinstance(replaces, int):
            return False
        before = self.get(kind, bus, name)
        if replaces not in (ANY, before.revision if before else NONE):
            return False
        if spec is None:
            if before is None:
                return False
            del self._facts[kind, bus][name]
        else:
            created_ms = before.created_ms if before else stored_ms
            of_bus = self._facts.setdefault((kind, bus), {})
            of_bus[name] = Fact(kind, bus, name, spec, offset + 1, created_ms)
        self.changes += 1
        return True

    def get(self, kind: str, bus: str, name: str = "") -> Fact | None:
        """The fact that stands under this name, if there is one."""
        return self._facts.get((kind, bus), {}).get(name)

    def all(self, kind: str, bus: str | None = None) -> list[Fact]:
        """The facts of a kind, of one bus or of all buses, ordered by name."""
        if bus is not None:
            found = list(self._facts.get((kind, bus), {}).values())
        else:
            found = [one for (of, _), of_bus in self._facts.items() if of == kind for one in of_bus.values()]
        return sorted(found, key=lambda one: (one.bus, one.name))

    def __iter__(self) -> Iterator[Fact]:
        return iter([one for of_bus in self._facts.values() for one in of_bus.values()])
