"""An ``Append``, whose sender has written whole records, as the runs of single messages that they are.

A record that is none is refused by its place in the batch; a body with another number of records, as a whole. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.store.frames import crc32
from penstock.errors import InvalidMessage, InvalidRequest
from penstock.protocol.message import BODY_AT, RECORD_BYTES_MIN, RECORD_MAGIC, check_record
from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.request import Bytes
from penstock.protocol.runs import Run, run_of

# size, magic, body crc, and behind what does not matter here the body's length
_LEAD: Final = struct.Struct(f">III{BODY_AT - 16}xI")


class WholeRecords(NamedTuple):
    """``runs``: the good records of a batch, ``places`` where in it each stood. ``refused``: the others."""

    runs: list[Run]
    places: list[int]
    refused: list[Refused]


def records_of(body: bytes | memoryview, count: int) -> list[bytes]:
    """The records that stand end to end in ``body``, ``count`` of them; what is in one is not checked. Raises
    ``InvalidRequest``."""
    data, at = bytes(body), 0
    records: list[bytes] = []
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "big")
        if size < RECORD_BYTES_MIN or at + size > len(data):
            raise InvalidRequest(f"{len(data)} bytes are not {count} records; nothing was stored")
        records.append(data[at : at + size])
        at += size
    if at != len(data):
        raise InvalidRequest(f"{len(data) - at} bytes behind the last of {count} records; nothing was stored")
    return records


def runs_of(body: Bytes, records: int) -> WholeRecords:
    """The records of a batch. Raises ``InvalidRequest`` where ``body`` cannot be cut into that many."""
    data = body if type(body) is bytes else bytes(body)
    runs: list[Run] = []
    places: list[int] = []
    refused: list[Refused] = []
    lead, end, at = _LEAD.unpack_from, len(data), 0
    for number in range(records):
        if at + RECORD_BYTES_MIN > end:
            raise InvalidRequest(f"{end} bytes are not {records} records; nothing was stored")
        size, magic, crc, body_bytes = lead(data, at)
        if size < RECORD_BYTES_MIN or at + size > end:
            raise InvalidRequest(f"a record of {size} bytes at byte {at} of {end}; nothing was stored")
        record = data[at : at + size]
        at += size
        try:
            topic_at = BODY_AT + body_bytes
            if magic != RECORD_MAGIC or topic_at > size or crc32(record[BODY_AT:topic_at]) & 0x7FFFFFFF != crc:
                check_record(record)  # says what is wrong with it
            run = run_of(record)
        except InvalidMessage as error:
            refused.append(Refused(number, error.code, error.message))
            continue
        runs.append(run)
        places.append(number)
    if at != end:
        raise InvalidRequest(f"{end - at} bytes behind the last of {records} records; nothing was stored")
    return WholeRecords(runs, places, refused)


def in_places(places: Sequence[int], refused: Sequence[Refused]) -> list[Refused]:
    """The refusals of good records, by their index in the batch."""
    return [one._replace(at=places[one.at]) for one in refused]
