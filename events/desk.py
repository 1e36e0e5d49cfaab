"""What the HTTP face does with configuration: checks, reads and writes of buses, sources, rules, targets and schemas.

A value is compiled before it is written, and the values that it names must exist. A write says which revision it
replaces, if the caller said so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from events.catalogue import Catalogue
from events.cloudevents import Event
from events.config_log import ConfigLog
from events.contracts import Contract, incompatibilities
from events.facts import Fact
from events.mapping import Reading, Source
from events.problems import Problem, invalid_config
from events.pushing import request_of
from events.rules import Rules
from events.runner import group_of
from events.specs import NAME, TYPE, Bus, Http, Rule, Target, check_name
from events.transform import TransformFailed
from penstock import Admin
from penstock.client.administration import DeadLetter
from penstock.errors import TopicExists, TopicNotFound
from penstock.world import Clock

OF_EACH_MAX: Final = 10_000
VERSIONS_MAX: Final = 100
LETTERS_MAX: Final = 1_000
FAILED_TOLD_MAX: Final = 20
COMPATIBILITIES: Final = ("backward", "none")


class Desk:
    """Carries out what callers ask of the configuration."""

    def __init__(self, config: ConfigLog, admin: Admin, rules: Rules, catalogue: Catalogue, clock: Clock) -> None:
        self._config = config
        self._facts = config.facts
        self._admin = admin
        self._rules = rules
        self._catalogue = catalogue
        self._clock = clock

    def rows(self, kind: str, bus: str | None) -> list[dict[str, Any]]:
        """All values of a kind, of one bus or of all."""
        if bus is not None:
            self._bus(bus)
        return [self._shown(one) for one in self._facts.all(kind, bus)]

    def get(self, kind: str, bus: str, name: str = "") -> Fact:
        """One value. Raises ``Problem`` where it is not there."""
        found = self._facts.get(kind, bus, name)
        if found is None:
            raise Problem(404, f"no-{kind}", f"there is no {kind} {name or bus!r:.150}")
        return found

    def show(self, kind: str, bus: str, name: str = "") -> dict[str, Any]:
        """As ``get``, for people and programs."""
        return self._shown(self.get(kind, bus, name))

    def _shown(self, fact: Fact) -> dict[str, Any]:
        document = fact.document()
        if fact.kind == "rule":
            counts = self._rules.counts.get((fact.bus, fact.name))
            document["group"] = group_of(fact.bus, fact.name)
            document["here"] = counts.document(self._clock.wall_ms()) if counts else {"state": "starts"}
        return document

    def _bus(self, bus: str) -> Fact:
        return self.get("bus", bus)

    async def put(self, kind: str, bus: str, name: str, spec: Any, replaces: int) -> tuple[Fact, bool]:
        """Writes one value; returns it, and whether it is new. Raises ``Problem``."""
        check_name(bus, "bus")
        if name:
            check_name(name, kind, TYPE if kind == "schema" else NAME)
        before = self._facts.get(kind, bus, name)
        if before is None and len(self._facts.all(kind)) >= OF_EACH_MAX:
            raise Problem(409, "too-many", f"there are {OF_EACH_MAX} of the kind {kind}")
        if kind == "bus":
            Bus.of(spec)
            await self._ensure_topic(bus)
        else:
            self._bus(bus)
            spec = self._checked(kind, bus, name, spec)
        now = await self._config.write(kind, bus, name, spec, replaces)
        assert now is not None
        return now, before is None

    def _checked(self, kind: str, bus: str, name: str, spec: Any) -> Any:
        """The checked value to write. Raises ``Problem``."""
        if kind == "schema":
            return self._next_version(bus, name, spec)
        if kind == "rule":
            rule = Rule.of(spec)
            if self._facts.get("target", bus, rule.target) is None:
                raise Problem(409, "no-target", f"there is no target {rule.target} in the bus {bus}")
        elif kind == "target":
            Target.of(spec)
        else:
            source = Source(spec)
            others = [one for one in self._facts.all("source", bus) if one.name != name]
            if source.topic == bus or any(Source(one.spec).topic == source.topic for one in others):
                raise Problem(409, "mapped", f"the topic {source.topic} is the bus, or has a source already")
        return spec

    def _next_version(self, bus: str, of_type: str, spec: Any) -> dict[str, Any]:
        if not isinstance(spec, dict) or not {"schema"} <= spec.keys() <= {"schema", "compatibility"}:
            raise invalid_config("a contract is an object with schema, and compatibility if it is to change")
        before = self._facts.get("schema", bus, of_type)
        versions = list(before.spec["versions"]) if before else []
        wanted = spec.get("compatibility", before.spec["compatibility"] if before else "backward")
        if wanted not in COMPATIBILITIES:
            raise invalid_config(f"compatibility is one of {', '.join(COMPATIBILITIES)}", "/compatibility")
        Contract(spec["schema"])
        if versions and versions[-1]["schema"] == spec["schema"]:
            return {"compatibility": wanted, "versions": versions}
        if versions and wanted == "backward":
            found = incompatibilities(versions[-1]["schema"], spec["schema"])
            if found:
                detail = f"version {versions[-1]['version']} allows what this one does not"
                raise Problem(409, "incompatible", detail, incompatibilities=found[:FAILED_TOLD_MAX])
        number = versions[-1]["version"] + 1 if versions else 1
        version = {"version": number, "since_ms": self._clock.wall_ms(), "schema": spec["schema"]}
        versions = [*versions, version][-VERSIONS_MAX:]
        return {"compatibility": wanted, "versions": versions}

    async def _ensure_topic(self, bus: str) -> None:
        try:
            await self._admin.topic(bus)
        except TopicNotFound:
            with contextlib.suppress(TopicExists):  # another instance was faster
                await self._admin.create_topic(bus)

    async def delete(self, kind: str, bus: str, name: str, replaces: int) -> None:
        """Removes one value. Raises ``Problem`` where it is not there, or is needed."""
        self.get(kind, bus, name)
        if kind == "target":
            users = [one.name for one in self._facts.all("rule", bus) if one.spec.get("target") == name]
            if users:
                raise Problem(409, "in-use", f"rules have the target {name}", rules=users[:FAILED_TOLD_MAX])
        if kind == "bus":
            left = [f"{of} {one.name}" for of in ("rule", "source", "target") for one in self._facts.all(of, bus)]
            if left:
                raise Problem(409, "in-use", f"the bus {bus} has parts", parts=left[:FAILED_TOLD_MAX])
            for of in ("schema", "type"):
                for one in self._facts.all(of, bus):
                    await self._config.write(of, bus, one.name, None)
        await self._config.write(kind, bus, name, None, replaces)

    def types(self, bus: str | None) -> list[dict[str, Any]]:
        """The catalogue."""
        if bus is not None:
            self._bus(bus)
        return self._catalogue.rows(bus)

    # -- dry runs

    def test(self, bus: str, name: str, event: Event) -> dict[str, Any]:
        """Shows the effect of a rule on an event; nothing is sent."""
        spec = self.get("rule", bus, name).spec
        target = self._facts.get("target", bus, str(spec.get("target")))
        return verdict(spec, target.spec if target else None, event, {"bus": bus, "rule": name})

    # -- dead letters

    async def letters(self, bus: str, name: str, count: int) -> list[dict[str, Any]]:
        """The latest dead letters of a rule."""
        self.get("rule", bus, name)
        try:
            found = await self._admin.letters_of(group_of(bus, name), min(count, LETTERS_MAX))
        except TopicNotFound:
            return []
        reading = Reading([Source(one.spec) for one in self._facts.all("source", bus)])
        return [letter_row(one, reading) for one in found[-count:]]

    async def redrive(self, bus: str, name: str, *, again: bool) -> dict[str, Any]:
        """Sends a rule its dead letters again, those that were not sent before or, with ``again``, all."""
        self.get("rule", bus, name)
        try:
            sent = await self._admin.redrive(group_of(bus, name), again=again)
            self._rules.wake(bus, name)
        except TopicNotFound:
            sent = []
        failed = [one for one in sent if one.error is not None]
        status = "SUCCESS" if not failed else "PARTIAL" if len(failed) < len(sent) else "FAILED"
        told = [
            {"place": f"{one.letter.message.queue}/{one.letter.message.offset}", "reason": str(one.error)}
            for one in failed[:FAILED_TOLD_MAX]
        ]
        return {"status": status, "sent": len(sent) - len(failed), "failed": len(failed), "failures": told}


def letter_row(letter: DeadLetter, reading: Reading) -> dict[str, Any]:
    """A dead letter as the HTTP face shows it."""
    message = letter.message
    event = reading.event_of(message, letter.origin)
    attributes = event.attributes if event else {}
    return {
        "id": attributes.get("id", ""),
        "type": attributes.get("type", ""),
        "source": attributes.get("source", ""),
        "subject": attributes.get("subject", ""),
        "topic": letter.origin,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "stored_ms": message.stored_ms,
        "place": f"{message.queue}/{message.offset}",
    }


def verdict(spec: Any, target: Any, event: Event, names: Mapping[str, str]) -> dict[str, Any]:
    """The effect of a rule, as it is given here, on an event. Raises ``Problem``."""
    rule = Rule.of(spec)
    matches = rule.pattern is None or rule.pattern.matches(event)
    made: dict[str, Any] = {"matches": matches, "explanation": rule.pattern.explain(event) if rule.pattern else []}
    if not matches:
        return made
    try:
        payload = rule.transform.apply(event, names)
    except TransformFailed as error:
        return made | {"failure": str(error)}
    to = Target.of(target).to if target is not None else None
    if isinstance(to, Http):
        headers, body = request_of(to, [(event, payload)])
        return made | {"method": to.method, "url": to.url, "headers": headers, "body": body.decode("utf-8", "replace")}
    headers = {"content-type": payload.content_type}
    return made | {"headers": headers, "body": payload.body.decode("utf-8", "replace")}
