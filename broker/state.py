"""All folds of a broker, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from broker.filters.fold import Filters
from broker.groups.fold import Offsets
from broker.groups.given_back import Returns
from broker.kernel.fold import Fold, FoldRegistry
from broker.lineage.epochs import Epochs
from broker.lineage.identity import Identity
from broker.lineage.removals import Removals
from broker.messages.retained import Retained
from broker.producers.fold import Producers
from broker.replica.members import MembersFold
from broker.sessions.exchanges import Exchanges
from broker.sessions.fold import Sessions, homes_of
from broker.sessions.gateway_epochs import GatewayEpochs
from broker.shares.fold import Shares
from broker.store.records import Removed
from broker.timers.fold import Timers
from broker.topics.fold import Topics
from broker.transactions.fold import Halves
from penstock.protocol.message import mqtt_name
from penstock.protocol.requests.routes import TopicRoute
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.requests.topics import TopicInfo
from topicmap.queues import is_own_topic


class BrokerState(FoldRegistry):
    """The folds of a broker (satisfies ``store.records.Folds``). ``more``: folds beside those that every broker has."""

    def __init__(self, more: Sequence[Fold] = ()) -> None:
        self.epochs = Epochs()
        self.members = MembersFold()
        self.topics = Topics()
        self.filters = Filters()
        self.shares = Shares()
        self.offsets = Offsets()
        self.returns = Returns()
        self.sessions = Sessions()
        self.exchanges = Exchanges()
        self.timers = Timers()
        self.halves = Halves()
        self.gateway_epochs = GatewayEpochs()
        self.retained = Retained()
        self.producers = Producers()
        self.note_ids = self.producers.note  # not by way of a method: it is called for every run
        self.identity = Identity()
        self.removals = Removals()
        super().__init__(
            (
                self.epochs,
                self.members,
                self.topics,
                self.filters,
                self.shares,
                self.offsets,
                self.returns,
                self.timers,
                self.halves,
                self.sessions,
                self.exchanges,
                self.gateway_epochs,
                self.retained,
                self.producers,
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

    def is_fenced(self, client: str, generation: int, epoch: int) -> bool:
        """Whether a QoS 2 message comes from a gateway that has lost its session since."""
        session = self.sessions.get(client)
        if session is not None:
            return (generation, epoch) < (session.generation, session.epoch)
        return self.exchanges.is_fenced(client, generation, epoch)

    def queues_of(self, topic: str, properties: bytes) -> Sequence[str]:
        """The light queues of a user's record."""
        if not len(self.filters) or is_own_topic(topic):
            return ()
        return self.filters.queues_of(mqtt_name(topic.encode(), properties))

    def topic_queues(self) -> Iterator[tuple[str, int]]:
        """The queues of all topics."""
        return ((topic.topic, number) for topic in self.topics for number in range(topic.queues))

    def floors(self) -> Iterator[tuple[str, int]]:
        """The queues of topics that begin at a certain offset."""
        return self.topics.floors()

    def routes(self) -> tuple[int, tuple[TopicRoute, ...]]:
        """Version and topics, as name servers get them."""
        return self.topics.version, self._routes_of(self.topics)

    def changed_routes(self, since: int) -> tuple[int, tuple[TopicRoute, ...]] | None:
        """The version, and the topics that have changed since an earlier one; those that are gone have 0 queues.
        ``None`` where it is not known which."""
        changed = self.topics.since(since)
        return None if changed is None else (self.topics.version, self._routes_of(changed))

    def homes(self) -> set[str]:
        """Names of other brokers where sessions are at home that hold something here."""
        return homes_of(self.filters.owners)

    def _routes_of(self, topics: Iterable[TopicInfo]) -> tuple[TopicRoute, ...]:
        """``writable``: whether producers should come; what gateways need for themselves is written all the same."""
        may_write = self.topics.may_write
        return tuple(
            [
                TopicRoute(one.topic, one.queues, "w" in one.access and (may_write or one.topic in GATEWAYS_TOPICS))
                for one in sorted(topics)
            ]
        )
