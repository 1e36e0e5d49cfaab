"""Who may do what, for several twins."""

from __future__ import annotations

from gateway.login.auth import Credentials, Identity, OnIdentity, Peer


class OnlyOwnTopics:
    """Lets nobody log in as the victim, and nobody publish outside its own topics."""

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        is_wrong = shown.client_id == "victim" and shown.password != b"right"
        done(0x86 if is_wrong else Identity(shown.client_id, ""))

    def is_gone(self, identity: Identity) -> bool:
        return False

    def may_connect(self, identity: Identity, peer: Peer) -> bool:
        return True

    def may_stay(self, identity: Identity) -> bool:
        return True

    def takes_back(self, identity: Identity, user_name: str) -> bool:
        return False

    def may_publish(self, identity: Identity, name: str) -> bool:
        return name.startswith(f"{identity.client_id}/")

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        return not filter.startswith("secret")

    def may_position(self, identity: Identity, name: str) -> bool:
        return not name.startswith("secret")
