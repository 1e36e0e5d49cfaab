"""How programs name topics: by the name of a topic, or by any first level of MQTT names.

A topic has few characters (``topicmap/queues.py``); what else a program writes is mapped as gateways map first levels,
so that ``température`` is one topic for devices and services. The topic is what is stored and shown. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from penstock.errors import InvalidRequest, InvalidTopic, ReservedName
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from topicmap.names import EVENTS_LEVEL, REPLY_LEVEL, SYS_LEVEL, InvalidName, quoted
from topicmap.queues import encode_level, is_own_topic, topic_named

GATEWAYS_LEVELS: Final = (SYS_LEVEL, EVENTS_LEVEL)
"""First levels of the MQTT names under which programs do not publish."""
_REPLIES: Final = encode_level(REPLY_LEVEL)


@lru_cache(maxsize=1024)
def topic_of(name: str) -> str:
    """The topic that a name means. Raises ``InvalidTopic`` where the name breaks a rule, which the error tells."""
    try:
        return topic_named(name)
    except InvalidName as error:
        hint = "a message with the MQTT name a/b is in the topic a, its first level" if "/" in name else ""
        raise InvalidTopic(str(error), hint=hint) from None


def check_publishable(topic: str, name: str) -> None:
    """Raises ``ReservedName`` unless programs may store messages in a topic under a MQTT name, empty for the topic's
    own. Replies go to names under ``$reply``; it cannot be a topic."""
    first = name.partition("/")[0]
    if is_own_topic(topic):
        raise ReservedName(f"only the broker stores messages in {topic!r}")
    if topic in GATEWAYS_TOPICS or first in GATEWAYS_LEVELS:
        raise ReservedName(f"only gateways publish under {quoted(name or topic)}")
    if topic == _REPLIES and "/" not in name:
        raise ReservedName(f"{REPLY_LEVEL} is no topic: replies have names under it")


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
