"""The interface of authentication, and its implementation for anonymous clients: may this client connect, publish,
subscribe?

An ``Authenticator`` decides from the CONNECT and the client's address; it never waits and never stores a password. It
answers, by completion, with an ``Identity``, to which all later acts of the connection are bound, its will included, or
with the MQTT 5 reason code of the refusal. Everything that is not allowed explicitly is refused.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from gateway.mqtt.reason_codes import Reason
from penstock.access.scram_exchange import Challenge as Challenge
from penstock.access.scram_exchange import Denied as Denied
from penstock.access.scram_exchange import Proven as Proven
from topicmap.names import is_other_device, is_reply

BAD_CREDENTIALS: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
BAD_METHOD: Final = 0x8C
MQTT: Final = "mqtt"
"""How the identities of devices were proved, in the audit log."""


ASSIGNED_ID: Final = re.compile("auto-[0-9a-f]{16}")
"""A client id that a gateway has made. Rules about client ids do not concern it, because it cannot be guessed."""


class Peer(NamedTuple):
    """Origin of a connection: the client's address without the port, the name in its certificate if it showed
    a valid one, the listener that it came to, and the web page that opened it, if that is of another machine and the
    operator has not named it."""

    address: str
    certificate: str | None = None
    listener: str = "tcp"
    page: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine's own. A page comes from elsewhere, though it is a browser here that shows it."""
        return is_loopback(self.address) and not self.page


class Credentials(NamedTuple):
    """Credentials that a client showed."""

    client_id: str
    user_name: str | None
    password: bytes | None
    peer: Peer

    def __repr__(self) -> str:  # a password must not reach a log
        return f"Credentials(client_id={self.client_id!r}, user_name={self.user_name!r}, peer={self.peer!r})"


class Identity(NamedTuple):
    """Identity for which a connection acts; the user name is empty for an anonymous client. ``until``: the monotonic
    time at which what it showed no longer counts. ``is_listed``: it counts as long as the user is in the password
    file."""

    client_id: str
    user_name: str
    until: float = math.inf
    is_listed: bool = False


class Exchange(Protocol):
    """An authentication of several messages, from the client's first on; never waits."""

    def receive(self, data: bytes) -> Challenge | Proven | Denied:
        """Handles the client's next message; after the last answer no other is asked for."""
        ...


OnIdentity = Callable[[Identity | Reason], None]
"""Told who a client is, or the reason code of the refusal."""


class Authenticator(Protocol):
    """Check of what clients show to prove who they are."""

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        """Finds out who this is. ``done`` is called once, at once or later, in the event loop's thread."""
        ...

    def begin(self, method: str, client_id: str, peer: Peer, *, is_again: bool) -> Exchange | Reason:
        """A new exchange by an authentication method of MQTT 5, or the reason code of the refusal. ``is_again``: of a
        client that is connected."""
        ...

    def is_gone(self, identity: Identity) -> bool:
        """Whether the user as whom it has logged in is not there any more."""
        ...

    def may_connect(self, identity: Identity, peer: Peer) -> bool:
        """Whether it may use its client id. One that may not is counted."""
        ...

    def may_stay(self, identity: Identity) -> bool:
        """Whether it may still use its client id."""
        ...

    def takes_back(self, identity: Identity, user_name: str) -> bool:
        """Whether rules give its client id to it and not to this user, so that it takes the id from that one."""
        ...

    def may_publish(self, identity: Identity, name: str) -> bool: ...

    def may_subscribe(self, identity: Identity, filter: str) -> bool: ...

    def may_position(self, identity: Identity, name: str) -> bool:
        """Whether it may begin at the position of this name, which consumers share, and move it."""
        ...


def is_loopback(peer: str) -> bool:
    """Whether an address is this machine's own; what is no address is not. A socket of both families calls IPv4's
    ``::ffff:127.0.0.1``, of which Pythons before 3.13 say no."""
    try:
        found = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


class Anonymous:
    """Admits clients without credentials: from ``nobody``, from the ``loopback`` address, or from ``everyone``.

    Credentials that are shown cannot be checked here, and so are not believed: the client is as anonymous as without.
    ``$``-topics belong to the system: clients may publish only answers there, and only the named device gets its
    messages. ``at``: the same at listeners that have a rule of their own.
    """

    __slots__ = ("_at", "_who")

    def __init__(self, who: str, at: Mapping[str, str] = MappingProxyType({})) -> None:
        self._who = who
        self._at = at

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        who = self._at.get(shown.peer.listener, self._who)
        if who == "everyone" or (who == "loopback" and shown.peer.is_local):
            done(Identity(shown.client_id, ""))
        else:
            done(BAD_CREDENTIALS if shown.user_name is not None else NOT_AUTHORIZED)

    def begin(self, method: str, client_id: str, peer: Peer, *, is_again: bool) -> Exchange | Reason:
        return BAD_METHOD

    def is_gone(self, identity: Identity) -> bool:
        return False

    def may_connect(self, identity: Identity, peer: Peer) -> bool:
        return True

    def may_stay(self, identity: Identity) -> bool:
        return True

    def takes_back(self, identity: Identity, user_name: str) -> bool:
        return False

    def may_publish(self, identity: Identity, name: str) -> bool:
        return is_reply(name) or not name.startswith("$")

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        return not is_other_device(filter, identity.client_id)

    def may_position(self, identity: Identity, name: str) -> bool:
        return True
