"""Device to broker: publications become runs, one request per broker and round; acknowledgements follow the reply.

A ``BrokerBatch`` is the open batch of one broker. Beside each message stands its *mark*, the bytes that acknowledge it
(PUBACK, PUBREC or nothing), so the reply to a batch becomes one piece of bytes per device. Brokers answer in any order;
a device orders its acknowledgements by ``Publisher.sequence``. Nothing here waits: ``flush`` marks the round's end.
Promises:

- A mark is sent only after the record is stored at its topic's level.
- A record whose fate is unknown (the link broke) is not acknowledged; its device is disconnected and sends it again.
- A record that is surely not stored (no broker, or a full log and a device before MQTT 5) waits in
  ``BrokerBatch.kept``. Its device is not read meanwhile, and nothing that overtakes it is acknowledged
  (``BrokerBatch.attempt``).
- ``unstored_bytes_max`` bounds all of a device's waiting records. Records of unknown topics wait in ``placing.py``.
- Records that a broker refuses because this gateway's epoch is over, and all that follow, leave in order with another
  epoch (``go_on``), without those of ended connections (``lease_recovery.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.brokers import Broker, Brokers
from gateway.messages.envelope import record_properties
from gateway.net.rounds import Rounds, Stage
from gateway.publishing.broker_batch import NONE, Batch, BrokerBatch, NameRoute, Publisher, Unplaced
from gateway.publishing.placing import Placing
from gateway.publishing.spans import Spans as Spans
from gateway.sessions.session_state import Will
from penstock.errors import (
    AWAY,
    Busy,
    Fenced,
    InvalidMessage,
    NotAllowed,
    PenstockError,
    StorageFull,
    TopicNotFound,
)
from penstock.protocol.message import FLAG_QOS, FLAG_RETAIN, NEVER, PROPERTIES_BYTES_MAX, record_tail, topic_of_tail
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import Appended
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.sessions import EndGatewayEpochs
from penstock.protocol.runs import Run
from penstock.protocol.trace_context import NO_TRACE, trace_in
from penstock.service.histogram import Histogram
from topicmap.names import SHORT_BYTES_MAX
from topicmap.queues import TopicMap

_NO_ROOM: Final = frozenset({Busy.code, StorageFull.code})
_ELSEWHERE: Final = frozenset({TopicNotFound.code, NotAllowed.code})
_ROUTES_MAX: Final = 256
_OVER_MAX: Final = 1000
_WILL: Final = b"\x00"
"""The mark of a will, which is not sent."""


class Upstream(Stage):
    """All publications of one gateway on their way to the brokers."""

    def __init__(
        self,
        brokers: Brokers,
        topic_map: TopicMap,
        append_bytes_max: int,
        rounds: Rounds,
        epoch: str,
        spans: Spans | None = None,
    ) -> None:
        """``spans``: the recorder of traces; ``None`` without one."""
        self._map = topic_map
        self.spans = spans
        self._append_bytes_max = append_bytes_max
        self._lanes: list[BrokerBatch] = []  # one per broker, of which there are few
        self._placing = Placing(brokers, self._lane, self._add, self.flush, self.drop)
        self.rounds = rounds
        self.epoch = epoch  # what this gateway appends in
        self.is_refused = False  # a broker has: it is over
        self.is_held = False  # nothing more leaves in it
        self._over: tuple[str, ...] = NONE  # epochs of gateways
        self.level = ""  # the level of the messages that are acknowledged
        self.unanswered = 0
        self.dropped = 0
        self.unauthorized = 0  # of these, what the access rules refused
        self.stored = 0
        self.stored_s = Histogram()  # from their reading to the broker's answer, by batches
        self.appends = 0

    # ------------------------------------------------------------ in

    def route(self, name: str, client_id: str, mount: str = "") -> NameRoute:
        """The route of a client's publications under a checked name. ``mount``: what of it the client does not say.
        Raises ``topicmap.names.InvalidName``."""
        placed = self._map.place(name, client_id)
        return NameRoute(name, client_id, placed.key, self._placing.topic(placed.topic), mount)

    def route_among(self, known: dict[bytes, NameRoute], name: str, client_id: str, mount: str = "") -> NameRoute:
        """The same among those that a client has used before, made when it is first used."""
        raw = name[len(mount) :].encode()
        route = known.get(raw)
        if route is None:
            route = self.route(name, client_id, mount)
            if len(raw) <= SHORT_BYTES_MAX:
                if len(known) >= _ROUTES_MAX:
                    known.clear()
                known[raw] = route
        return route

    def topic_of(self, filter: str) -> str | None:
        """The one topic that holds all that a checked filter matches, if there is one. Raises ``InvalidName``."""
        return self._map.topic_of(filter)

    def publish(
        self,
        device: Publisher | None,
        route: NameRoute,
        payload: bytes | memoryview,
        flag: int,
        mark: bytes,
        properties: bytes = b"",
    ) -> None:
        """Takes one publication. ``flag`` is its QoS and RETAIN, ``properties`` replace the route's own."""
        tail = record_tail(route.topic_bytes, properties) if properties else route.tail
        run = Run(tail, flag, self.rounds.now_ms, [bytes(payload)])
        if self.spans is not None:
            self.spans.carried_by(run)
        first = 0
        if device is not None:
            device.unstored += run.size
            first = device.sequence
            device.sequence += bool(mark)
        lane, publication = route.lane(), Unplaced(device, run, mark, first)
        if lane is None or self._placing.is_behind(route.client_id):
            self._placing.wait(route, publication)
        else:
            self._add(lane, publication)

    def publish_will(self, client_id: str, will: Will, executor: Publisher | None) -> None:
        """Publishes what a client left for the case of its sudden end. ``executor`` waits for its fate; without one it
        is published at most once. Raises as ``will_properties``."""
        properties = self.will_properties(client_id, will)
        flag = will.qos | (FLAG_RETAIN if will.retain else 0)
        self.publish(executor, self.route(will.name, client_id), will.payload, flag, _WILL, properties)

    def will_properties(self, client_id: str, will: Will) -> bytes:
        """The property string of a will. Raises ``InvalidMessage`` if it is too long, ``InvalidName`` for its name."""
        key, user = self._map.place(will.name, client_id).key, will.user if will.retain else ""
        return _fitting(record_properties(will.name, key, client_id, will.expiry_s, will.application, user=user))

    def properties(
        self, route: NameRoute, client_id: str, expiry_s: int, application: bytes, exchange: str = "", user: str = ""
    ) -> bytes:
        """The property string of a publication with MQTT 5 properties, of an exchange that is to be stored once, or of
        what a ``user`` has retained; empty for the route's own. Raises ``InvalidMessage`` if it is too long."""
        trace = trace_in(application) if application else NO_TRACE
        if self.spans is not None:
            trace = self.spans.begin(route.name, client_id, trace)
        if expiry_s == NEVER and not application and not exchange and not user and not trace.trace_id:
            return b""
        name, key = route.name, route.key
        return _fitting(record_properties(name, key, client_id, expiry_s, application, exchange, user, trace))

    def _add(self, lane: BrokerBatch, publication: Unplaced) -> None:
        lane.devices.append(publication.device)
        lane.firsts.append(publication.first)
        lane.runs.append(publication.run)
        lane.marks.append(publication.mark)
        self.grown(lane, publication.run.size)

    def grown(self, lane: BrokerBatch, size: int) -> None:
        """Reports the bytes of records that were added to a lane."""
        lane.size += size
        if lane.size >= self._append_bytes_max:
            self._append(lane)

    # ------------------------------------------------------------ the round's end

    def flush(self) -> None:
        """Sends each broker its batch, as one request."""
        if self.is_held:
            return
        for lane in self._lanes:
            if lane.runs:
                self._append(lane)

    def _append(self, lane: BrokerBatch) -> None:
        self.appends += 1
        batch = Appending(self, lane, self.appends, self.rounds.now)
        lane.runs, lane.marks, lane.devices, lane.firsts, lane.size = [], [], [], [], 0
        self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        lane = batch.lane
        if self.is_held or lane.waits:
            lane.returned.append(batch)
            return
        if lane.kept:
            batch.queue_up()
            if not batch.runs:
                return
        if lane.told is not self._over:
            self._tell_over(lane)
        self.unanswered += 1
        lane.unanswered += 1
        batch.epoch, batch.attempt = self.epoch, lane.attempt
        lane.broker.submit(GivenRuns(len(batch.marks), batch.runs, batch.epoch, batch.attempt), batch)

    def appended(self, batch: Batch, result: Result) -> None:
        """Handles the broker's answer to a batch."""
        lane = batch.lane
        self.unanswered -= 1
        lane.unanswered -= 1
        if isinstance(result, StorageFull) or _full_from(batch, result) is not None:
            lane.waits = True
        self._take_answer(batch, result)
        if lane.waits and not lane.unanswered:
            lane.waits = False
            lane.attempt += 1
            self._submit_again(lane)

    def _take_answer(self, batch: Batch, result: Result) -> None:
        trace_id = self.spans.answered(batch.runs, batch.lane.broker.address, result) if self.spans is not None else ""
        if isinstance(result, Appended):
            self.stored_s.observe(self.rounds.read() - batch.began, trace_id)
            self.level = result.level
            if result.refused or batch.lane.kept:
                self._partly(batch, {refused.at: refused.code for refused in result.refused}, _full_from(batch, result))
                return
            self.stored += len(batch.marks)
            self._tell(batch)
            if not self.unanswered:
                self.rounds.send()  # before others that wait for the same records get the answer
        elif isinstance(result, Fenced):
            self._refused_epoch(batch)
        elif isinstance(result, PenstockError) and not result.unknown:
            self._partly(batch, dict.fromkeys(range(len(batch.marks)), result.code), 0)
        else:
            self._lost(batch)

    def _tell(self, batch: Batch) -> None:
        """All of a batch is stored: each device hears it of what it has there one behind the other, with nothing of its
        own elsewhere between them."""
        runs, marks, devices, firsts = batch.runs, batch.marks, batch.devices, batch.firsts
        at = which = 0
        while which < len(runs):
            run, device, first = runs[which], devices[which], firsts[which]
            size, stop, exact = run.size, at + len(run.bodies), _is_exact(run)
            which += 1
            if which < len(runs) and devices[which] is device:
                next_one = first + stop - at if marks[at] else first
                while (
                    which < len(runs)
                    and devices[which] is device
                    and firsts[which] == next_one
                    and _is_exact(runs[which]) == exact
                ):
                    size += runs[which].size
                    next_one += len(runs[which].bodies) if marks[stop] else 0
                    stop += len(runs[which].bodies)
                    which += 1
            if device is not None and stop == at + 1 and not exact:
                device.stored_one(first, marks[at], size)
            elif device is not None:
                device.stored(first, marks[at:stop], size, exact)
            at = stop

    def _lost(self, batch: Batch) -> None:
        at = 0
        for run, device in zip(batch.runs, batch.devices, strict=True):
            count = len(run.bodies)
            if device is not None:
                device.fate_unknown(batch.marks[at : at + count])
                device.answered(run.size)
            at += count

    def _partly(self, batch: Batch, codes: dict[int, int], again_from: int | None = None) -> None:
        """Some messages of a batch, or of an earlier one, were refused: each device gets its marks and refusals in the
        order of its sending. ``again_from``: from there on they were refused for what may pass; any other message is
        refused for good. What was sent after a message that is kept, and is stored before it, is not acknowledged: its
        device is disconnected."""
        lane, marks = batch.lane, batch.marks
        again = len(marks) if again_from is None else again_from
        self.stored += len(marks) - len(codes)
        if not _ELSEWHERE.isdisjoint(codes.values()):
            self._forget_topics(batch, codes)
        overtaken = {kept.device for kept in lane.kept if kept.number < batch.number}
        begin = 0
        for run, device, first in zip(batch.runs, batch.devices, batch.firsts, strict=True):
            places = range(begin, begin + len(run.bodies))
            begin = places.stop
            if device is None:
                self.dropped += sum(at in codes for at in places)
                continue
            for number, (at, body) in enumerate(zip(places, run.bodies, strict=True), first):
                code = codes.get(at)
                if code is None and marks[at] and device in overtaken:
                    device.fate_unknown([marks[at]])  # its client sends both again; what QoS 2 has stored stays there
                elif code is None:
                    device.stored(number, [marks[at]], 0, _is_exact(run))
                elif at >= again and marks[at] and _may_pass(code, device):
                    lane.keep_one(device, run.of([body]), marks[at], batch.number, number)
                else:
                    device.refused(number, marks[at], code)
            device.answered(run.size)

    def _forget_topics(self, batch: Batch, codes: dict[int, int]) -> None:
        """Looks the topics up anew that the broker does not have, or does not take messages for just now."""
        at = 0
        for run in batch.runs:
            if codes.get(at) in _ELSEWHERE:
                self._placing.forget(topic_of_tail(run.tail))
            at += len(run.bodies)

    # ------------------------------------------------------------ epochs

    def note_over(self, epochs: Sequence[str]) -> None:
        """Notes ended epochs of gateways: each broker gets them before anything else from here, so that earlier
        messages of their clients are never stored behind later ones."""
        known = frozenset(self._over)
        added = [epoch for epoch in epochs if epoch not in known]
        if added:
            self._over = (*self._over, *added)[-_OVER_MAX:]

    def _tell_over(self, lane: BrokerBatch) -> None:
        told = frozenset(lane.told)
        epochs = tuple([epoch for epoch in self._over if epoch not in told])
        lane.told = self._over
        if epochs:
            lane.broker.submit(EndGatewayEpochs(epochs), partial(self._told_over, lane))

    @staticmethod
    def _told_over(lane: BrokerBatch, result: Result) -> None:
        if isinstance(result, PenstockError) and (result.retryable or result.unknown):
            lane.told = NONE  # told again before the next batch

    def _refused_epoch(self, batch: Batch) -> None:
        batch.lane.returned.append(batch)
        if batch.epoch == self.epoch and not self.is_held:
            self.is_refused = True
            self.rounds.wake()

    def hold(self) -> None:
        """This gateway may have lost sessions: nothing leaves until it goes on."""
        self.is_held = True

    def go_on(self, epoch: str) -> None:
        """Whatever is of sessions that were lost is of connections that are over: the rest leaves in another epoch, to
        each broker once it has answered all that was sent to it in the last one."""
        for lane in self._lanes:
            if lane.runs:
                self._append(lane)  # to the others that wait
        self._placing.drop_absent()
        self.epoch, self.is_held, self.is_refused = epoch, False, False
        for lane in self._lanes:
            lane.waits = lane.unanswered > 0
            if not lane.waits:
                self._submit_again(lane)

    def _submit_again(self, lane: BrokerBatch) -> None:
        returned, lane.returned = sorted(lane.returned, key=_number_of), []
        for batch in returned:
            self.dropped += batch.drop_absent()
            if batch.runs:
                self._submit(batch)

    # ------------------------------------------------------------ waiting for room

    def retry(self) -> None:
        """Tries again what the log had no room for, in order, and looks up again topics without an answer. What a
        closed connection has left here was never acknowledged and is given up."""
        self._append_again()
        self._placing.look_again()
        self._placing.sweep(self.rounds.now)

    def _append_again(self) -> None:
        """A device that has something else out waits until that is answered: it may have overtaken what is kept."""
        busy = {kept.device for lane in self._lanes for kept in lane.kept if kept.device.unstored}
        for lane in self._lanes:
            waiting, lane.kept = lane.kept, []
            for kept in waiting:
                device = kept.device
                if device.is_over:
                    self.dropped += 1
                elif device in busy:
                    lane.kept.append(kept)
                else:
                    device.unstored += kept.run.size
                    device.kept -= 1
                    device.release_reading()
                    self._add(lane, Unplaced(device, kept.run, kept.mark, kept.first))
        self.flush()

    def _lane(self, broker: Broker) -> BrokerBatch:
        for lane in self._lanes:
            if lane.broker is broker:
                return lane
        self._lanes.append(BrokerBatch(broker))
        return self._lanes[-1]

    def drop(self, count: int, *, unauthorized: bool = False) -> None:
        """Counts publications that are not stored, for good. ``unauthorized``: the access rules have refused one."""
        self.dropped += count
        self.unauthorized += unauthorized


class Appending(Batch):
    """A batch that waits for its answer. A class, because there is one for every batch, and compiled it costs less than
    a partial."""

    __slots__ = ("_upstream",)

    def __init__(self, upstream: Upstream, lane: BrokerBatch, number: int, began: float) -> None:
        super().__init__(lane, number, began)
        self._upstream = upstream

    def __call__(self, result: Result) -> None:
        self._upstream.appended(self, result)


def _may_pass(code: int, device: Publisher) -> bool:
    return code in AWAY or (code in _NO_ROOM and not device.is_v5)


def _full_from(batch: Batch, result: Result) -> int | None:
    """The beginning of the messages of a batch that the disk had no room for, up to its end; ``None`` if there are
    none. The broker stores a batch in parts where its segments are small."""
    if not isinstance(result, Appended) or not result.refused:
        return None
    full = {one.at for one in result.refused if one.code == StorageFull.code}
    at = len(batch.marks)
    while at - 1 in full:
        at -= 1
    return at if at < len(batch.marks) else None


def _number_of(batch: Batch) -> int:
    return batch.number


def _is_exact(run: Run) -> bool:
    """Whether a run has QoS 2."""
    return run.flag & FLAG_QOS == 2


def _fitting(properties: bytes) -> bytes:
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(f"properties have at most {PROPERTIES_BYTES_MAX} bytes once stored, not {len(properties)}")
    return properties
