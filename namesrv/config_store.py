"""The name server's small key-value store: texts by namespace and key, for programs and operators. Pure.

Two namespaces mean something here. ``ORDER_TOPIC_CONFIG`` says for a topic which brokers its keys are spread over, as
``broker-a;broker-b`` (RocketMQ's ``broker-a:4;broker-b:4`` is fine; its numbers of queues are not looked at). A key of
such a topic then stays with its broker also while that one is away. ``GATEWAY_SETTINGS`` has settings of running
gateways: those that may change, and values that they take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from penstock.errors import Busy, InvalidRequest, PenstockError
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import (
    GATEWAY_SETTINGS,
    ORDERED_TOPICS,
    ConfigEntries,
    ConfigEntry,
    PutConfig,
    QueryConfig,
)
from penstock.service.live_settings import check_gateways

ENTRIES_MAX: Final = 10_000
NAME_BYTES_MAX: Final = 255
VALUE_BYTES_MAX: Final = 4096
_BROKER: Final = re.compile(r"([A-Za-z0-9._-]{1,255})(:\d+)?")


class ConfigStore:
    """All entries of one name server.

    Attributes:
        version: grows with each change.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], str] = {}
        self._ordered: dict[str, tuple[str, ...]] = {}
        self.version = 0

    def brokers_of(self, topic: str) -> tuple[str, ...]:
        """The brokers that an ordered topic's keys are spread over; none of any other topic."""
        return self._ordered.get(topic, ())

    def answer(self, request: Request) -> Result | None:
        """The result of a request; None if it is none of these."""
        try:
            if isinstance(request, PutConfig):
                self.put(request.namespace, request.key, request.value)
                return Done()
        except PenstockError as error:
            return error.as_result()
        if isinstance(request, QueryConfig):
            return ConfigEntries(tuple(self._found(request.namespace, request.key)))
        return None

    def _found(self, namespace: str, key: str) -> Iterator[ConfigEntry]:
        for (space, name), value in sorted(self._entries.items()):
            if namespace in ("", space) and key in ("", name):
                yield ConfigEntry(space, name, value)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets an entry; an empty value removes it. Raises ``InvalidRequest`` and ``Busy``."""
        for what, text, most in (
            ("a namespace", namespace, NAME_BYTES_MAX),
            ("a key", key, NAME_BYTES_MAX),
            ("a value", value or "-", VALUE_BYTES_MAX),
        ):
            if not 1 <= len(text.encode("utf-8", "replace")) <= most:
                raise InvalidRequest(f"{what} has 1 to {most} bytes")
        if namespace == GATEWAY_SETTINGS and value:
            check_gateways(key, value)
        brokers = _brokers_in(value) if namespace == ORDERED_TOPICS and value else ()
        if not value:
            self._entries.pop((namespace, key), None)
        elif len(self._entries) >= ENTRIES_MAX and (namespace, key) not in self._entries:
            raise Busy(f"there are {ENTRIES_MAX} entries: the limit is reached")
        else:
            self._entries[namespace, key] = value
        if namespace == ORDERED_TOPICS:
            self._ordered.pop(key, None)
            if brokers:
                self._ordered[key] = brokers
        self.version += 1

    def as_json(self) -> str:
        """All of it as a file keeps it."""
        spaces: dict[str, dict[str, str]] = {}
        for (namespace, key), value in sorted(self._entries.items()):
            spaces.setdefault(namespace, {})[key] = value
        return json.dumps(spaces, ensure_ascii=False, indent=1) + "\n"

    def take_json(self, text: str) -> None:
        """Sets all entries of a file. Raises ``InvalidRequest`` for what is none."""
        try:
            spaces = json.loads(text)
            entries = [(space, key, value) for space, keys in spaces.items() for key, value in keys.items()]
        except (ValueError, AttributeError) as error:
            raise InvalidRequest(f"it is no JSON object of objects: {error}") from None
        for entry in entries:
            if not all(isinstance(one, str) for one in entry):
                raise InvalidRequest("its values are texts")
            self.put(*entry)


def _brokers_in(value: str) -> tuple[str, ...]:
    found = [_BROKER.fullmatch(part.strip()) for part in value.split(";") if part.strip()]
    names = [one[1] for one in found if one is not None]
    if not names or len(names) < len(found) or len(set(names)) < len(names):
        raise InvalidRequest(
            f"{value!r} names no brokers",
            hint="write each once: broker-a;broker-b, or as RocketMQ broker-a:4;broker-b:4",
        )
    return tuple(names)
