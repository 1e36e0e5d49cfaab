"""Finds messages of an append that are stored already: runs of producers, cut where stored and new messages meet.

Each piece of a run is new or wholly stored; a stored one gets its first answer. Runs ahead of all numbers of their
producer cost a look; otherwise all runs of the append are sifted. Stored messages are compared with the sent ones: a
producer that reuses a number for another message is refused, because its message would be lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from broker.producers.fold import Producers, Stretch
from broker.producers.window import Numbers, Window
from broker.store.frames import queue_id_of, queue_offset_of, stored_ms_of
from broker.store.message_store import MessageStore
from broker.store.reading import ABSENT
from penstock.errors import Busy, Damaged, InvalidMessage, MessageForgotten, NumberTaken
from penstock.protocol.message import (
    ANY_QUEUE,
    BODY_AT,
    FLAG_SEQUENCED,
    FRAME_HEAD_BYTES,
    record_body,
    record_topic,
)
from penstock.protocol.runs import DIGITS, NOWHERE, SOMEWHERE, Run
from topicmap.queues import SYSTEM_PREFIX

PRODUCER_BYTES_MAX: Final = 64
"""Of a unique id, before the digits that count."""
LOOKED_UP_MAX: Final = 64
"""Places per request that are looked up in the index of keys; memory has the recent ones."""
DOUBTS_MAX: Final = 512
"""The same for messages of which their producer's window does not tell whether they are stored."""
_SYSTEM: Final = SYSTEM_PREFIX.encode()
_FORGOTTEN: Final = -3
_TWICE: Final = -4
_LATER: Final = -5
_OTHER: Final = -6
_OF_STATE: Final[dict[bool | None, int]] = {True: SOMEWHERE, False: NOWHERE, None: _FORGOTTEN}


class Repeats:
    """Looks at the runs of appends before they are accepted."""

    def __init__(self, producers: Producers, store: MessageStore) -> None:
        self._producers = producers
        self._store = store
        self._room = self._doubts = 0
        self._found: dict[int, int] = {}  # positions of a run's messages, by number
        self._repeated = 0

    def is_ahead(self, run: Run, producer: bytes, ahead: dict[bytes, int]) -> bool:
        """Whether the messages of a run are behind all that their producer has stored, or has in this append: it notes
        in ``ahead`` up to which number that is. Raises ``InvalidMessage`` for a producer that is none."""
        first = run.number
        window = self._producers.get(producer)
        if window is None:
            check_producer(producer)
        elif first <= window.highest:
            return False
        if ahead and first <= ahead.get(producer, -1):
            return False
        ahead[producer] = first + len(run.bodies) - 1
        return True

    def position_of_fact(self, topic: str, unique_id: bytes) -> int:
        """Position of the fact that holds a message, in records of this system topic; ``NOWHERE`` for a new message,
        ``SOMEWHERE`` if the position is forgotten. Raises ``MessageForgotten`` if it is unknown whether the message is
        stored, and ``InvalidMessage`` for an illegal producer."""
        producer, number = unique_id[:-DIGITS], int(unique_id[-DIGITS:], 16)
        check_producer(producer)
        window = self._producers.get(producer)
        is_stored = False if window is None else window.holds(number)
        if is_stored is False:
            return NOWHERE
        stretch, _ = _stretch_with(self._producers.recent(producer), number, number + 1)
        position = self._store.position_of_id(topic, unique_id) if stretch is None else stretch.position
        if position < 0 and is_stored is None:
            if position == ABSENT:
                return NOWHERE
            raise _forgotten()
        self._repeated += 1
        return position if position >= 0 else SOMEWHERE

    def are_stored(self, numbers: Numbers) -> bool | None:
        """Whether all these messages of a producer are stored: ``False`` if all are new, ``None`` if unknown. Raises
        ``InvalidMessage`` where only some of them are."""
        check_producer(numbers.producer)
        window = self._producers.get(numbers.producer)
        if window is None or numbers.first > window.highest:
            return False
        states = {window.holds(number) for number in range(numbers.first, numbers.end)}
        if states == {True, False}:
            raise InvalidMessage("some messages of a run are stored already")
        return None if None in states else True in states

    def note_repeated(self, count: int) -> None:
        """Counts repeated messages."""
        self._repeated += count

    def sift(self, runs: list[Run]) -> list[Run]:
        """These runs, or pieces of them, in order. The ``position`` of one that is not to be stored is another than
        ``NOWHERE``: where it is stored, ``SOMEWHERE``, or one for which ``is_known`` raises the reason."""
        highest: dict[bytes, int] = {}  # in this append
        seen: set[tuple[bytes, int]] | None = None
        sifted: list[Run] | None = None
        self._room, self._doubts = LOOKED_UP_MAX, DOUBTS_MAX
        for at, run in enumerate(runs):
            first = number_of(run) if run.flag & FLAG_SEQUENCED and run.position == NOWHERE else -1
            if first < 0:
                if sifted is not None:
                    sifted.append(run)
                continue
            producer = producer_of(run)
            last = first + len(run.bodies) - 1
            window = self._producers.get(producer)
            before = highest.get(producer, -1)
            if last > before:
                highest[producer] = last
            if (window is None or first > window.highest) and first > before:
                if sifted is not None:
                    sifted.append(run)
                if seen is not None:
                    seen.update([(producer, number) for number in range(first, last + 1)])
                continue
            if sifted is None:
                sifted = runs[:at]
            if seen is None:
                seen = _ids_of(sifted)
            sifted += self._cut(run, producer, first, window, seen)
        return runs if sifted is None else sifted

    def _cut(
        self, run: Run, producer: bytes, first: int, window: Window | None, seen: set[tuple[bytes, int]]
    ) -> list[Run]:
        """Pieces of a run, some of whose messages may be stored, or ``seen`` in this append."""
        states: list[int] = []
        self._found.clear()
        for number in range(first, first + len(run.bodies)):
            state = NOWHERE if window is None else _OF_STATE[window.holds(number)]
            if state == _FORGOTTEN:
                state = self._looked_up(run, producer, first, number)
            if state == NOWHERE:
                if (producer, number) in seen:
                    state = _TWICE
                else:
                    seen.add((producer, number))
            states.append(state)
        pieces: list[Run] = []
        start, end = 0, len(states)
        for stop in range(1, end + 1):
            if stop < end and states[stop] == states[start]:
                continue
            if states[start] == SOMEWHERE:
                self._repeated += stop - start
                run.queue_id = ANY_QUEUE
                pieces += self._placed(run, producer, first, start, stop)
            else:
                pieces.append(_piece(run, start, stop, states[start]))
            start = stop
        return pieces

    def _looked_up(self, run: Run, producer: bytes, first: int, number: int) -> int:
        """The state of a message, behind its producer's window, by the index of keys."""
        if not self._doubts:
            return _LATER
        self._doubts -= 1
        position = self._position_of(run, producer, number - first)
        if position >= 0:
            self._found[number] = position
            return SOMEWHERE
        return NOWHERE if position == ABSENT else _FORGOTTEN

    def _position_of(self, run: Run, producer: bytes, at: int) -> int:
        """The position of message ``at`` of a run in the index of keys."""
        topic_bytes = run.tail[0] << 8 | run.tail[1]
        topic = run.tail[2 : 2 + topic_bytes].decode("utf-8", "replace")
        return self._store.position_of_id(topic, producer + run.tail_of(at)[-DIGITS:])

    def _placed(self, run: Run, producer: bytes, first: int, start: int, stop: int) -> list[Run]:
        """Stored messages of a run, cut by where they are."""
        pieces: list[Run] = []
        stretches = self._producers.recent(producer)
        while start < stop:
            number = first + start
            found, end = _stretch_with(stretches, number, first + stop)
            piece = _piece(run, start, end - first, SOMEWHERE)
            if found is not None:
                self._find(piece, found.position + (number - found.first) * found.step, found.step)
            elif number in self._found or self._room > 0:
                end = number + 1
                piece = _piece(run, start, end - first, SOMEWHERE)
                position = self._found.get(number, ABSENT)
                if position == ABSENT:
                    self._room -= 1
                    position = self._position_of(run, producer, start)
                if position >= 0:
                    self._find(piece, position, 0)
            pieces.append(piece)
            start = end - first
        return pieces

    def _find(self, run: Run, position: int, step: int) -> None:
        """Notes on a run where its first message is, or that other messages are stored there. Notes nothing if the
        frame cannot be read, or is the fact in which a delayed message sleeps."""
        try:
            frame = self._store.frame(position)
        except Damaged:
            return
        if is_fact(frame):
            return
        count = len(run.bodies)
        frames = [frame] if count == 1 else self._store.frames([(position + at * step, step) for at in range(count)])
        if _are_others(run, frames):
            run.position = _OTHER
        else:
            run.placed(position, step, queue_id_of(frame), queue_offset_of(frame), stored_ms_of(frame))

    def figures(self) -> dict[str, float]:
        """Gauges and counters of producers whose messages are stored once."""
        return {
            "penstock_producers": len(self._producers),
            "penstock_messages_repeated_total": self._repeated,
        }


def is_known(run: Run, producer: bytes) -> bool:
    """Whether a run that was sifted is stored already. Raises what it is refused with."""
    check_producer(producer)
    if run.position == _TWICE:
        raise InvalidMessage("one request has this unique id twice")
    if run.position == _FORGOTTEN:
        raise _forgotten()
    if run.position == _OTHER:
        raise NumberTaken("another message is stored under the number of this one")
    if run.position == _LATER:
        raise Busy(f"{DOUBTS_MAX} messages were looked up to see whether they are stored already")
    return run.position != NOWHERE


def _forgotten() -> MessageForgotten:
    return MessageForgotten("this message may be stored already; the broker does not know any more")


def _are_others(run: Run, frames: Sequence[bytes]) -> bool:
    """Whether a stored frame differs from the run's message of its number in body, topic or a property. The order of
    properties does not matter."""
    for at, (body, frame) in enumerate(zip(run.bodies, frames, strict=False)):  # no frames where one is damaged
        record = memoryview(frame)[FRAME_HEAD_BYTES:]
        if record_body(record) != body:
            return True
        stored, sent = bytes(record[BODY_AT + len(body) :]), run.tail_of(at)
        if stored != sent and _parts_of(stored) != _parts_of(sent):
            return True
    return False


def _parts_of(tail: bytes) -> tuple[bytes, list[bytes]]:
    """Topic and properties."""
    end = 2 + (tail[0] << 8 | tail[1])
    return tail[2:end], sorted(tail[end + 2 :].split(b"\x02"))


def is_fact(frame: bytes) -> bool:
    """Whether a frame is of a system record."""
    return record_topic(memoryview(frame)[FRAME_HEAD_BYTES:]).startswith(_SYSTEM)


def check_producer(producer: bytes) -> None:
    """Raises ``InvalidMessage`` for what is too long to be known."""
    if len(producer) > PRODUCER_BYTES_MAX:
        raise InvalidMessage(f"before what counts a unique id has at most {PRODUCER_BYTES_MAX} bytes")


def number_of(run: Run) -> int:
    """The number of a run's first message, -1 where it has none."""
    try:
        return int(run.tail[-DIGITS:], 16)
    except ValueError:
        return -1  # it is refused for that


def producer_of(run: Run) -> bytes:
    """The text before the numbers in the ids of a run, whose last property is the id."""
    tail = run.tail
    return tail[tail.rfind(b"\x01") + 1 : -DIGITS]


def _piece(run: Run, start: int, stop: int, position: int) -> Run:
    piece = run.of(run.bodies[start:stop], start) if stop - start < len(run.bodies) else run
    piece.position = position
    return piece


def _stretch_with(stretches: Sequence[Stretch], number: int, end: int) -> tuple[Stretch | None, int]:
    """The stretch with a number, and the number before which it ends, or before which the next one may begin."""
    at = bisect_right(stretches, number, key=_first_of)
    if at:
        stretch = stretches[at - 1]
        behind = stretch.first + stretch.messages
        if number < behind:
            return stretch, min(behind, end)
    return None, min(end, stretches[at].first) if at < len(stretches) else end


def _first_of(stretch: Stretch) -> int:
    return stretch.first


def _ids_of(runs: list[Run]) -> set[tuple[bytes, int]]:
    seen: set[tuple[bytes, int]] = set()
    for run in runs:
        first = number_of(run) if run.flag & FLAG_SEQUENCED and run.position == NOWHERE else -1
        if first >= 0:
            producer = producer_of(run)
            seen.update([(producer, number) for number in range(first, first + len(run.bodies))])
    return seen
