"""The call that a handler gets: the command, its sender, and the parts of the front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.access.needs import Need
from penstock.errors import (
    Busy,
    InvalidFilter,
    InvalidMessage,
    InvalidTopic,
    NoQuorum,
    NoRoute,
    NotAllowed,
    NotAuthorized,
    NotLeader,
    PenstockError,
    StorageFull,
    TimedOut,
    TooLarge,
    TopicNotFound,
)
from penstock.protocol.addresses import join_address
from penstock.service.permissions import Permissions
from penstock.service.topic_rate import TopicRate
from penstock.world import Clock, Rng
from remoting import codes
from remoting.flows import Flow
from remoting.frames import Command
from remoting.groups import Groups
from remoting.members import Members

_CODES: Final = (
    ((TopicNotFound, NoRoute), codes.TOPIC_NOT_EXIST),
    ((InvalidMessage, TooLarge), codes.MESSAGE_ILLEGAL),
    ((StorageFull, NotLeader, NoQuorum), codes.SERVICE_NOT_AVAILABLE),
    ((Busy,), codes.SYSTEM_BUSY),
    ((NotAllowed, NotAuthorized, InvalidTopic), codes.NO_PERMISSION),
    ((InvalidFilter,), codes.SUBSCRIPTION_PARSE_FAILED),
    ((TimedOut,), codes.FLUSH_DISK_TIMEOUT),
)


@dataclass(frozen=True, slots=True)
class Front:
    """One front: what all its connections share.

    Attributes:
        broker, broker_address: the name and the address of its broker.
        host, port: where its clients reach it.
        address: the same as eight bytes, as ids of messages have them.
        start: runs a flow beside the present one.
        push: sends a command to a connection, if it is still there.
        rate: of the topics that messages make.
        topics: topics that were found when a message was sent to them, or made then.
    """

    broker: str
    broker_address: str
    host: str
    port: int
    address: bytes
    clock: Clock
    rng: Rng
    members: Members
    groups: Groups
    start: Callable[[Flow], None]
    push: Callable[[int, Command], None]
    rate: TopicRate
    topics: set[str]

    def new_id(self) -> str:
        """A unique id for a message that has none."""
        return f"{self.rng.getrandbits(128):032X}"

    @property
    def place(self) -> str:
        """``host:port``."""
        return join_address(self.host, self.port)


@dataclass(slots=True)
class Call:
    """A command that is to be carried out. ``connection``: number of the connection that it came by; ``peer``: the
    other end's address, ``host:port``; ``permissions``: of the command's user, None where all is allowed."""

    command: Command
    front: Front
    connection: int
    peer: str
    peer_bytes: bytes
    permissions: Permissions | None = None

    @property
    def user(self) -> str:
        """The command's user; empty where no login is asked for."""
        return self.permissions.identity.user if self.permissions is not None else ""

    def require(self, need: Need) -> None:
        """Raises ``NotAuthorized`` unless the sender may do this. Requests of the broker are checked besides, each by
        its own needs."""
        if self.permissions is not None:
            self.permissions.check(f"remoting {self.command.code}", need)

    def may(self, need: Need) -> bool:
        """Whether the sender may do this."""
        return self.permissions is None or self.permissions.meets(need)


def refusal(command: Command, error: PenstockError) -> Command:
    """The answer that says an error in the numbers that RocketMQ's clients know."""
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), codes.SYSTEM_ERROR)
    hint = f": {error.hint}" if error.hint else ""
    return command.answer(code, remark=f"{error.message}{hint}")
