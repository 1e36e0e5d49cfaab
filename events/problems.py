"""Problem details (RFC 9457): errors of requests and events, for people and programs. Pure."""

from __future__ import annotations

from typing import Any, Final

PROBLEM_TYPE: Final = "application/problem+json"
TITLES: Final = {
    400: "Bad request",
    401: "Log in",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Unknown content type",
    421: "Wrong host",
    422: "Breaks its contract",
    429: "Too many requests",
    500: "Internal error",
    503: "Not now",
}


class Problem(Exception):
    """A request that cannot be carried out.

    Attributes:
        status: the HTTP status.
        code: a word for programs, which stays.
        detail: the expected and the given value.
        challenge: how to log in, where that is missing.
        more: further members of the answer.
    """

    def __init__(self, status: int, code: str, detail: str, *, challenge: str = "", **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.challenge = challenge
        self.more = more

    def document(self) -> dict[str, Any]:
        """The members of the problem document."""
        title = TITLES.get(self.status, "Error")
        return {"type": f"urn:penstock:{self.code}", "title": title, "status": self.status, "detail": self.detail} | (
            self.more
        )


def invalid_event(detail: str) -> Problem:
    """The problem of a request or document that is not a valid event."""
    return Problem(400, "invalid-event", detail)


def invalid_config(detail: str, where: str = "") -> Problem:
    """The problem of a wrong pattern, transform, target or the like. ``where``: the JSON pointer of the fault."""
    return Problem(400, "invalid-config", detail, **({"pointer": where} if where else {}))
