"""Which addresses other machines reach, and the refusal to listen there on a port that asks for no login.

At a native port without users, and at the status pages, a peer that connects may do everything. So a service refuses
an address beyond loopback there unless its setting ``insecure`` allows it. A host name counts as loopback only if it is
``localhost``: what another name means is decided elsewhere, and may change. Pure.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import InvalidConfig
from penstock.protocol.addresses import is_loopback as is_loopback

NATIVE: Final = "reads and writes all messages, and takes sessions and groups over"
"""The power of a peer at a broker's port."""
ROUTES: Final = "reads all routes, and sends clients wherever it likes"
"""The power of a peer at a name server's port."""
PAGES: Final = "reads all figures"
"""The power of a reader of status pages."""


def refuse_exposed(setting: str, host: str, insecure: bool, peer_can: str, *, hint: str = "") -> None:
    """Raises ``InvalidConfig`` for a host beyond loopback, unless ``insecure``.

    Args:
        setting: the name of the setting that holds ``host``.
        host: where the service is to listen.
        insecure: the service's setting of that name.
        peer_can: what a peer that connects there can do: ``NATIVE``, ``ROUTES`` or ``PAGES``.
        hint: what to do, where more can be said than to listen on loopback or to set ``insecure``.
    """
    if insecure or is_loopback(host):
        return
    raise InvalidConfig(
        f"{setting} is {host!r}: other machines reach it, and this port asks for no login: a peer {peer_can}",
        hint=hint or ways_out(setting),
    )


def ways_out(setting: str, login: str = "") -> str:
    """The hint for a refused address, a line for each choice. ``setting``: the name of the one that holds the address;
    ``login``: how the port comes to ask for a login, the first choice where it can."""
    alone = f'listen on this machine alone: {setting} = "127.0.0.1"'
    insecure = "or, in a network of trusted machines, set insecure = true"
    return "\n".join([login, f"or {alone}", insecure] if login else [alone, insecure])
