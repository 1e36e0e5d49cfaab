"""Checks of programs' arguments to the clients: each wrong argument is one clear line. Pure."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from numbers import Real
from typing import Final, Literal, NoReturn, cast

from penstock.errors import InvalidRequest
from penstock.protocol.received import MessageQueue, ReceivedMessage
from topicmap.queues import DEAD_LETTER_PREFIX, RETRY_PREFIX, TopicMap

Start = Literal["earliest", "latest"] | datetime | int
"""Where reading begins: at the first message, with new ones only, or at the first message that was stored at or after a
time: a ``datetime`` with a time zone, or milliseconds since 1970."""

Beginning = Literal["earliest", "latest"] | int
"""A ``Start`` whose time is in milliseconds since 1970."""

Place = Literal["earliest", "latest"] | datetime | int
"""A place in a queue: an offset, the first message, the end, or the first message that was stored at or after a
time."""

WHOLE_MAX: Final = 2**63 - 1
"""No larger number travels."""
SOCKET_S_MAX: Final = 1_000_000
"""A blocking client waits no longer for anything: a socket counts its milliseconds in 32 bits."""
TIME_MS_MIN: Final = 100_000_000_000
"""Less is no time to begin at (it would be 1973) but an offset, or a time in seconds."""
_NOT_IN_GROUPS: Final = ("#", "@", RETRY_PREFIX, DEAD_LETTER_PREFIX)
_START: Final = "start is 'earliest', 'latest', a datetime with a time zone or milliseconds since 1970"


class OnlyAsync:
    """A client that ``async with`` opens: a plain ``with`` says so."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        hint = "penstock.blocking has the classes for `with`"
        raise InvalidRequest(f"a {type(self).__name__} is opened by `async with`, not by `with`", hint=hint)

    def __exit__(self, *_: object) -> None:
        """Never called."""


class OnlyBlocking:
    """A client that ``with`` opens: an ``async with`` says so."""

    __slots__ = ()

    async def __aenter__(self) -> NoReturn:
        hint = "the classes for `async with` are in penstock itself"
        raise InvalidRequest(f"a blocking {type(self).__name__} is opened by `with`, not by `async with`", hint=hint)

    async def __aexit__(self, *_: object) -> None:
        """Never called."""


def check_seconds(name: str, given: object, at_least: float = 0) -> None:
    """Raises ``InvalidRequest`` unless a program gave a number of seconds."""
    if isinstance(given, bool) or not isinstance(given, Real) or not _is_number(given):
        raise InvalidRequest(f"{name} is a number of seconds, not {given!r:.50}")
    if given < at_least:
        raise InvalidRequest(f"{name} is at least {at_least:g} s, not {given!r}")


def check_wait(name: str, given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a number of seconds for which a socket can wait."""
    check_seconds(name, given)
    if cast(float, given) > SOCKET_S_MAX:
        raise InvalidRequest(f"{name} is at most {SOCKET_S_MAX:_} s, not {given!r:.50}")


def _is_number(given: Real) -> bool:
    try:
        return not math.isnan(given)
    except OverflowError:  # more than a float holds
        return False


def check_count(name: str, given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a number of things, at least one."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidRequest(f"{name} is a whole number from 1 on, not {given!r}")
    if given > WHOLE_MAX:
        raise InvalidRequest(f"{name} is at most {WHOLE_MAX}, not {given!r}")


def check_integer(name: str, given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a whole number that travels."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidRequest(f"{name} is a whole number, not {given!r:.100}")
    if not -WHOLE_MAX <= given <= WHOLE_MAX:
        bound = f"at most {WHOLE_MAX}" if given > 0 else f"at least {-WHOLE_MAX}"
        raise InvalidRequest(f"{name} is {bound}, not {given!r:.100}")


def check_flag(name: str, given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a bool."""
    if not isinstance(given, bool):
        raise InvalidRequest(f"{name} is True or False, not {given!r:.100}")


def topic_map_of(given: object) -> TopicMap:
    """The rules of names that a program gave; none are the usual ones. Raises ``InvalidRequest``."""
    if given is None:
        return TopicMap()
    if not isinstance(given, TopicMap):
        raise InvalidRequest(
            f"topic_map is a TopicMap, not {given!r:.100}", hint="from topicmap.queues import TopicMap"
        )
    return given


def check_text(name: str, given: object, hint: str = "") -> None:
    """Raises ``InvalidRequest`` unless a program gave a text that is not empty."""
    if not isinstance(given, str):
        raise InvalidRequest(f"{name} is a str, not {given!r}", hint=hint)
    if not given:
        raise InvalidRequest(f"{name} is empty", hint=hint)


def check_name(what: str, given: object, signs: Sequence[str], hint: str = "") -> None:
    """Raises ``InvalidRequest`` unless a program gave a text that is not empty and holds none of these."""
    check_text(what, given, hint)
    held = [sign for sign in signs if sign in cast(str, given)]
    if held:
        raise InvalidRequest(f"{what} {given!r:.100} holds {held[0]}", hint=f"it may not hold {', '.join(signs)}")


def check_group_name(given: object, hint: str = "") -> None:
    """Raises ``InvalidRequest`` unless a program gave the name of a group. ``GROUP@CLIENT`` is a broadcast client's."""
    check_name("group", given, _NOT_IN_GROUPS, hint)


def check_group(given: object) -> None:
    """Raises ``InvalidRequest`` unless a program named a group as it is stored, also a broadcast client's."""
    check_text("group", given)
    group, _, client = cast(str, given).partition("@")
    check_group_name(group)
    if client:
        check_name("client", client, "/@")


def check_handler(given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a function that can be awaited."""
    if not _is_async(given):
        raise InvalidRequest(f"a handler is an async function, not {given!r}", hint="write it as `async def`")


def check_plain_handler(given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a function that returns when a message is done."""
    if not callable(given):
        raise InvalidRequest(f"a handler is a function, not {given!r:.100}")
    if _is_async(given):
        hint = "penstock.Consumer and penstock.PopConsumer have async handlers"
        raise InvalidRequest(f"a blocking handler is a plain function, not {given!r:.100}", hint=hint)


def _is_async(given: object) -> bool:
    return inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None))  # noqa: B004


def time_ms(name: str, given: object) -> int:
    """Milliseconds since 1970. Raises ``InvalidRequest`` for what is no time."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidRequest(f"{name} has no time zone: {given!r}", hint="datetime.now(UTC) has one")
        return max(0, int(given.timestamp() * 1000))
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= WHOLE_MAX:
        raise InvalidRequest(f"{name} is a datetime or whole milliseconds since 1970, not {given!r}")
    return given


def beginning_of(start: object) -> Beginning:
    """The beginning of reading. Raises ``InvalidRequest`` for any other value."""
    if start == "earliest":
        return "earliest"
    if start == "latest":
        return "latest"
    if isinstance(start, datetime):
        return time_ms("start", start)
    if isinstance(start, bool) or not isinstance(start, int) or not TIME_MS_MIN <= start <= WHOLE_MAX:
        raise InvalidRequest(f"{_START}, not {start!r}", hint="`seek` goes to an offset")
    return start


def check_queue(queue: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a queue."""
    if not isinstance(queue, MessageQueue):
        raise InvalidRequest(f"a queue is a MessageQueue, not {queue!r}", hint="received messages and receipts have it")


def queues_of(given: MessageQueue | Iterable[MessageQueue]) -> list[MessageQueue]:
    """The queues that a program named, one or several. Raises ``InvalidRequest``."""
    if isinstance(given, MessageQueue):
        return [given]
    try:
        queues = list(given)
    except TypeError:
        raise InvalidRequest(f"queues are MessageQueues, not {given!r}") from None
    for queue in queues:
        check_queue(queue)
    return queues


def commit_of(what: object) -> Mapping[MessageQueue, int]:
    """The next offset of each queue that a program wants to have committed. Raises ``InvalidRequest``."""
    if isinstance(what, ReceivedMessage):
        return {what.queue: what.offset + 1}
    if not isinstance(what, Mapping):
        raise InvalidRequest(
            f"commit takes a received message or {{queue: offset}}, not {what!r}",
            hint="without an argument it covers all that was handed out",
        )
    for queue, offset in what.items():
        check_queue(queue)
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= WHOLE_MAX:
            raise InvalidRequest(f"an offset is a whole number from 0 on, not {offset!r}")
    return what
