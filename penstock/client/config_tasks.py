"""Administration of the name servers' key-value stores. Pure; tasks as in ``administration.py``."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.administration import ALL_NAME_SERVERS, Ask, Task
from penstock.errors import PenstockError
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.routes import ConfigEntries, ConfigEntry, PutConfig, QueryConfig
from penstock.protocol.requests.servers import ChangeSetting


def config(namespace: str = "", key: str = "") -> Task[list[ConfigEntry]]:
    """The entries of the name servers' key-value store: of a namespace or of all, with a key that one alone. The first
    name server that answers is believed."""
    servers: Sequence[str] = yield ALL_NAME_SERVERS
    failed: PenstockError | None = None
    for server in servers:
        try:
            found: ConfigEntries = yield Ask(server, QueryConfig(namespace, key), ConfigEntries)
        except PenstockError as error:
            failed = failed or error
            continue
        return list(found.entries)
    assert failed is not None, "there is a name server"
    raise failed


def change_name_servers(name: str, value: str) -> Task[None]:
    """Changes a setting of all running name servers until their next start, as ``change_setting`` does of a broker. One
    that is away is an error that names it: the others have changed."""
    yield from _at_all(ChangeSetting(name, value))


def set_config(namespace: str, key: str, value: str) -> Task[None]:
    """Sets an entry at all name servers; an empty value removes it. They do not know each other, so one that is away is
    an error that names it: the others have the entry, and the same call again mends it.

    ``ORDER_TOPIC_CONFIG`` says of a topic which brokers its keys are spread over (``broker-a;broker-b``): a key then
    waits for its broker where it would go to another one.
    """
    yield from _at_all(PutConfig(namespace, key, value))


def _at_all(request: Request) -> Task[None]:
    servers: Sequence[str] = yield ALL_NAME_SERVERS
    failed: PenstockError | None = None
    for server in servers:
        try:
            yield Ask(server, request, Done)
        except PenstockError as error:
            failed = failed or error
    if failed is not None:
        raise failed
