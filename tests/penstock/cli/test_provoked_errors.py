"""Each error that a person can meet: the command that provokes it at a running system, and the remedy that it prints.

One system serves all rows. What no command of one machine provokes stands in ``ELSEWHERE`` with the test that does, so
that the table is complete.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import node.command  # noqa: F401  its commands belong to the root
from penstock.blocking import Producer
from penstock.cli.root import report, root
from penstock.errors import BY_CODE, NotLeader, PenstockError, TopicNotFound
from tests.penstock.conftest import RealCluster

ROOT = Path(__file__).parents[3]
BODY_BYTES_OVER = (4 << 20) + 1
ANY_PORTS = tuple(f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http"))


class Troubled:
    """A system near its limits with one message, one that asks for logins, and a server that is none of ours."""

    def __init__(self, folder: Path) -> None:
        (folder / "users").write_text("")
        self.folder = folder
        self.open = RealCluster(folder / "open", topics_max=1)
        self.asking = RealCluster(folder / "asking", password_file=str(folder / "users"))
        self._stranger = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._be_rude, daemon=True).start()
        assert self.run("topic", "create", "orders").exit_code == 0
        assert self.run("produce", "orders", "one").exit_code == 0

    @property
    def stranger(self) -> str:
        return f"127.0.0.1:{self._stranger.getsockname()[1]}"

    def _be_rude(self) -> None:
        while True:
            try:
                peer, _ = self._stranger.accept()
            except OSError:
                return
            with peer:
                peer.recv(1)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def run(self, *arguments: str, server: str = "", stdin: bytes = b"") -> Result:
        return CliRunner().invoke(root, ["--server", server or self.open.servers, *arguments], input=stdin)

    def close(self) -> None:
        self._stranger.close()
        self.open.stop()
        self.asking.stop()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    made = Troubled(tmp_path_factory.mktemp("troubled"))
    yield made
    made.close()


def nobody_there(system: Troubled) -> Result:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return system.run("topic", "list", server=f"127.0.0.1:{port}")


def a_fired_timer(system: Troubled) -> Result:
    told = json.loads(system.run("produce", "orders", "soon", "--delay", "0s", "--json").stdout)
    assert system.run("consume", "orders", "--count", "2").exit_code == 0  # it is delivered
    return system.run("timer", "cancel", told["timer"], "--yes")


def another_outcome(system: Troubled) -> Result:
    with Producer(servers=system.open.servers, group="billing") as producer, producer.transaction("orders", b"x") as tx:
        tx.unknown()
    [half] = [json.loads(line)["id"] for line in system.run("transaction", "list", "--json").stdout.splitlines()]
    assert system.run("transaction", "commit", half).exit_code == 0
    return system.run("transaction", "rollback", half, "--yes")


def taken_port(system: Troubled) -> Result:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        return system.run("up", "--data", str(system.folder / "new"), *ANY_PORTS, f"--namesrv-port={port}")


def unusable_folder(system: Troubled) -> Result:
    (system.folder / "full").mkdir()
    (system.folder / "full" / "log").write_text("a file where a folder should be")
    return system.run("up", "--data", str(system.folder / "full"), *ANY_PORTS)


def command(*arguments: str, stdin: bytes = b"") -> Callable[[Troubled], Result]:
    return lambda system: system.run(*arguments, stdin=stdin)


PROVOKED: dict[str, tuple[Callable[[Troubled], Result], int, str]] = {
    "InvalidRequest": (command("message", "show", "x"), 2, "it is BROKER:POSITION, as broker-a:40213"),
    "TooLarge": (command("produce", "orders", stdin=bytes(BODY_BYTES_OVER)), 2, "send less at once"),
    "Unavailable": (nobody_there, 1, "penstock up"),
    "Busy": (command("topic", "create", "second"), 1, "`penstock topic delete` makes room"),
    "TopicNotFound": (command("topic", "show", "nowhere"), 3, "`penstock topic list` shows all"),
    "TopicExists": (command("topic", "create", "orders", "--queues", "9"), 1, "`penstock topic change`"),
    "InvalidTopic": (command("produce", "a/b", "x"), 2, "is in the topic a, its first level"),
    "ReservedName": (command("produce", "%RETRY%x", "x"), 2, "choose another name"),
    "QueueNotFound": (command("consume", "orders", "-e", "-q", "99"), 3, "`penstock topic show` lists the queues"),
    "OffsetOutOfRange": (command("message", "show", "broker-a:1"), 3, "`penstock topic show` shows where"),
    "NoRoute": (command("consume", "nowhere", "-e"), 3, "`penstock topic create nowhere` creates it"),
    "GroupNotFound": (command("group", "show", "nobody"), 3, "`penstock group list` shows all"),
    "TimerNotFound": (command("timer", "cancel", "1@1", "--yes"), 3, "`penstock timer list` shows"),
    "TimerFired": (a_fired_timer, 1, "nothing is left to cancel"),
    "HalfNotFound": (command("transaction", "commit", "7"), 3, "`penstock transaction list` shows"),
    "OutcomeStands": (another_outcome, 1, "the first outcome is final"),
    "InvalidMessage": (command("produce", "orders", "-t", "*", "x"), 2, "* stands for all tags"),
    "InvalidProperty": (command("produce", "orders", "-p", "KEYS=1", "x"), 2, "choose other names"),
    "InvalidFilter": (command("consume", "orders", "-f", "level >"), 2, "has the language of filters"),
    "InvalidConfig": (
        lambda one: one.run("topic", "list", server=one.stranger),
        2,
        "give the address of a name server",
    ),
    "DataFolderLocked": (lambda one: one.run("up", "--data", str(one.folder / "open/a"), *ANY_PORTS), 2, "stop it, or"),
    "DataFolderUnusable": (unusable_folder, 2, "a folder that it may write"),
    "AddressInUse": (taken_port, 2, "or choose another port"),
    "NotAuthorized": (lambda one: one.run("topic", "list", server=one.asking.servers), 4, "log in: user and password"),
}

BLOCKING = "tests/penstock/blocking/"
CLIENT = "tests/penstock/client/"
STORE = "tests/broker/store/"
ELSEWHERE = {
    "InternalError": "tests/penstock/test_errors.py::test_every_error_says_whose_fault_it_is_and_what_it_means",
    "ProtocolError": "tests/penstock/protocol/test_wire.py::test_damage_in_the_framing_is_a_protocol_error",
    "UnknownRequest": "tests/namesrv/test_server.py::"
    "test_a_request_of_another_service_is_an_error_and_the_connection_lives",
    "TimedOut": "tests/node/test_mqtt_client.py::test_a_gateway_that_does_not_answer_is_timed_out",
    "StorageFull": STORE + "test_commit_log.py::test_a_refused_reservation_writes_nothing",
    "StorageFailed": "tests/broker/test_service.py::"
    "test_a_failed_write_is_told_to_the_sender_and_ends_the_broker_at_the_next_tick",
    "NotLeader": "tests/broker/net/test_group.py::test_a_node_that_does_not_lead_names_the_one_that_does",
    "NoQuorum": "tests/broker/net/test_node.py::test_too_few_copies_are_refused_and_reading_goes_on",
    "Damaged": STORE + "test_index_chunk.py::test_what_is_no_row_is_damage_as_soon_as_it_is_read",
    "LogReplaced": BLOCKING
    + "test_consumer.py::test_a_log_that_was_replaced_is_an_error_however_much_it_has_grown_since",
    "BrokerAway": "tests/penstock/cli/test_incomplete.py::"
    "test_an_incomplete_answer_is_an_error_that_names_the_broker_or_asked_for",
    "NotAllowed": "tests/broker/topics/test_changes.py::"
    "test_a_broker_in_maintenance_takes_nothing_new_and_keeps_its_promises",
    "Fenced": BLOCKING + "test_consumer.py::test_two_members_share_and_a_lost_queue_is_fenced_at_commit",
    "SessionNotFound": CLIENT + "test_page_tasks.py::test_sessions_are_listed_and_shown_in_pages",
    "SendManyError": "tests/penstock/cli/test_produce.py::"
    "test_one_message_that_is_not_stored_is_reported_with_its_own_error",
    "MessageForgotten": "tests/broker/producers/test_repeats.py::test_what_may_be_stored_and_nothing_tells_is_refused",
    "ResetIncomplete": CLIENT
    + "test_group_tasks.py::test_a_reset_that_one_broker_did_not_answer_says_how_to_repeat_it",
    "NumberTaken": "tests/penstock/spark/sink/test_sending.py::"
    "test_many_rows_that_come_again_in_another_order_are_refused_not_lost",
    "RetainedChanged": "tests/events/test_fact_tasks.py::"
    "test_a_fact_is_stored_where_the_one_that_it_replaces_stands_and_what_stands_is_found_page_by_page",
}


@pytest.mark.parametrize("error", PROVOKED)
def test_a_command_provokes_it_and_says_what_helps(system: Troubled, error: str) -> None:
    provoke, status, remedy = PROVOKED[error]
    result = provoke(system)
    assert remedy in result.stderr
    assert result.exit_code == status
    assert "Traceback" not in result.stderr


def test_every_error_is_provoked_here_or_by_the_test_that_stands_for_it() -> None:
    assert sorted({*PROVOKED, *ELSEWHERE}) == sorted(error.__name__ for error in BY_CODE.values())
    assert not PROVOKED.keys() & ELSEWHERE.keys()
    tests = [place.partition("::") for place in ELSEWHERE.values()]
    assert [test for file, _, test in tests if f"def {test}(" not in (ROOT / file).read_text()] == []


@pytest.mark.parametrize("error", BY_CODE.values(), ids=lambda error: error.__name__)
def test_each_error_has_a_remedy_which_commands_print(error: type[PenstockError], capsys: Any) -> None:
    assert re.fullmatch(r"[^A-Z].{15,}[^.]", error.remedy), "a clause without a full stop, as hints are"
    report(error("it failed"), as_json=False)
    assert capsys.readouterr().err == f"error: it failed\n       {error.remedy}\n"


def test_the_hint_of_an_error_goes_before_the_remedy_of_its_class() -> None:
    assert TopicNotFound("it failed", hint="look there").told == "it failed (look there)"
    assert NotLeader("it failed", hint="b:10911").told == "it failed (its leader is at b:10911)"
