"""Requests that need not be encoded for a server in the same process. Over a wire each goes as another request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from penstock.requests.messages import Appended, AppendRuns
from penstock.requests.request import Reply, Request, value
from penstock.runs import Run, checksum_of, encode_runs


@value
class GivenRuns(Request):
    """Stores publications of devices, ``count`` messages in all; over a wire ``AppendRuns``. The runs are the server's
    to read from then on: nobody changes them."""

    reply: ClassVar[type[Reply]] = Appended
    count: int
    runs: Sequence[Run]

    def for_wire(self) -> AppendRuns:
        body = encode_runs(self.runs)
        return AppendRuns(self.count, checksum_of(body), body)
