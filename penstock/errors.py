"""Every error that Penstock raises or puts on the wire.

One base class. Each error says whose fault it is (``fault``), which wire code stands for it (``code``), and
whether sending the same request again can help (``retryable``). The table ``BY_CODE`` maps wire codes back to
classes, one to one. Nothing here waits or does I/O.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Self


class PenstockError(Exception):
    """Base of every Penstock error.

    Attributes:
        code: the number that stands for this class on the wire.
        fault: ``"client"`` (mend the request) or ``"server"`` (mend or wait for the server).
        retryable: whether the same request may succeed later, unchanged.
        remedy: what helps with any error of this class, for a person.
        hint: what helps with this very one, for a person: a sentence, or a line for each choice; may be empty.
        unknown: for a write: it may have been stored all the same. False means that it never will be. It travels on
            the wire.
    """

    code: ClassVar[int] = 1
    fault: ClassVar[Literal["client", "server"]] = "server"
    retryable: ClassVar[bool] = False
    remedy: ClassVar[str] = ""
    unknown: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({'; '.join(self.hint.splitlines())})" if self.hint else self.message

    @property
    def advice(self) -> str:
        """Advice for a person: the hint, or else the remedy of the class."""
        return self.hint or self.remedy

    @property
    def told(self) -> str:
        """The error and its advice in one line; several choices, and the advice on several errors, have lines of their
        own."""
        choices = self.advice.splitlines()
        if len(choices) > 1 or (choices and "\n" in self.message):
            return "\n       ".join([self.message, *choices])
        return f"{self.message} ({self.advice})" if choices else self.message

    def with_fate(self, unknown: bool) -> Self:
        """Itself, ``unknown`` or not."""
        self.unknown = unknown
        return self

    def as_result(self) -> Self:
        """Itself, caught and from now on handed on as a value: without the places that it was raised from. Their frames
        hold whatever was at work there, down to a request's megabytes and a client's session, and soon this value too:
        a circle that would wait for the collector."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class InternalError(PenstockError):
    """The server met a state that it does not expect; its log says more."""

    remedy = "the server's log says more, at this time"


class ProtocolError(PenstockError):
    """Bytes that are not a frame, request or reply of docs/formats/wire.md."""

    code = 2
    fault = "client"
    remedy = (
        "is this the address of a Penstock server? `penstock status` shows the servers that answer, with their versions"
    )


class UnknownRequest(PenstockError):
    """A well-formed request of a type that this server does not serve."""

    code = 3
    fault = "client"
    remedy = "give the address of a name server; if it is one, its version is older than this one"


class InvalidRequest(PenstockError):
    """A request whose fields are of the right types but make no sense."""

    code = 4
    fault = "client"
    remedy = "correct the request: see `--help` and the guides"


class TooLarge(PenstockError):
    """A message, frame or batch over its limit; nothing of it was stored."""

    code = 5
    fault = "client"
    remedy = "send less at once; a large file is better stored elsewhere, with its address in a message"


class Unavailable(PenstockError):
    """No connection to the server, or it is starting or stopping. ``unknown`` is true where the connection was lost
    with the request on its way."""

    code = 6
    retryable = True
    remedy = "is the server running? `penstock status` shows the servers that answer"


class TimedOut(PenstockError, TimeoutError):
    """The deadline passed first. The outcome of a write is then *unknown*, not failed."""

    code = 7
    retryable = True
    unknown = True
    remedy = "the write may be stored: look before you repeat it; `penstock status` shows the servers that answer"


class Busy(PenstockError):
    """The server takes no more work just now; nothing was stored."""

    code = 8
    retryable = True
    remedy = "try again later; where the message names a limit, raise it"


class StorageFull(PenstockError):
    """The disk has no room; nothing was stored. Writing resumes by itself when there is room again."""

    code = 9
    retryable = True
    remedy = "make room on the broker's disk; writing resumes by itself"


class StorageFailed(PenstockError):
    """The disk returned an I/O error. The broker stops rather than acknowledge what may be lost."""

    code = 10
    remedy = "look at the disk and at the broker's log; start the broker again when the disk works"


class NotLeader(Unavailable):
    """Another node leads this broker's log; nothing was done. The hint is the leader's address, or empty. ``unknown``
    is true where the node has stopped leading with the request under way."""

    code = 11
    remedy = "ask the node that leads: `penstock replica list` shows it"

    @property
    def leader(self) -> str:
        """``host:port`` where clients reach the leader; empty where this node does not know it."""
        return self.hint

    @property
    def advice(self) -> str:
        return f"its leader is at {self.hint}" if self.hint else self.remedy


class NoQuorum(Unavailable):
    """Too few nodes of the broker's group can be reached; nothing was stored."""

    code = 12
    remedy = "start the other nodes of the group: `penstock replica list` shows the nodes that are away"


AWAY: Final = frozenset({Unavailable.code, NotLeader.code, NoQuorum.code})
"""Codes of the errors of a broker that carries nothing out just now."""


class TopicNotFound(PenstockError):
    """The topic does not exist, and policy does not create it."""

    code = 20
    fault = "client"
    remedy = "`penstock topic list` shows all, `penstock topic create` makes one"


class TopicExists(PenstockError):
    """A topic of this name exists with another configuration."""

    code = 21
    fault = "client"
    remedy = "`penstock topic change` changes one that exists"


class InvalidTopic(PenstockError):
    """A name that is no legal topic, MQTT topic name or filter."""

    code = 22
    fault = "client"
    remedy = "a topic is one level of an MQTT name, without / + #; the guide for devices has the rules"


class ReservedName(InvalidTopic):
    """A topic or MQTT topic name that only brokers or gateways use."""

    code = 45
    remedy = "choose another name"


class QueueNotFound(PenstockError):
    """No such topic queue, or the light queue was closed."""

    code = 23
    fault = "client"
    remedy = "`penstock topic show` lists the queues of a topic"


class OffsetOutOfRange(PenstockError):
    """An offset outside the queue's [min, end]; the message names both."""

    code = 24
    fault = "client"
    remedy = "`penstock topic show` shows where each queue begins and ends"


class NoRoute(PenstockError):
    """The name servers know no broker for this topic (yet)."""

    code = 25
    retryable = True
    remedy = "`penstock broker list` shows the live brokers, `penstock topic create` makes a topic"


class Damaged(PenstockError):
    """The stored bytes failed their checksum; they are reported and never served."""

    code = 26
    remedy = "`penstock store verify` shows the damaged parts; restore them from a copy or a backup"


class LogReplaced(PenstockError):
    """The offset is of another log: the broker's data folder was wiped or replaced since."""

    code = 27
    fault = "client"
    remedy = "open the consumer or reader again: it begins in the new log, as its `start` says"


class BrokerAway(PenstockError):
    """A broker that has a part of the answer is away: the answer would not be complete."""

    code = 28
    retryable = True
    remedy = "start that broker, or read the other brokers only"


class NotAllowed(PenstockError):
    """An operator has forbidden reading or writing this topic or this broker for now."""

    code = 29
    retryable = True
    remedy = "`penstock broker allow` and `penstock topic change` lift it"


class GroupNotFound(PenstockError):
    """No consumer group of this name has members or offsets."""

    code = 30
    fault = "client"
    remedy = "`penstock group list` shows all"


class Fenced(PenstockError):
    """The caller is no longer who it was: a newer member, generation or epoch owns this."""

    code = 31
    fault = "client"
    remedy = "go on reading: uncommitted messages are delivered again, here or elsewhere"


class SessionNotFound(PenstockError):
    """No MQTT session of this client id is kept."""

    code = 32
    fault = "client"
    remedy = "`penstock session list` shows all"


class TimerNotFound(PenstockError):
    """No delayed message has this timer: it was cancelled, or never set."""

    code = 33
    fault = "client"
    remedy = "`penstock timer list` shows the messages that wait"


class TimerFired(PenstockError):
    """The delayed message was already delivered, so it cannot be cancelled."""

    code = 34
    fault = "client"
    remedy = "nothing is left to cancel: consumers get the message"


class HalfNotFound(PenstockError):
    """No half of a transaction has this id and group: it was ended long ago, or never began."""

    code = 35
    fault = "client"
    remedy = "`penstock transaction list` shows those that are not ended"


class OutcomeStands(PenstockError):
    """The half of a transaction already has another outcome; the first one is final."""

    code = 36
    fault = "client"
    remedy = "the first outcome is final: correct its consequences instead"


class InvalidMessage(PenstockError):
    """Bytes that are no message record, or a field outside its limit."""

    code = 40
    fault = "client"
    remedy = "correct the message; it was not stored"


class MessageForgotten(PenstockError):
    """The message may be stored already; its producer has stored too many since for the broker to know."""

    code = 42
    fault = "client"
    remedy = "look whether the message is stored, `penstock find` does, before you send it as a new one"


class NumberTaken(PenstockError):
    """Another message is stored under the number of this one: its producer gave one number to two messages."""

    code = 48
    fault = "client"
    remedy = "give each producer its own id, and never restart the count of its messages"


class RetainedChanged(PenstockError):
    """The retained message that this one was to replace is not there any more, or not yet."""

    code = 49
    fault = "client"
    remedy = "read the retained message again before you set it"


class InvalidProperty(InvalidMessage):
    """A message property with a reserved name, with a separator or surrogate, or that is no text."""

    code = 46
    remedy = "give the property another name, or a value that is text"


class InvalidFilter(PenstockError):
    """A selector that cannot be read, or is over a limit.

    Attributes:
        at: where in its text, in characters from 0; -1 where it is about the whole, and of an error off the wire.
    """

    code = 44
    fault = "client"
    remedy = "the guide for backend developers has the language of filters"

    def __init__(self, message: str, *, hint: str = "", at: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.at = at


class SendManyError(PenstockError):
    """Some messages of a ``send_many`` were not stored.

    Attributes:
        receipts: one entry per message: its receipt, or ``None`` where it failed.
        failures: index of the message -> its error.
    """

    code = 41
    remedy = "`failures` has the error of each message that was not stored"

    def __init__(
        self, message: str, receipts: tuple[object | None, ...] = (), failures: dict[int, PenstockError] | None = None
    ) -> None:
        super().__init__(message)
        self.receipts = receipts
        self.failures = failures or {}


class ResetIncomplete(PenstockError):
    """A group was reset at some brokers and not at others.

    Attributes:
        moved: the offsets that were moved, as ``reset_group`` returns them.
        failures: the error of each other broker, by its name. One that is ``unknown`` may have moved the group.
    """

    code = 47
    remedy = "`failures` has the error of each broker; reset the group again when they are back"

    def __init__(
        self,
        message: str,
        moved: tuple[object, ...] = (),
        failures: dict[str, PenstockError] | None = None,
        *,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.moved = moved
        self.failures = failures or {}


class InvalidConfig(PenstockError):
    """A setting that is unknown, of the wrong type or outside its limits. ``parts``: where it tells of several, each of
    them."""

    code = 50
    fault = "client"
    remedy = "`penstock config check` names all that is wrong in a file; docs/guide/settings.md has every setting"

    def __init__(self, message: str, *, hint: str = "", parts: tuple[InvalidConfig, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.parts = parts


class DataFolderLocked(PenstockError):
    """Another broker holds this data folder."""

    code = 51
    fault = "client"
    remedy = "stop the other broker, or give this one another folder"


class DataFolderUnusable(PenstockError):
    """The data folder cannot be made, read or written."""

    code = 52
    fault = "client"
    remedy = "give the broker a folder that it may write"


class NotAuthorized(PenstockError):
    """The peer has not proved that it may do this."""

    code = 60
    fault = "client"
    remedy = "log in as a user who may: `penstock login`, or --user with --password-file"


class AddressInUse(PenstockError):
    """The port that a server was told to listen on is taken."""

    code = 53
    fault = "client"
    remedy = "`ss -ltnp` shows the process that has the port; stop it, or give another port"


def _by_code() -> dict[int, type[PenstockError]]:
    table: dict[int, type[PenstockError]] = {PenstockError.code: InternalError}
    classes = PenstockError.__subclasses__()
    for cls in classes:
        classes += cls.__subclasses__()
        if cls is InternalError:
            continue
        assert cls.code not in table, f"two errors share wire code {cls.code}"
        table[cls.code] = cls
    return table


BY_CODE: dict[int, type[PenstockError]] = _by_code()


def from_wire(code: int, message: str, hint: str = "", unknown: bool | None = None) -> PenstockError:
    """The error that a wire code stands for; an unknown code gives an ``InternalError`` that names it. ``unknown``:
    only where it is not as usual for that error."""
    cls = BY_CODE.get(code)
    if cls is None:
        cls, message = InternalError, f"error {code} of a newer server: {message}"
    error = cls(message)
    error.hint = hint
    return error if unknown is None else error.with_fate(unknown)
