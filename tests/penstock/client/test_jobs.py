"""What handlers have in hand."""

from __future__ import annotations

from penstock.client.jobs import Job, chosen_of
from penstock.client.positions import Position
from penstock.client.unfinished import Unfinished
from penstock.protocol.received import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("b", "orders", 0)


def test_a_job_is_void_when_its_queue_is_gone_or_read_from_elsewhere() -> None:
    position = Position(QUEUE)
    position.unfinished = Unfinished(0)
    job, sought = Job(position, position.unfinished, ()), Job(position, Unfinished(0), ())
    assert (job.void, sought.void) == (False, True)
    position.begin(5)
    assert job.void
    position.unfinished, position.live = job.unfinished, False
    assert job.void


def test_what_a_batch_handler_returns_is_taken_for_all_of_them_where_it_names_others() -> None:
    one, other = (ReceivedMessage(QUEUE, offset, b"", b"", b"") for offset in (1, 2))
    assert chosen_of([one], [other]) == [one]
    assert chosen_of([one, other], 5) == [one, other]
    assert chosen_of([one, other], [other]) == [other]
