"""A broker as a whole: over a simulated network in virtual time, and as a process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import broker.net.server
from broker.net.running import GIVE_BACK_S, HEARING_S, TICK_S, RunningBroker
from broker.settings import BrokerSettings
from broker.store.disk import LARGE_BYTES, RealDisk
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import AddressInUse, DataFolderLocked, StorageFailed, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Appended, Pull, Pulled
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, TopicDetail
from penstock.service.frame_server import Peer
from penstock.world import real_world
from tests.broker.broker_rig import SMALL, append, bodies
from tests.patience import PATIENCE_S
from tests.simulation.disk import SimDisk
from tests.simulation.network import HOST
from tests.simulation.running import SimClock, Simulation, simulate

ROOT = Path(__file__).parents[3]
BROKER, CLIENT = "10.0.0.1", "10.0.0.2"
ELSEWHERE = {"host": BROKER, "insecure": True}


async def started(simulation: Simulation, nursery: trio.Nursery, disk: SimDisk, **more: Any) -> RunningBroker:
    HOST.set(BROKER)
    given: dict[str, Any] = {**ELSEWHERE, "namesrv": (), "data": Path("none"), **SMALL, **more}
    run = partial(broker.net.server.run, BrokerSettings(**given), simulation.world("broker"), disk=disk)
    running: RunningBroker = await nursery.start(run)
    HOST.set(CLIENT)
    return running


def within(scenario: Callable[[Simulation, trio.Nursery], Awaitable[None]]) -> None:
    async def whole(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await scenario(simulation, nursery)
            nursery.cancel_scope.cancel()

    simulate(1, whole)


def test_the_start_tells_what_it_is_doing_and_how_much_of_the_log_there_is_to_do() -> None:
    told: list[str] = []

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        HOST.set(BROKER)
        given: dict[str, Any] = {**ELSEWHERE, "namesrv": (), "data": Path("none"), **SMALL}
        world, settings = simulation.world("broker"), BrokerSettings(**given)
        await nursery.start(partial(broker.net.server.run, settings, world, disk=SimDisk(), tell=told.append))

    within(scenario)
    assert told == [
        "opening the store",
        "recovering the log: 0 of 0 MiB",
        "asking the home of sessions what they hold here",
        "registering with the name servers",
    ]


class TaskFiles(trio.abc.Instrument):
    """Notes the modules of our own whose tasks begin."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        code = getattr(task.coro, "cr_code", None)  # a compiled coroutine has none
        if code is not None:
            self.names.add(Path(code.co_filename).stem)


@pytest.mark.interpreted
@pytest.mark.parametrize(("more", "is_group"), [({}, False), ({"node": "a", "replica_port": 10912}, True)])
def test_a_broker_without_copies_has_no_task_port_or_file_of_a_group(
    more: dict[str, Any], is_group: bool, tmp_path: Path
) -> None:
    seen, disk, taken = TaskFiles(), SimDisk(), set[int]()
    if is_group:
        key = tmp_path / "key"
        key.write_text("k" * 64)
        key.chmod(0o600)
        more = more | {"cluster_secret_file": str(key)}

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        trio.lowlevel.add_instrument(seen)
        running = await started(simulation, nursery, disk, **more)
        link = WireLinks(nursery, clock=simulation.clock).link(f"{running.host}:{running.port}")
        await ask(link, append(Message("t", b"1")), Appended)
        taken.update(port for host, port in simulation.network.listeners if host == BROKER)

    within(scenario)
    tasks = {"node_tasks", "peers", "peer_sessions", "group"}
    assert (bool(seen.names & tasks), bool(disk.paths("replica")), len(taken) > 1) == (is_group,) * 3
    assert "flusher" in seen.names


@pytest.mark.endtoend
async def test_a_start_that_is_broken_off_recovers_no_further_and_gives_the_folder_back(tmp_path: Path) -> None:
    told: list[str] = []
    recovering, is_cancelled = trio.Event(), threading.Event()

    def tell(doing: str) -> None:
        told.append(doing)
        if doing.startswith("recovering"):
            trio.from_thread.run_sync(recovering.set)
            assert is_cancelled.wait(PATIENCE_S)

    settings = BrokerSettings(port=0, namesrv=(), data=tmp_path, **SMALL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(broker.net.server.run, settings, real_world(), tell=tell))
        await recovering.wait()
        nursery.cancel_scope.cancel()
        is_cancelled.set()
    assert told == ["opening the store", "recovering the log: 0 of 0 MiB"]
    assert list((tmp_path / "checkpoint").iterdir()) == []
    again = RealDisk(tmp_path)
    again.lock()
    again.unlock()


def test_name_servers_that_do_not_answer_are_counted() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        running = await started(simulation, nursery, SimDisk(), port=7, namesrv=("10.0.0.9:9876",), handover_wait_s=1)
        assert running.figures()["penstock_namesrv_away"] == 1
        assert running.reasons() == []

    within(scenario)


def submit(running: RunningBroker, *requests: Any) -> list[Result]:
    answers: list[Result] = []
    session = running.open_session(Peer(0, "here"))
    for request in requests:
        session.submit(request, answers.append)
    session.flush()
    return answers


@pytest.mark.parametrize(
    ("host", "advertise", "warns"), [("0.0.0.0", "", 1), ("0.0.0.0", "10.0.0.1:7", 0), (BROKER, "", 0)]
)
def test_a_broker_that_listens_everywhere_says_that_it_needs_an_address_of_its_own(
    host: str, advertise: str, warns: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await started(simulation, nursery, SimDisk(), port=7, host=host, advertise=advertise)

    within(scenario)
    told = [record.getMessage() for record in caplog.records if "`advertise`" in record.getMessage()]
    assert len(told) == warns


def test_what_is_sent_over_the_wire_is_read_over_the_wire() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await started(simulation, nursery, SimDisk(), port=7)
        link = WireLinks(nursery, clock=simulation.clock, rng=simulation.rng("client")).link(f"{BROKER}:7")
        await ask(link, CreateTopic("t", 1), TopicDetail)
        waiting: list[Pulled] = []

        async def read() -> None:
            waiting.append(await ask(link, Pull("t:0", 0, wait_s=30.0), Pulled))

        nursery.start_soon(read)
        await trio.sleep(5)
        assert waiting == []
        assert await ask(link, append(Message("t", b"hello")), Appended) == Appended("disk")
        await trio.sleep(0.1)
        assert [bodies(one) for one in waiting] == [[b"hello"]]

    within(scenario)


def test_a_pull_over_the_wire_ends_at_its_deadline() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        await started(simulation, nursery, SimDisk(), port=7)
        link = WireLinks(nursery, clock=simulation.clock, rng=simulation.rng("client")).link(f"{BROKER}:7")
        await ask(link, CreateTopic("t", 1), TopicDetail)
        before = trio.current_time()
        assert (await ask(link, Pull("t:0", 0, wait_s=3.0), Pulled)).count == 0
        assert 3.0 <= trio.current_time() - before < 3.2

    within(scenario)


def test_a_peer_that_is_gone_leaves_nothing_parked() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        running = await started(simulation, nursery, SimDisk(), port=7)
        async with trio.open_nursery() as clients:
            link = WireLinks(clients, clock=simulation.clock, rng=simulation.rng("client")).link(f"{BROKER}:7")
            await ask(link, CreateTopic("t", 1), TopicDetail)
            clients.start_soon(partial(ask, link, Pull("t:0", 0, wait_s=60.0), Pulled))
            await trio.sleep(1)
            assert running.figures()["penstock_parked_requests"] == 1
            clients.cancel_scope.cancel()
        await trio.sleep(1)
        assert running.figures()["penstock_parked_requests"] == 0

    within(scenario)


def test_a_failing_disk_ends_the_broker_with_the_reason_and_acknowledges_nothing() -> None:
    answers: list[Result] = []

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        disk = SimDisk()
        running = await started(simulation, nursery, disk)
        submit(running, CreateTopic("t", 1))
        await trio.sleep(1)
        disk.fail("sync", errno.EIO)
        answers.extend(submit(running, append(Message("t", b"x"))))
        await trio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        within(scenario)
    assert caught.group_contains(StorageFailed, match="fsync")
    assert not any(isinstance(answer, Appended) for answer in answers)


def test_a_failing_write_ends_the_broker_too() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        disk = SimDisk()
        running = await started(simulation, nursery, disk)
        submit(running, CreateTopic("t", 1))
        await trio.sleep(1)
        disk.fail("pwrite", errno.EIO)
        assert [type(one) for one in submit(running, append(Message("t", b"x")))] == [StorageFailed]
        await trio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        within(scenario)
    assert caught.group_contains(StorageFailed)


def test_a_stop_tells_waiting_writers_that_their_outcome_is_unknown_and_gives_the_folder_back() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        disk = SimDisk()
        async with trio.open_nursery() as life:
            running = await started(simulation, life, disk, port=7)
            submit(running, CreateTopic("t", 1))
            await trio.sleep(1.01)
            answers = submit(running, append(Message("t", b"x")))
            life.cancel_scope.cancel()
        assert [(type(one), getattr(one, "unknown", False)) for one in answers] == [(Unavailable, True)]
        again = await started(simulation, nursery, disk, port=7)
        assert [type(one) for one in submit(again, DescribeTopic("t"))] == [TopicDetail]

    within(scenario)


def test_a_second_broker_on_the_same_folder_or_port_is_refused_and_frees_what_it_took() -> None:
    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        disk = SimDisk()
        await started(simulation, nursery, disk, port=7)
        for error, given in (
            (AddressInUse, {"port": 7}),
            (DataFolderLocked, {"port": 8}),
            (DataFolderLocked, {"port": 8}),
        ):
            with pytest.raises(ExceptionGroup) as caught:
                await _alone(simulation, disk, given)
            assert caught.group_contains(error)

    within(scenario)


async def _alone(simulation: Simulation, disk: SimDisk, given: dict[str, int]) -> None:
    async with trio.open_nursery() as nursery:
        await started(simulation, nursery, disk, **given)


# ---------------------------------------------------------------- as a process


def command(folder: Path, text: str) -> list[str]:
    config = folder / "broker.toml"
    config.write_text(text)
    return [sys.executable, "-m", "broker", "--config", str(config)]


@pytest.mark.endtoend
def test_the_process_says_where_it_listens_and_stops_on_a_signal(tmp_path: Path) -> None:
    arguments = command(tmp_path, f'port = 0\nnamesrv = []\ndata = "{tmp_path / "data"}"\n')
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready broker=127.0.0.1:")
        second = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert second.stderr.startswith("error: another broker holds the data folder")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.endtoend
def test_a_broker_whose_lock_file_is_removed_lets_no_other_in_and_stops_with_one_line(tmp_path: Path) -> None:
    arguments = command(tmp_path, f'port = 0\nnamesrv = []\ndata = "{tmp_path / "data"}"\n')
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready broker=127.0.0.1:")
        (tmp_path / "data/lock").unlink()
        with pytest.raises(DataFolderLocked):
            RealDisk(tmp_path / "data").lock()
        _, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2
        assert told == (
            f"error: the data folder is not this broker's any more: {tmp_path}/data/lock was removed"
            " (stop a broker before its files are moved)\n"
        )


@pytest.mark.endtoend
def test_a_broker_alone_has_status_pages_if_it_is_told_so(tmp_path: Path) -> None:
    arguments = command(tmp_path, f'port = 0\nnamesrv = []\nstatus_port = 0\ndata = "{tmp_path / "data"}"\n')
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        status = process.stdout.readline().partition(" status=")[2].strip()
        assert status.startswith("127.0.0.1:")
        assert process.stdout.readline().endswith(f" status={status}\n")
        for path, expected in (("livez", "ok"), ("readyz", "ok"), ("metrics", "\nrocketmq_messages_in_total 0\n")):
            with urllib.request.urlopen(f"http://{status}/{path}", timeout=PATIENCE_S) as page:
                assert expected in page.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.endtoend
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1\n", "did you mean 'port'?"),
        ('default_level = "paper"\n', "default_level is 'paper' (it is one of cache, disk)"),
        ('data = "/dev/null/x"\nport = 0\n', "cannot use the data folder"),
    ],
)
def test_what_cannot_work_is_one_clear_line(tmp_path: Path, text: str, told: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    ended = subprocess.run(
        command(tmp_path, text),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("error: ")
    assert told in ended.stderr


class StallingClock(SimClock):
    """Time that may pass without anybody running."""

    def __init__(self) -> None:
        self.stood_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stood_s


class Ticks:
    """When a dispatch was told that time has passed."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def tick(self) -> None:
        self.at.append(trio.current_time())


async def test_who_is_silent_while_the_broker_stands_still_is_heard_before_it_is_judged() -> None:
    clock, ticks = StallingClock(), Ticks()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.net.running.keep_ticking, ticks, clock)
        await trio.sleep(10.5 * TICK_S)
        assert len(ticks.at) == 10
        clock.stood_s = 20
        await trio.sleep(10 * TICK_S + HEARING_S)
        assert ticks.at[10] - ticks.at[9] == pytest.approx(TICK_S + HEARING_S)
        assert len(ticks.at) == 20, "and then as before"
        nursery.cancel_scope.cancel()


async def test_what_was_removed_is_given_back_to_the_disk_beside_the_loop(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    threads: list[bool] = []

    async def offload(work: Callable[[], Any]) -> None:
        threads.append(disk.leaves)
        work()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.net.running.give_back, disk, offload)
        await trio.sleep(1.5 * GIVE_BACK_S)
        file = disk.open("one", create=True)
        file.truncate(LARGE_BYTES + 1)
        file.close()
        disk.remove("one")
        await trio.sleep(3 * GIVE_BACK_S)
        nursery.cancel_scope.cancel()
    assert threads == [True]
    assert not disk.leaves


@pytest.mark.parametrize("file_is_lost", [False, True])
def test_a_start_after_a_boot_on_a_clock_that_is_far_ahead_waits_with_ages_and_so_do_the_starts_after_it(
    file_is_lost: bool,
) -> None:
    disk, ahead_ms = SimDisk(), 30 * 86_400_000

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        for life in range(3):
            async with trio.open_nursery() as alive:
                running = await started(simulation, alive, disk)
                behind_s = running.figures()["penstock_ages_behind_s"]
                assert behind_s == pytest.approx(ahead_ms / 1000 if life else 0, abs=5)
                alive.cancel_scope.cancel()
            if not life:
                simulation.clock.ahead_ms, simulation.clock.boot_id = ahead_ms, "second"
                if file_is_lost:
                    disk.discard("clock")
            simulation.network.kill(BROKER)

    within(scenario)


def test_a_start_in_the_same_boot_goes_on_with_the_time_and_not_with_the_clock() -> None:
    disk = SimDisk()

    async def scenario(simulation: Simulation, nursery: trio.Nursery) -> None:
        for jump_ms in (0, 7_200_000, -7_200_000):
            simulation.clock.ahead_ms = jump_ms
            async with trio.open_nursery() as alive:
                running = await started(simulation, alive, disk)
                assert running.figures()["process_clock_jump_s"] == pytest.approx(jump_ms / 1000, abs=1)
                assert running.figures()["penstock_store_time_ahead_s"] == 0
                alive.cancel_scope.cancel()
            simulation.network.kill(BROKER)

    within(scenario)
