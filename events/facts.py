"""The configuration as a fold of the log: buses, sources, rules, targets, schemas and types.

A fact is the retained message of an MQTT name ``$events/KIND/BUS/NAME``: the new value, or an empty body for a removal.
Its revision is its log position. The broker takes a fact only if the one that it replaces stands (``IF_RETAINED``), and
keeps the last value however old it is. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from penstock.protocol.message import CLIENT_ID, FLAG_RETAIN, IF_RETAINED, MQTT_TOPIC, encode_properties, encode_record
from topicmap.names import EVENTS_LEVEL
from topicmap.queues import EVENTS_TOPIC

TOPIC: Final = EVENTS_TOPIC
ALL: Final = f"{EVENTS_LEVEL}/#"
ANY: Final = -1
"""A write that replaces whatever stands."""
NONE: Final = 0
"""The revision of a value that is not there."""
KINDS: Final = ("bus", "source", "rule", "target", "schema", "type")
_SERVICE: Final = "events"


@dataclass(frozen=True, slots=True)
class Fact:
    """A value that stands. ``created_ms``: when it was written where none stood. ``write``: the id of the write."""

    kind: str
    bus: str
    name: str
    spec: Any
    revision: int
    created_ms: int
    write: str = ""

    def document(self) -> dict[str, Any]:
        """The value as the HTTP face shows it."""
        name = {"name": self.name or self.bus}
        return name | ({"bus": self.bus} if self.name else {}) | {"revision": self.revision, "spec": self.spec}


class StoredFact(NamedTuple):
    """A fact's message as the log has it. ``name``: its MQTT name."""

    position: int
    name: str
    body: bytes
    stored_ms: int


def name_of(kind: str, bus: str, name: str) -> str:
    """The MQTT name of a fact."""
    return f"{EVENTS_LEVEL}/{kind}/{bus}/{name}"


def record_of(name: str, spec: Any, replaces: int, created_ms: int, write: str, born_ms: int) -> bytes:
    """The record of a fact. ``spec``: None removes. ``replaces``: the revision that must stand. ``created_ms``: of the
    value that it replaces, 0 where none stands."""
    body = b"" if spec is None else orjson.dumps({"spec": spec, "created_ms": created_ms, "write": write})
    properties = encode_properties({MQTT_TOPIC: name, CLIENT_ID: _SERVICE, IF_RETAINED: str(replaces)})
    return encode_record(TOPIC.encode(), body, properties, flag=FLAG_RETAIN, born_ms=born_ms)


class Facts:
    """The facts that stand after a prefix of the log.

    Attributes:
        position: of the last message that was folded.
        changes: how many messages have changed a fact.
    """

    def __init__(self) -> None:
        self.position = 0
        self.changes = 0
        self._facts: dict[tuple[str, str], dict[str, Fact]] = {}  # kind and bus -> by name

    def begin(self, stands: Iterable[StoredFact]) -> None:
        """Replaces all facts by these. The log may bring some of them again."""
        before, self._facts = self._facts, {}
        for one in sorted(stands):
            self._put(one)
            self.position = max(self.position, one.position)
        self.changes += before != self._facts

    def fold(self, one: StoredFact) -> bool:
        """Takes one message of the log in; returns whether it changed anything. Other messages, and facts older than
        the current one, are skipped."""
        self.position = max(self.position, one.position)
        changed = self._put(one)
        self.changes += changed
        return changed

    def _put(self, one: StoredFact) -> bool:
        level, _, rest = one.name.partition("/")
        kind, _, rest = rest.partition("/")
        bus, _, name = rest.partition("/")
        before = self.get(kind, bus, name)
        if level != EVENTS_LEVEL or kind not in KINDS or (before and one.position <= before.revision):
            return False
        if not one.body:
            if before is not None:
                del self._facts[kind, bus][name]
            return before is not None
        try:
            given = orjson.loads(one.body)
            spec, created_ms, write = given["spec"], int(given["created_ms"]), str(given["write"])
        except (ValueError, KeyError, TypeError):
            return False
        of_bus = self._facts.setdefault((kind, bus), {})
        of_bus[name] = Fact(kind, bus, name, spec, one.position, created_ms or one.stored_ms, write)
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
