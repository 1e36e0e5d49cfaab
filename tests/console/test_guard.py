from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse

from console.guard import HEADERS, Guard


async def ask(method: str = "GET", path: str = "/", hosts: tuple[str, ...] = (), **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(Guard(PlainTextResponse("served"), hosts))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8090") as client:
        return await client.request(
            method, path, headers={name.replace("_", "-"): one for name, one in headers.items()}
        )


async def test_every_answer_has_the_headers_that_keep_foreign_things_out() -> None:
    for answer in (await ask(), await ask(host="evil.example")):
        for name, value in HEADERS:
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] == "no-store"
    assert "'unsafe" not in answer.headers["content-security-policy"]
    assert "http" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8090", "console.internal"])
async def test_a_name_that_a_web_page_has_resolved_to_here_is_refused(host: str) -> None:
    assert (await ask(host=host)).status_code == 421


async def test_names_of_this_machine_and_of_the_setting_are_served() -> None:
    for host in ("localhost:8090", "127.0.0.1", "[::1]:8090", "Console.Internal"):
        assert (await ask(host=host, hosts=("console.internal",))).text == "served"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8091"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_a_form_of_another_site_is_refused(headers: dict[str, str]) -> None:
    assert (await ask("POST", **headers)).status_code == 403


async def test_forms_of_its_own_pages_and_of_no_browser_are_taken() -> None:
    assert (await ask("POST", origin="http://127.0.0.1:8090", sec_fetch_site="same-origin")).text == "served"
    assert (await ask("POST")).text == "served"


async def test_other_methods_long_addresses_and_websockets_are_refused() -> None:
    assert (await ask("PUT")).status_code == 405
    assert (await ask(path="/" + "x" * 20_000)).status_code == 414
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    await Guard(PlainTextResponse("served"))({"type": "websocket"}, None, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close"}]
