"""The known brokers, and the broker of a topic, as the name servers say.

``refresh`` asks for all live brokers. A new one is announced once and never withdrawn: its link fails by itself while
it is away. A broker is known by its name; at another address it is the same ``Broker``. ``find`` asks for one topic. If
no broker has it, it is created at the broker that every gateway would choose, but never if a broker that is away may
have it (``NoRoute``).

If a broker's log has copies, its address is the leader's: requests follow a new leader once the old node has answered
all that it was sent. Name servers are asked in turn until one answers. Nothing here waits: answers come by completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.net.rounds import Stage
from penstock.client.sending import maker_of
from penstock.errors import InternalError, NoQuorum, NoRoute, NotLeader, PenstockError, Unavailable
from penstock.protocol.link import Link, Links, OnResult
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute, QueryConfig, QueryRoute, Route
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, TopicDetail
from topicmap.queues import SYS_TOPIC

ANSWER_S: Final = 5.0
"""A name server that does not answer for this long hangs, because it answers from memory."""
OnFound = Callable[["list[Broker] | PenstockError"], None]
AskToMake = Callable[[], "DescribeTopic | PenstockError"]
"""The request with which a topic is made, or why it is not."""


class Nowhere:
    """The way to a broker at whose address another one listens now: what the one is asked must not reach the other."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(Unavailable("the broker is away"))

    def flush(self) -> None:
        """Nothing was handed over."""


class Broker:
    """One broker: its name, its address just now and the way to it. What is submitted leaves at the round's end
    (``Brokers.flush``). ``has_copies``: other nodes may lead its log. ``out``: unanswered requests, counted while it
    has copies."""

    __slots__ = ("_brokers", "address", "has_copies", "is_idle", "link", "name", "out")

    def __init__(self, address: str, link: Link, brokers: Brokers, name: str = "") -> None:
        self.name = name
        self.address = address
        self.link = link
        self.is_idle = True
        self.has_copies = False
        self.out = 0
        self._brokers = brokers

    def submit(self, request: Request, on_result: OnResult) -> None:
        if self.has_copies:
            self.out += 1
            on_result = _Answer(self._brokers, self, on_result)
        self.link.submit(request, on_result)
        if self.is_idle:
            self.is_idle = False
            self._brokers.has_requests(self)


class _Answer:
    """Receiver of an answer of a broker whose log has copies: a refusal may name the leader."""

    __slots__ = ("_address", "_broker", "_brokers", "_on_result")

    def __init__(self, brokers: Brokers, broker: Broker, on_result: OnResult) -> None:
        self._brokers = brokers
        self._broker = broker
        self._address = broker.address
        self._on_result = on_result

    def __call__(self, result: Result) -> None:
        self._broker.out -= 1
        if isinstance(result, Unavailable) and not isinstance(result, NoQuorum):
            self._brokers.heard_of(self._broker, self._address, result)
        self._on_result(result)


class Brokers(Stage):
    """The brokers that this gateway knows, in the order in which they appeared."""

    def __init__(self, links: Links, namesrv: Sequence[str], wake: Callable[[], None]) -> None:
        """``wake`` is called when there is something to flush, so that a round comes."""
        self._links = links
        self._wake = wake
        self._to_flush: list[Broker] = []
        self._namesrv = [Broker(address, links.link(address), self) for address in namesrv]
        self._known: dict[str, Broker] = {}
        self._on_new: list[Callable[[Broker], None]] = []
        self._refreshing = False
        self._first = 0  # the name server that is asked before the others
        self._asked = 0  # the one that was asked last who lives
        self._waits_since: float | None = None  # for its answer
        self._leaders: dict[Broker, str] = {}  # addresses of leaders, to which requests do not go yet
        self._is_lost = False  # the leader of some broker
        self.unnamed = ""
        """Why no name server has said who lives when it was asked last; empty where one has."""

    @property
    def known(self) -> list[Broker]:
        return list(self._known.values())

    def on_new(self, tell: Callable[[Broker], None]) -> None:
        """Has ``tell`` called for every broker, those known already included."""
        self._on_new.append(tell)
        for broker in self.known:
            tell(broker)

    def has_requests(self, broker: Broker) -> None:
        if not self._to_flush:
            self._wake()
        self._to_flush.append(broker)

    def flush(self) -> None:
        """Sends what was submitted, one batch per server; what replies ask for at once goes out with it."""
        while self._to_flush:
            waiting, self._to_flush = self._to_flush, []
            for broker in waiting:
                broker.is_idle = True
                broker.link.flush()

    def refresh(self) -> None:
        """Asks who lives; does nothing while an earlier question is open."""
        if not self._refreshing:
            self._refreshing = True
            self._ask(QueryRoute(""), self._refreshed, refreshes=True)

    def read_config(self, namespace: str, on_result: OnResult) -> None:
        """Asks the name server that answers first for the entries of a namespace."""
        self._namesrv[self._first].submit(QueryConfig(namespace), on_result)

    def find(self, topic: str, on_found: OnFound, ask_to_make: AskToMake | None = None) -> None:
        """The brokers to write a topic to, ordered by name; ``NoRoute`` or what a broker said if there is none.
        ``ask_to_make`` is asked only where no broker has it."""
        self._ask(QueryRoute(topic), lambda result: self._found(topic, result, on_found, ask_to_make))

    # ------------------------------------------------------------ name servers

    def tick(self, now: float) -> None:
        """To be called about twice a second. A name server that takes questions and does not answer is given up, with
        all that waits for it, and asked behind the others from then on."""
        for broker, address in list(self._leaders.items()):
            self._follow(broker, address)
        if self._is_lost:
            self._is_lost = False
            self.refresh()
        if not self._refreshing:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since >= ANSWER_S:
            self._waits_since = None
            self._first = (self._asked + 1) % len(self._namesrv)
            self._links.give_up(self._namesrv[self._asked].address)

    def _ask(self, request: QueryRoute, on_result: Callable[[Result], None], *, refreshes: bool = False) -> None:
        turns = [*range(self._first, len(self._namesrv)), *range(self._first)]
        self._ask_next(request, on_result, turns, None, refreshes)

    def _ask_next(
        self,
        request: QueryRoute,
        on_result: Callable[[Result], None],
        turns: list[int],
        away: NoRoute | None,
        refreshes: bool,
    ) -> None:
        """``turns``: the name servers that were not asked yet. ``away``: an earlier one has said that a broker that is
        away has the topic."""
        at, others = turns[0], turns[1:]
        if refreshes:
            self._asked, self._waits_since = at, None

        def answered(result: Result) -> None:
            told = result if isinstance(result, NoRoute) else away
            if isinstance(result, PenstockError) and others:
                self._ask_next(request, on_result, others, told, refreshes)
            elif told is not None and not (isinstance(result, Route) and result.brokers):
                on_result(told)
            else:
                on_result(result)

        self._namesrv[at].submit(request, answered)

    def heard_of(self, broker: Broker, address: str, error: Unavailable) -> None:
        """The node of a broker at an address does not lead it, or cannot be reached."""
        if broker.address != address:
            return
        if isinstance(error, NotLeader) and error.leader not in ("", address):
            self._leaders[broker] = error.leader
            self._follow(broker, error.leader)
        self._is_lost = True

    def _follow(self, broker: Broker, address: str) -> None:
        """Turns to a broker's leader if nothing is out elsewhere: one publisher's messages keep their order."""
        if broker.out == 0:
            del self._leaders[broker]
            if broker.address != address:
                self._vacate(address)
                self._move(broker, address, self._links.link(address))

    def _refreshed(self, result: Result) -> None:
        self._refreshing = False
        self.unnamed = str(result) if isinstance(result, PenstockError) else ""
        if isinstance(result, Route):
            self._learn(result.brokers)

    def _learn(self, routes: Sequence[BrokerRoute]) -> list[Broker]:
        learned = []
        for route in routes:
            broker = self._known.get(route.broker)
            if broker is None:
                self._vacate(route.address)
                link = self._links.link(route.address)
                broker = self._known[route.broker] = Broker(route.address, link, self, route.broker)
                broker.has_copies = route.epoch > 0
                for tell in self._on_new:
                    tell(broker)
            elif broker.address != route.address and route.address not in route.readers:  # else no node leads it
                self._leaders.pop(broker, None)
                self._vacate(route.address)
                self._move(broker, route.address, self._links.link(route.address))
            broker.has_copies = route.epoch > 0
            learned.append(broker)
        return sorted(learned, key=lambda broker: broker.name)

    def _vacate(self, address: str) -> None:
        """The broker at this address is gone, and away until it is known at another one."""
        for broker in self._known.values():
            if broker.address == address:
                self._move(broker, "", Nowhere())

    def _move(self, broker: Broker, address: str, link: Link) -> None:
        left, broker.address, broker.link = broker.address, address, link
        if left:  # what is out ends before anything goes the new way: one publisher's messages keep their order
            self._links.give_up(left)

    # ------------------------------------------------------------ topics

    def _found(self, topic: str, result: Result, on_found: OnFound, ask_to_make: AskToMake | None) -> None:
        if isinstance(result, PenstockError):
            on_found(result)
            return
        assert isinstance(result, Route)
        writable = [route for route in result.brokers if route.writable]
        if writable:
            on_found(self._learn(writable))
        elif result.brokers:  # it is not to be made once more at another
            on_found(NoRoute(f"no broker takes messages for topic {topic} just now"))
        else:
            self._ask(QueryRoute(""), lambda all_live: self._make(topic, all_live, on_found, ask_to_make))

    def _make(self, topic: str, result: Result, on_found: OnFound, ask_to_make: AskToMake | None) -> None:
        if not isinstance(result, Route) or not result.brokers:
            on_found(
                result if isinstance(result, PenstockError) else NoRoute(f"no broker lives that could hold {topic}")
            )
            return
        self._learn(result.brokers)
        broker = self._known[maker_of(topic, result.brokers).broker]
        request: Request | PenstockError = DescribeTopic(topic, create=True)
        if topic == SYS_TOPIC:  # figures that are published again wait for no disk
            request = CreateTopic(topic, 1, "cache")
        elif ask_to_make is not None:
            request = ask_to_make()
        if isinstance(request, PenstockError):
            on_found(request)
        else:
            broker.submit(request, lambda made: self._made(broker, made, on_found))

    @staticmethod
    def _made(broker: Broker, result: Result, on_found: OnFound) -> None:
        if isinstance(result, TopicDetail):
            on_found([broker])
        else:
            on_found(result if isinstance(result, PenstockError) else InternalError("no reply to DescribeTopic"))
