"""Topics that come, go and come again against a plain model, over crashes of both kinds and lost derived files.

The model is the list of what was done, in order. After a crash the broker must show what some prefix of that list
gives, and one that holds at least all that was acknowledged: topics, queues entry by entry, offsets of groups and
retained messages. No offset of a queue that was ever acknowledged means another message later, however often its topic
is deleted.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penstock.errors import TopicNotFound
from penstock.protocol.message import FRAME_HEAD_BYTES, Message, decode_batch, encode_message, record_body
from penstock.protocol.requests.groups import CommitOffsets, QueueOffset
from penstock.protocol.requests.messages import Append, FindByKey, Pull
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.topics import Bounds, CreateTopic, DeleteTopic, DescribeTopic, ListTopics
from tests.broker.broker_rig import Rig, now

NAMES = ("a", "b", "c")
QUEUES = 2  # of a topic that a message makes
DERIVED = ("index", "checkpoint")


class Step(NamedTuple):
    """Something that was done. ``number``: of queues, of a queue, or an offset in queue 0."""

    kind: str
    topic: str
    number: int = 0
    body: bytes = b""
    retain: bool = False


class Shape:
    """What the broker shows after these steps."""

    def __init__(self, steps: list[Step]) -> None:
        self.topics: dict[str, int] = {}
        self.queues: dict[str, tuple[int, list[bytes]]] = {}
        self.retained: dict[str, bytes] = {}
        self.committed: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        for step in steps:
            getattr(self, "_" + step.kind)(step)

    def _make(self, step: Step) -> None:
        if step.topic not in self.topics:
            self.topics[step.topic] = step.number
            for number in range(step.number):
                queue = f"{step.topic}:{number}"
                self.queues[queue] = (self.ended.get(queue, 0), [])

    def _say(self, step: Step) -> None:
        self.queues[f"{step.topic}:{step.number}"][1].append(step.body)
        if step.retain:
            self.retained[step.topic] = step.body

    def _commit(self, step: Step) -> None:
        self.committed[f"{step.topic}:0"] = step.number

    def _delete(self, step: Step) -> None:
        for number in range(self.topics.pop(step.topic)):
            queue = f"{step.topic}:{number}"
            first, bodies = self.queues.pop(queue)
            self.ended[queue] = first + len(bodies)
            self.committed.pop(queue, None)
        self.retained.pop(step.topic, None)

    def ended_of(self, topic: str) -> dict[str, int]:
        """Where its queues ended that are not there."""
        gone = {queue: end for queue, end in self.ended.items() if queue not in self.queues and end}
        return {queue: end for queue, end in gone.items() if queue.startswith(topic)}

    def end(self, topic: str) -> int:
        """The next offset of its queue 0."""
        first, bodies = self.queues[f"{topic}:0"]
        return first + len(bodies)


class TopicMachine(RuleBasedStateMachine):
    """Drives a broker on a simulated disk beside the model."""

    @initialize(
        seed=st.integers(0, 1 << 16),
        segment_bytes=st.sampled_from([1 << 14, 1 << 15]),
        chunk_bytes=st.sampled_from([600, 2500]),
        retention_bytes=st.sampled_from([0, 0, 40_000]),
    )
    def begin(self, seed: int, segment_bytes: int, chunk_bytes: int, retention_bytes: int) -> None:
        self.rng = random.Random(seed)
        self.retention_bytes = retention_bytes
        self.rig = Rig(
            segment_bytes=segment_bytes,
            chunk_bytes=chunk_bytes,
            retention_bytes=retention_bytes,
            default_queues=QUEUES,
            fresh_bytes=0,
        )
        self.rig.sync()
        self.steps: list[Step] = []
        self.acknowledged = 0
        self.ever: dict[tuple[str, int], bytes] = {}
        self.said = 0

    @property
    def shape(self) -> Shape:
        return Shape(self.steps)

    def sync(self) -> None:
        self.rig.sync()
        self.acknowledged = len(self.steps)

    # ------------------------------------------------------------ what is done

    @rule(topic=st.sampled_from(NAMES), queues=st.integers(1, 3), waits=st.booleans())
    def make(self, topic: str, queues: int, waits: bool) -> None:
        if topic not in self.shape.topics:
            self.rig.submit(CreateTopic(topic, queues))
            self.steps.append(Step("make", topic, queues))
        if waits:
            self.sync()

    @rule(topic=st.sampled_from(NAMES), count=st.integers(1, 8), retain=st.booleans(), size=st.sampled_from([0, 700]))
    def say(self, topic: str, count: int, retain: bool, size: int) -> None:
        if topic not in self.shape.topics:
            self.steps.append(Step("make", topic, QUEUES))
        queues = self.shape.topics[topic]
        batch = []
        for _ in range(count):
            self.said += 1
            queue, body = self.rng.randrange(queues), b"%d " % self.said + bytes(size)
            batch.append(encode_message(Message(topic, body, key="k", retain=retain), queue_id=queue))
            self.steps.append(Step("say", topic, queue, body, retain))
        self.rig.submit(Append(count, False, b"".join(batch)))

    @rule(topic=st.sampled_from(NAMES), waits=st.booleans())
    def delete(self, topic: str, waits: bool) -> None:
        if topic in self.shape.topics:
            self.rig.submit(DeleteTopic(topic))
            self.steps.append(Step("delete", topic))
        if waits:
            self.sync()

    @rule(topic=st.sampled_from(NAMES))
    def delete_and_say_again(self, topic: str) -> None:
        self.delete(topic, waits=False)
        self.say(topic, 3, retain=False, size=0)

    @rule(topic=st.sampled_from(NAMES))
    def commit(self, topic: str) -> None:
        self.sync()
        if topic in self.shape.topics:
            offset = self.shape.end(topic)
            assert self.rig.ask(CommitOffsets("g", "", 0, (QueueOffset(f"{topic}:0", offset),))) == Done()
            self.steps.append(Step("commit", topic, offset))
            self.sync()

    @rule(ticks=st.sampled_from([1, 30, 60]))
    def tick(self, ticks: int) -> None:
        self.sync()
        for _ in range(ticks):
            self.rig.clock.now += 0.05
            self.rig.dispatch.tick()
        self.sync()

    @rule()
    def kill(self) -> None:
        self.rig = self.rig.restarted()
        self.after_crash(len(self.steps))

    @rule()
    def clean_restart(self) -> None:
        self.rig.store.close(self.rig.clock.wall_ms())
        self.rig = self.rig.restarted()
        self.after_crash(len(self.steps))

    @rule()
    def power_loss(self) -> None:
        self.rig.disk.lose_power()
        self.rig = self.rig.restarted()
        self.after_crash(self.acknowledged)

    @rule(harm=st.sampled_from(["one", "all"]))
    def lose_derived_files(self, harm: str) -> None:
        self.rig.disk.kill()
        paths = [path for folder in DERIVED for path in self.rig.disk.paths(folder)]
        for path in paths if harm == "all" else self.rng.sample(paths, min(1, len(paths))):
            self.rig.disk.delete(path)
        self.rig = self.rig.restarted()
        self.after_crash(len(self.steps))

    # ------------------------------------------------------------ what must hold

    def after_crash(self, least: int) -> None:
        self.rig.sync()
        for count in range(len(self.steps), least - 1, -1):
            if self.differs(Shape(self.steps[:count])) is None:
                del self.steps[count:]
                self.acknowledged = count
                return
        raise AssertionError(f"none of the prefixes fits; of all: {self.differs(self.shape)}")

    @invariant()
    def the_broker_shows_what_was_done(self) -> None:
        assert self.differs(self.shape) is None

    @invariant()
    def no_offset_means_another_message(self) -> None:
        for queue, (first, bodies) in Shape(self.steps[: self.acknowledged]).queues.items():
            for offset, body in enumerate(bodies, first):
                assert self.ever.setdefault((queue, offset), body) == body

    def differs(self, shape: Shape) -> str | None:
        """Where the broker is not as the model says."""
        state = self.rig.state
        topics = {one.topic: one.queues for one in now(self.rig.handle(ListTopics())).topics}
        if topics != shape.topics:
            return f"topics {topics}, not {shape.topics}"
        for topic in NAMES:
            ended = {f"{topic}:{number}": end for number, end in state.topics.ended(topic).items() if end}
            if ended != shape.ended_of(topic):
                return f"{topic} ended at {ended}, not {shape.ended_of(topic)}"
            found = now(self.rig.handle(DescribeTopic(topic)))
            if topic not in topics:
                if not isinstance(found, TopicNotFound):
                    return f"{topic} is there"
                continue
            for bounds in found.bounds:
                if (more := self.queue_differs(bounds, *shape.queues[bounds.queue])) is not None:
                    return more
        committed = dict(state.offsets.of("g"))
        if committed != shape.committed:
            return f"committed {committed}, not {shape.committed}"
        kept = {name: frame for topic in NAMES for name, frame in state.retained.matching(topic, "", 10) if frame}
        retained = {name: bytes(record_body(memoryview(frame)[FRAME_HEAD_BYTES:])) for name, frame in kept.items()}
        if retained != shape.retained:
            return f"retained {retained}, not {shape.retained}"
        return self.finds_others(shape)

    def queue_differs(self, bounds: Bounds, first: int, bodies: list[bytes]) -> str | None:
        """Where a queue is not this list of bodies from its first offset on."""
        next_offset = self.rig.store.next_offset(bounds.queue)
        if (bounds.first, next_offset) != (first, first + len(bodies)):
            return f"{bounds} and next {next_offset}, not {first} to {first + len(bodies)}"
        if not self.retention_bytes and bounds.min != first:
            return f"{bounds} begins behind {first}"
        at = bounds.min
        while at < bounds.end:
            pulled = now(self.rig.handle(Pull(bounds.queue, at, count_max=self.rng.randint(1, 9))))
            for offset, message in decode_batch(pulled.count, pulled.body):
                if (offset, message.body) != (at, bodies[at - first]):
                    return f"{bounds}: another message at {offset}, or none at {at}"
                at += 1
        return None

    def finds_others(self, shape: Shape) -> str | None:
        """A key finds no message of a topic that was deleted."""
        for topic in shape.topics:
            found = now(self.rig.handle(FindByKey(topic, "k")))
            bodies = [body for queue, (_, some) in shape.queues.items() if queue.startswith(topic) for body in some]
            if not {message.body for _, message in decode_batch(found.count, found.body)}.issubset(bodies):
                return f"a key finds messages of {topic} that are gone"
        return None


def test_topics_that_come_and_go_agree_with_a_plain_model() -> None:
    run_state_machine_as_test(
        TopicMachine,
        settings=settings(
            max_examples=15,
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
            deadline=None,
        ),
    )
