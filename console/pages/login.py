"""Login and logout."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from console import markup
from console.visits import COOKIE, Console, Endpoint, address_of, read_form, set_cookie
from penstock.access.policy import UNPROVEN

WRONG: Final = "Name or password is wrong."
WRONG_TOKEN: Final = "This token does not count: it has ended, or another key has signed it."
WAIT: Final = "Too many attempts. Wait a minute."


def login_page(console: Console) -> Endpoint:
    """The form of a name and a password, or of a token."""

    async def endpoint(request: Request) -> Response:
        if console.users is None:
            return RedirectResponse("/", 303)
        return _form(console, request.query_params.get("to", ""))

    return endpoint


def log_in(console: Console) -> Endpoint:
    """Checks a name and a password, or a token. ``Guard`` has seen that the form is the console's own."""

    async def endpoint(request: Request) -> Response:
        form, address = await read_form(request), address_of(request)
        if console.users is None:
            return RedirectResponse("/", 303)
        shown, to = form.get("token", "").strip(), form.get("to", "")
        if not console.attempts.begin(address):
            console.note(UNPROVEN, request, "Login", "", allowed=False, why="too_many")
            return _form(console, to, WAIT, 429)
        if shown:
            who = await console.users.of_token(shown)
        else:
            who = await console.users.of_password(form.get("user", ""), form.get("password", ""))
        if who is None or not who.user:
            why = "wrong_token" if shown else "wrong_password"
            claimed = UNPROVEN if shown else console.users.claimed(form.get("user", ""))
            console.note(claimed, request, "Login", "", allowed=False, why=why)
            return _form(console, to, WRONG_TOKEN if shown else WRONG, 403)
        console.attempts.proves_right(address)
        console.logins.close(request.cookies.get(COOKIE, ""))
        token, _ = console.logins.open(who)
        console.note(who, request, "Login", "", allowed=True)
        response = RedirectResponse(_own(to), 303)
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
    """The page after a login: one of the console, whatever the address says."""
    is_own = to.startswith("/") and not to.startswith("//") and "\\" not in to and to.isprintable()
    return to if is_own else "/"


def _form(console: Console, to: str, failed: str = "", status: int = 200) -> Response:
    told = Markup('<p class="failed" role="alert">{}</p>').format(failed) if failed else Markup("")
    fields = [
        markup.field("User", "user", more='autocomplete="username" autofocus'),
        markup.field("Password", "password", kind="password", more='autocomplete="current-password"'),
    ]
    if console.users is not None and console.users.takes_tokens:
        fields.append(markup.field("Or a token", "token", kind="password", more='autocomplete="off"'))
    form = Markup('<form method="post" action="/login">{}{}<button>Log in</button></form>').format(
        markup.hidden_field("to", to), markup.joined(fields)
    )
    return HTMLResponse(str(markup.bare_page("Log in", told + form)), status)
