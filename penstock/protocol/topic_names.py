"""How programs name topics: by the name of a topic, or by any first level of MQTT names.

A topic has few characters (``topicmap/queues.py``); what else a program writes is mapped as gateways map first levels,
so that ``température`` is one topic for devices and services. What is stored and shown is the topic. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from penstock.errors import InvalidRequest, InvalidTopic
from topicmap.names import InvalidName
from topicmap.queues import topic_named


@lru_cache(maxsize=1024)
def topic_of(name: str) -> str:
    """The topic that a name means. Raises ``InvalidTopic`` where the name breaks a rule, which the error tells."""
    try:
        return topic_named(name)
    except InvalidName as error:
        hint = "what has the MQTT name a/b is in the topic a, its first level" if "/" in name else ""
        raise InvalidTopic(str(error), hint=hint) from None


def topics_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """The topics that a reader's names mean, each once. Raises ``InvalidRequest`` where there is none."""
    if not isinstance(names, Iterable):
        raise InvalidRequest(f"topics are named by str, not {names!r}")
    given = [names] if isinstance(names, str) else list(names)
    for name in given:
        if not isinstance(name, str):
            raise InvalidRequest(f"a topic is a str, not {name!r}")
    topics = tuple(dict.fromkeys(map(topic_of, given)))
    if not topics:
        raise InvalidRequest("a consumer reads one topic or more")
    return topics
