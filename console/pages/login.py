"""Login and logout."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from console import markup
from console.visits import COOKIE, Console, Endpoint, address_of, read_form, set_cookie

WRONG: Final = "Name or password is wrong."
WAIT: Final = "Too many attempts. Wait a minute."


def login_page(console: Console) -> Endpoint:
    """The form of a name and a password."""

    async def endpoint(request: Request) -> Response:
        if console.users is None:
            return RedirectResponse("/", 303)
        return _form(request.query_params.get("to", ""))

    return endpoint


def log_in(console: Console) -> Endpoint:
    """Checks a name and a password. ``Guard`` has seen that the form is the console's own."""

    async def endpoint(request: Request) -> Response:
        form, address = await read_form(request), address_of(request)
        if form is None:
            return PlainTextResponse("the form is too large\n", 413)
        if console.users is None:
            return RedirectResponse("/", 303)
        user = form.get("user", "")
        if not console.attempts.begin(address):
            console.note("", request, "Login", "", allowed=False, why="too_many")
            return _form(form.get("to", ""), WAIT, 429)
        if not await console.users.authenticate(user, form.get("password", "")):
            console.note("", request, "Login", "", allowed=False, why="wrong_password")
            return _form(form.get("to", ""), WRONG, 403)
        console.attempts.proves_right(address)
        console.logins.close(request.cookies.get(COOKIE, ""))
        token, _ = console.logins.open(user)
        console.note(user, request, "Login", "", allowed=True)
        response = RedirectResponse(_own(form.get("to", "")), 303)
        set_cookie(response, token, console)
        return response

    return endpoint


def log_out(console: Console) -> Endpoint:
    """Ends the login of a browser."""

    async def endpoint(request: Request) -> Response:
        console.logins.close(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    return endpoint


def _own(to: str) -> str:
    """Where to go after a login: a page of the console, whatever the address says."""
    is_own = to.startswith("/") and not to.startswith("//") and "\\" not in to and to.isprintable()
    return to if is_own else "/"


def _form(to: str, failed: str = "", status: int = 200) -> Response:
    told = Markup('<p class="failed" role="alert">{}</p>').format(failed) if failed else Markup("")
    form = Markup('<form method="post" action="/login">{}{}{}<button>Log in</button></form>').format(
        markup.hidden_field("to", to),
        markup.field("User", "user", more='autocomplete="username" required autofocus'),
        markup.field("Password", "password", kind="password", more='autocomplete="current-password" required'),
    )
    return HTMLResponse(str(markup.bare_page("Log in", told + form)), status)
