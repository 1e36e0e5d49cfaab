"""RocketMQ's own Java clients, of 4.x and 5.x, unmodified, and a native reader of what they send.

The Java programs end with the text of an error. What may time out on a starved machine, set-up and
searches, they try again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from penstock.access.passwords import format_passwords, parse_passwords
from penstock.blocking.reader import Reader
from remoting import codes
from tests.endtoend.java_programs import BUILD, SOURCES, java, program, run
from tests.endtoend.paho_ends import end
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.penstock.native_access import write_users
from tests.remoting.remoting_rig import RemotingClient, running_front

pytestmark = pytest.mark.endtoend

RIGHTS = ("produce *", "consume *", "group *", "view *", "admin *", "publish #", "subscribe #")
RULES = "".join([f"allow user java {what}\n" for what in RIGHTS])
SECRET = "a secret key"

SEEN = """single: SEND_OK
batch: SEND_OK
delayed: SEND_OK
compressed: SEND_OK
consumed: [Java:20000 bytes:0, Java:batch0:0, Java:batch1:0, Java:batch2:0, Java:delayed:0, Java:oneway:0, \
Java:selected:0, Java:single:0, Java:single:1]
selected: [selected]
checked: [UNKNOW]
settled: [COMMIT_MESSAGE, UNKNOW]
by offset id: single
by unique id: single
ordered: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
pulled: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
by keys: [order-17=both, customer-4=both]
at its time: true
broadcast: [0, 1, 2, 3, 4, 5, 6, 7] 8
broadcast: [0, 1, 2, 3, 4, 5, 6, 7] 8
ordered again: 0 1 2 2 3 4
ordered in vain: bad:0 bad:1 good:0 [bad]
dead: [Failing:0, Failing:1] [fails]
answer: re: why
from device: [measured]
one killed: true 100
done
"""


PROGRAM = """
import os, sys, time
from rocketmq import client
from rocketmq.client import Message, Producer, PushConsumer
names, group, patience, secret = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
ConsumeStatus = getattr(client, "ConsumeStatus", None)  # 0.4.4: a callback returns nothing, and fails by an error
kept = []  # 0.4.4 may crash where a consumer is freed

def started(one):
    kept.append(one)
    if secret:
        one.set_session_credentials("java", secret, "")
    one.set_namesrv_addr(names)
    one.start()
    return one

def message(text, topic=group):
    made = Message(topic)
    made.set_body(text)
    made.set_tags("t")
    made.set_keys("k")
    return made

def until(is_so, send=None):
    end, number = time.time() + patience, 0
    while not is_so() and time.time() < end:
        if send:
            send(f"m{number}")
            number += 1
        time.sleep(0.2)

producer = started(Producer(group + "-producers"))
producer.send_sync(message("first"))
tried, done = [], []

def take(received):
    text = received.body.decode()
    tried.append(text)
    if text == "m0" and tried.count("m0") == 1:
        if ConsumeStatus is None:
            raise ValueError
        return ConsumeStatus.RECONSUME_LATER
    done.append(text)
    return ConsumeStatus and ConsumeStatus.CONSUME_SUCCESS

consumer = PushConsumer(group)
consumer.subscribe(group, take)
started(consumer)
# It begins at the end, whenever it has found its queues.
until(lambda: "m" in "".join(done), lambda text: producer.send_sync(message(text)))
producer.send_oneway(message("m-one-way"))
until(lambda: "m-one-way" in done and tried.count("m0") in (0, 2))
print("sent:", "first" in done, "m-one-way" in done, tried.count("m0") in (0, 2))
consumer.shutdown()

topic = group + "-ordered"
if hasattr(producer, "send_orderly"):
    ordering, send = None, lambda text: producer.send_orderly(message(text, topic), 1)
else:
    ordering = started(Producer(group + "-ordering", orderly=True))
    send = lambda text: ordering.send_orderly_with_sharding_key(message(text, topic), "key")
found = []

def keep(received):
    found.append((received.queue_id, received.body.decode()))
    return ConsumeStatus and ConsumeStatus.CONSUME_SUCCESS

consumer = PushConsumer(group + "-ordered", orderly=True)
consumer.subscribe(topic, keep)
send("made")
started(consumer)
until(lambda: found, send)
for number in range(10):
    send(str(number))
until(lambda: found[-1:] and found[-1][1] == "9")
queues = {queue for queue, _ in found}
print("ordered:", len(queues), *[text for _, text in found if text.isdigit()])
consumer.shutdown()

if hasattr(client, "PullConsumer"):
    consumer = started(client.PullConsumer(group + "-pulling"))
    print("pulled:", *[one.body.decode() for one in consumer.pull(topic) if one.body.isdigit()])
    consumer.shutdown()

if hasattr(client, "TransactionMQProducer"):
    status, checked = client.TransactionStatus, []

    def check(received):
        checked.append(received.body.decode())
        return status.COMMIT

    settling = started(client.TransactionMQProducer(group + "-settling", check))
    for outcome in status:
        settling.send_message_in_transaction(message(outcome.name, group + "-settled"), lambda *_, one=outcome: one)
    until(lambda: checked)
    print("checked:", *sorted(set(checked)))
    settling.shutdown()
if ordering:
    ordering.shutdown()
producer.shutdown()
sys.stdout.flush()
os._exit(0)
"""
DIGITS = " ".join(map(str, range(10)))
WHEELS = {
    "rocketmq==0.4.4": ["sent: False True True", f"ordered: 1 {DIGITS}", f"pulled: {DIGITS}"],
    "rocketmq-client-python==0.5.0rc2": ["sent: False True True", f"ordered: 1 {DIGITS}", "checked: UNKNOWN"],
}
"""What the program prints with a wheel. The first one has no transactions, the second one no pull consumer."""


@pytest.mark.parametrize(("wheel", "logs_in"), [("rocketmq==0.4.4", False), ("rocketmq-client-python==0.5.0rc2", True)])
def test_the_python_wheels_of_the_cpp_client_send_and_consume(wheel: str, logs_in: bool, tmp_path: Path) -> None:
    folder = BUILD / wheel.replace("==", "-")
    if not (folder / "rocketmq").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), wheel]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"pip has no {wheel} for this machine")
    group = folder.name.replace(".", "-")
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    with running_front(tmp_path / "data", with_users(tmp_path) if logs_in else None) as node:
        command = [sys.executable, "-c", PROGRAM, node.addresses.rocketmq_namesrv, group, str(PATIENCE_S)]
        said = run([*command, SECRET if logs_in else ""], tmp_path, environ=environ)
        login = {"user": "java", "password": "password"} if logs_in else {}
        settled: set[bytes] = set()
        while "checked: UNKNOWN" in said and len(settled) < 2:
            with Reader(f"{group}-settled", servers=node.addresses.namesrv, until_end=True, **login) as reader:  # type: ignore[arg-type]
                settled = {one.body for one in reader.messages()}
    assert [line for line in said.splitlines() if ": " in line] == WHEELS[wheel], said
    assert settled in (set(), {b"COMMIT", b"UNKNOWN"})


def with_users(folder: Path) -> Path:
    """Settings of a node that asks for logins and knows the user ``java``."""
    write_users(folder / "users", {"java": "password"})
    users = parse_passwords((folder / "users").read_text())
    users.by_name["java"] = users.by_name["java"]._replace(signing=SECRET.encode())
    (folder / "users").write_text(format_passwords(users))
    (folder / "rules").write_text(RULES)
    file = folder / "penstock.toml"
    file.write_text(
        f'password_file = "{folder / "users"}"\nacl_file = "{folder / "rules"}"\n[broker]\nhalf_check_after_s = 1.0\n'
    )
    return file


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningSystem]:
    """A node that asks for logins."""
    with running_front(tmp_path / "data", with_users(tmp_path)) as system:
        yield system


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_the_java_client_does_all_that_it_does_with_rocketmq(version: str, node: RunningSystem, tmp_path: Path) -> None:
    path = program(version)
    device = Device(node.addresses.mqtt)
    arguments = node.addresses.rocketmq_namesrv, str(PATIENCE_S), "java", SECRET
    said = run(java(path, tmp_path, "Unmodified", *arguments), tmp_path)
    claims = {one.split(":")[0] for one in SEEN.splitlines()}
    lines = [line for line in said.splitlines() if line.split(":")[0] in claims]
    assert "\n".join(lines) + "\n" == SEEN, said
    end(device.client)
    bodies = [b"single", b"batch0", b"batch1", b"batch2", b"delayed", b"selected", b"oneway", bytes(20)]
    with Reader("Java", servers=node.addresses.namesrv, until_end=True, user="java", password="password") as reader:
        native = list(reader.messages())
    found = [bytes(one.body[:20]) for one in native]
    assert set(found) == set(bodies), "a client sends again what is not answered within 3 s"
    [first] = [line for line in said.splitlines() if line.startswith("at: ")]
    assert first in {f"at: {str(one.queue).partition('@')[0]} {one.offset}" for one in native if one.body == b"single"}
    assert set(device.got) == set(bodies)


JOBS = {
    "topicList": ["Jobs"],
    "clusterList": ["DefaultCluster", "broker-a", "BROKER"],
    "topicRoute -t Jobs": ['0:"BROKER"', '"readQueueNums":4'],
    "topicStatus -t Jobs": ["broker-a 0 0 2"],
    "brokerStatus -b BROKER": ["Penstock", "rocketmq_messages_in_total"],
    "consumerProgress -g workers": ["Jobs broker-a 0 2 1 1", "Consume Diff Total: 1"],
    "consumerProgress": ["workers 1"],
    "consumerConnection -g workers": ["worker@1", "CONSUME_PASSIVELY", "Jobs *"],
    "producerConnection -g makers -t Jobs": ["worker@1"],
    "queryMsgById -t Jobs -i OFFSET_ID": ["[k1 k2]", "Message Body Path", "workers"],
    "queryMsgByKey -t Jobs -k k2": ["FIRST_ID", "@k2@"],
    "queryMsgByUniqueKey -t Jobs -i FIRST_ID": ["[k1 k2]", "Message Body Path"],
    "queryMsgByOffset -t Jobs -b broker-a -i 0 -o 0": ["OFFSET_ID", "[k1 k2]"],
    "resetOffsetByTime -g workers -t Jobs -s 0 -f true": ["broker-a 0 0"],
    "consumerProgress -g workers ": ["Jobs broker-a 0 2 0 2"],
    "skipAccumulatedMessage -g workers -t Jobs": ["broker-a 0 2"],
    "updateTopic -b BROKER -t Made -r 3 -w 3": ["create topic to BROKER success"],
    "topicRoute -t Made": ['"writeQueueNums":3'],
    "topicClusterList -t Made": ["DefaultCluster"],
    "updateTopicPerm -b BROKER -t Made -p 4": ["from 6 to 4 in BROKER success|new perm equals to the old one"],
    "consumerStatus -g watchers": ["127.0.0.1@watcher V5_5_0", "Same subscription", "Rebalance OK"],
    "queryMsgById -t Jobs -i OFFSET_ID -g watchers -d 127.0.0.1@watcher": ["consumeResult=CR_SUCCESS"],
    "statsAll -t Jobs": ["Jobs workers"],
    "deleteTopic -c DefaultCluster -t Made": ["from cluster [DefaultCluster] success|there is no topic"],
    "updateSubGroup -b BROKER -g fresh": ["create subscription group to BROKER success"],
    "deleteSubGroup -b BROKER -g fresh": ["delete subscription group [fresh] from broker [BROKER] success"],
    "sendMessage -t Jobs -p body": ["SEND_OK"],
    "printMsg -t Jobs": ["minOffset=0, maxOffset=", "FIRST_ID"],
}
"""What mqadmin is told, and what it says then, spaces apart. After a bar: what it says where it is told again, as the
first answer came too late. It has no command for code 223 (tests/remoting/test_clients.py)."""
FIRST_ID = "AC11000100002A139F8E18B4AAC20001"


def test_mqadmin_does_its_jobs(node: RunningSystem, tmp_path: Path) -> None:
    path = program("5.5.0", SOURCES / "tools")
    names, broker = node.addresses.rocketmq_namesrv, node.addresses.rocketmq
    client = RemotingClient(broker, "worker@1", user="java", secret=SECRET)
    sent = client.produce("Jobs", b"first", f"UNIQ_KEY\x01{FIRST_ID}\x02KEYS\x01k1 k2", e=0)
    client.produce("Jobs", b"second", e=0)
    client.beat("workers", topics=("Jobs",), producers=("makers",))
    client.ask(codes.UPDATE_OFFSET, consumerGroup="workers", topic="Jobs", queueId=0, commitOffset=1)

    def filled(text: str) -> str:
        text = text.replace("BROKER", broker).replace("OFFSET_ID", sent.fields["msgId"])
        return text.replace("FIRST_ID", FIRST_ID)

    orders = ["\t".join([f"{job} -n {names}", *wanted]) for job, wanted in JOBS.items()]
    command = java(path, tmp_path, "Jobs", names, str(PATIENCE_S), "java", SECRET)
    # All clients tell of themselves: the front ends a connection that is silent for two minutes.
    beat = partial(client.beat, "workers", topics=("Jobs",), producers=("makers",))
    said = run(command, tmp_path, filled("\n".join(orders)), beat)
    client.close()
    assert said.count("done: ") == len(JOBS), said


class Device:
    """A device with the user ``java``, which has published one message and sees those of the Java program."""

    def __init__(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        self.got: list[bytes] = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, "device")
        self.client.username_pw_set("java", "password")
        self.client.on_message = lambda _client, _data, message: self.got.append(bytes(message.payload[:20]))
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect(host, int(port))
        self.client.loop_start()
        self.client.subscribe("Java", 1)
        assert subscribed.wait(PATIENCE_S)
        self.client.publish("Device", b"measured", 1).wait_for_publish(PATIENCE_S)
