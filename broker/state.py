"""All folds of a broker, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.filters.fold import Filters
from broker.groups.fold import Offsets
from broker.kernel.fold import Fold, FoldRegistry
from broker.lineage.epochs import Epochs
from broker.lineage.identity import Identity
from broker.lineage.removals import Removals
from broker.messages.retained import Retained
from broker.sessions.exchanges import Exchanges
from broker.sessions.fold import Sessions
from broker.sessions.lives import Lives
from broker.shares.fold import Shares
from broker.store.records import Removed
from broker.timers.fold import Timers
from broker.topics.fold import Topics
from broker.transactions.fold import Halves
from penstock.protocol.message import mqtt_name
from topicmap.queues import is_own_topic


class BrokerState(FoldRegistry):
    """The folds of a broker (satisfies ``store.records.Folds``). ``more``: folds beside those that every broker has."""

    def __init__(self, more: Sequence[Fold] = ()) -> None:
        self.epochs = Epochs()
        self.topics = Topics()
        self.filters = Filters()
        self.shares = Shares()
        self.offsets = Offsets()
        self.sessions = Sessions()
        self.exchanges = Exchanges()
        self.timers = Timers()
        self.halves = Halves()
        self.lives = Lives()
        self.retained = Retained()
        self.identity = Identity()
        self.removals = Removals()
        super().__init__(
            (
                self.epochs,
                self.topics,
                self.filters,
                self.shares,
                self.offsets,
                self.timers,
                self.halves,
                self.sessions,
                self.exchanges,
                self.lives,
                self.retained,
                self.identity,
                self.removals,
                *more,
            )
        )

    @property
    def epoch(self) -> int:
        """The last epoch, 0 before the first."""
        return self.epochs.last

    @property
    def removed(self) -> Removed:
        """What of the log is removed."""
        return self.removals.latest

    def is_fenced(self, client: str, incarnation: int, epoch: int) -> bool:
        """Whether a QoS 2 message comes from a gateway that has lost its session since."""
        session = self.sessions.get(client)
        if session is not None:
            return (incarnation, epoch) < (session.incarnation, session.epoch)
        return self.exchanges.is_fenced(client, incarnation, epoch)

    def queues_of(self, topic: str, properties: bytes) -> Sequence[str]:
        """The light queues of a user's record."""
        if not len(self.filters) or is_own_topic(topic):
            return ()
        return self.filters.queues_of(mqtt_name(topic.encode(), properties))

    def topic_queues(self) -> Iterator[tuple[str, int]]:
        """The queues of all topics."""
        return ((topic.topic, number) for topic in self.topics for number in range(topic.queues))
