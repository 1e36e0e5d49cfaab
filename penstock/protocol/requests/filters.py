"""The light queues of MQTT filters, and retained messages. Codes 60 to 69."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value


class OpenedFilter(NamedTuple):
    """A filter's light queue, and the offset and log position at which it begins to fill for this caller."""

    filter: str
    queue: str
    offset: int
    position: int


class RefusedFilter(NamedTuple):
    """A filter that was not opened, and the error that stands for why (``errors.from_wire``)."""

    filter: str
    code: int
    message: str


@value
class OpenedFilters(Reply):
    """``opened`` has those that are open, ``refused`` the others, each in the order asked. ``log_id``: the log in which
    the offsets are; empty where the broker does not tell."""

    opened: tuple[OpenedFilter, ...]
    refused: tuple[RefusedFilter, ...] = ()
    log_id: str = ""


@value
class OpenFilters(Request):
    """Opens the light queues of MQTT filters for an owner (one life of a gateway); opening again is fine. Each is
    opened or refused on its own. Every message appended after the reply's position is in the queue. A filter closes
    when no owner holds it any more."""

    code: ClassVar[int] = 60
    reply: ClassVar[type[Reply]] = OpenedFilters
    owner: str
    filters: tuple[str, ...]


@value
class CloseFilters(Request):
    """An owner's end of its hold on filters; a filter that nothing holds closes."""

    code: ClassVar[int] = 61
    reply: ClassVar[type[Reply]] = Done
    owner: str
    filters: tuple[str, ...]


@value
class FiltersKept(Reply):
    """``traced``: the topics of which messages are traced here."""

    traced: tuple[str, ...] = ()


@value
class KeepFilters(Request):
    """An owner lives: its filters stay open for another ``lease_s`` seconds."""

    code: ClassVar[int] = 62
    reply: ClassVar[type[Reply]] = FiltersKept
    owner: str
    lease_s: float


class FilterLevel(NamedTuple):
    """A level of open MQTT filters below a parent: how many ``filters`` are there or further below, and how many
    ``holders`` (gateways, and sessions that stay) the one has that ends here; 0: none ends here."""

    level: str
    filters: int
    holders: int


@value
class FilterLevels(Reply):
    """Levels in order of their names; ``count``: of all levels that there are, on other pages too."""

    levels: tuple[FilterLevel, ...]
    count: int


@value
class ListFilters(Request):
    """The levels of open MQTT filters just below ``parent`` (``plant/a``; with ``is_first`` the first levels), without
    the first ``skip`` of them. Shared subscriptions are below ``$share``."""

    code: ClassVar[int] = 64
    reply: ClassVar[type[Reply]] = FilterLevels
    is_repeatable: ClassVar[bool] = True
    parent: str = ""
    is_first: bool = True
    skip: int = 0
    count_max: int = 200


@value
class RetainedPage(Reply):
    """``count`` retained messages as in ``Pulled`` (offsets are 0); ``after`` continues, empty at the end."""

    count: int
    after: str
    body: Bytes


@value
class FetchRetained(Request):
    """Retained messages whose topic name matches ``filter``, in order of their names, those after ``after``."""

    code: ClassVar[int] = 63
    reply: ClassVar[type[Reply]] = RetainedPage
    is_repeatable: ClassVar[bool] = True
    filter: str
    after: str = ""
    count_max: int = 256
