"""The base classes of requests and replies. This module is compiled, so the classes of ``given.py``, which derive from
them and stay in a process, can be compiled too. Requests that travel are dataclasses."""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Reply:
    """Base of all replies."""

    __slots__ = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Request:
    """Base of all requests. ``code`` stands for the type on the wire, ``reply`` is the type of the answer.
    ``is_repeatable``: it changes nothing, so that a server may drop its reply and carry it out again."""

    __slots__ = ()
    code: ClassVar[int] = 0
    is_repeatable: ClassVar[bool] = False
    reply: ClassVar[type[Reply]]

    def for_wire(self) -> Request:
        """The request that goes over a wire for it: itself, unless it is one for the same process (``given.py``)."""
        return self

    def reply_bytes(self) -> int:
        """About how many bytes the reply to a request that is not repeatable may have, where it may be large; else
        0."""
        return 0
