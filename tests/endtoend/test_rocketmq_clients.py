"""RocketMQ's own Java clients, of 4.x and 5.x, unmodified, and a native reader of what they send.

Skipped where Maven has no jars or there is no Java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.maven import copy_jars
from penstock.access.passwords import format_passwords, parse_passwords
from penstock.blocking.reader import Reader
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.penstock.native_access import write_users
from tests.remoting.remoting_rig import running_front

pytestmark = pytest.mark.endtoend

BUILD = Path(__file__).parents[2] / "build" / "rocketmq-clients"
SOURCE = Path(__file__).parent / "java" / "Unmodified.java"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>client</artifactId><version>1</version><dependencies>{}</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency>"""
PARTS = {"4.9.8": ("rocketmq-client", "rocketmq-acl"), "5.5.0": ("rocketmq-client",)}
"""The jars of a version; those of 5.5.0 have logins in the first one."""
RULES = "allow user java produce *\nallow user java consume *\nallow user java group *\n"
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
done
"""


PROGRAM = """
import sys, time
from rocketmq.client import Message, Producer, PushConsumer
try:
    from rocketmq.client import ConsumeStatus
except ImportError:  # 0.4.4: a callback returns nothing, and fails by an error
    ConsumeStatus = None
names, group, patience, secret = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
producer = Producer(group + "-producers")
if secret:
    producer.set_session_credentials("java", secret, "")
producer.set_namesrv_addr(names)
producer.start()

def message(text):
    made = Message(group)
    made.set_body(text)
    made.set_tags("t")
    made.set_keys("k")
    return made

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
if secret:
    consumer.set_session_credentials("java", secret, "")
consumer.set_namesrv_addr(names)
consumer.subscribe(group, take)
consumer.start()
end, number = time.time() + patience, 0
while "m" not in "".join(done) and time.time() < end:  # it begins at the end, whenever it has found its queues
    producer.send_sync(message(f"m{number}"))
    number += 1
    time.sleep(0.5)
producer.send_oneway(message("m-one-way"))
while not ("m-one-way" in done and tried.count("m0") in (0, 2)) and time.time() < end:
    time.sleep(0.2)
print("first" in done, "m-one-way" in done, tried.count("m0") in (0, 2))
consumer.shutdown()
producer.shutdown()
"""


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
        command = [sys.executable, "-c", PROGRAM, node.addresses.rocketmq_namesrv, group, "90"]
        command += [SECRET if logs_in else ""]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.splitlines()[-1:] == ["False True True"], done.stdout + done.stderr


def with_users(folder: Path) -> Path:
    """Settings of a node that asks for logins and knows the user ``java``."""
    write_users(folder / "users", {"java": "password"})
    users = parse_passwords((folder / "users").read_text())
    users.by_name["java"] = users.by_name["java"]._replace(signing=SECRET.encode())
    (folder / "users").write_text(format_passwords(users))
    (folder / "rules").write_text(RULES)
    file = folder / "penstock.toml"
    file.write_text(f'password_file = "{folder / "users"}"\nacl_file = "{folder / "rules"}"\n')
    return file


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningSystem]:
    """A node that asks for logins."""
    with running_front(tmp_path / "data", with_users(tmp_path)) as system:
        yield system


def program(version: str) -> str:
    """The class path of the compiled program with the jars of a version."""
    for tool in ("mvn", "java", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    folder = BUILD / version
    jars = folder / "lib"
    if not all([(jars / f"{part}-{version}.jar").exists() for part in PARTS[version]]):
        needed = "".join([DEPENDENCY.format(part, version) for part in PARTS[version]])
        fetched = copy_jars(folder, POM.format(needed), jars)
        if fetched.returncode:
            pytest.skip(f"Maven has no rocketmq-client {version}")
    classes = folder / "classes"
    classes.mkdir(exist_ok=True)
    (classes / "rmq.logback.xml").write_text('<configuration><root level="OFF"/></configuration>\n')
    path = f"{classes}:{jars}/*"
    subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", path, SOURCE], check=True, capture_output=True)
    return path


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_the_java_client_does_all_that_it_does_with_rocketmq(version: str, node: RunningSystem) -> None:
    path = program(version)
    command = ["java", "-Drocketmq.client.logUseSlf4j=true", "-cp", path, "Unmodified"]
    command += [node.addresses.rocketmq_namesrv, "60", "java", SECRET]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    lines = [
        line
        for line in done.stdout.splitlines()
        if line.split(":")[0] in {one.split(":")[0] for one in SEEN.split("\n")}
    ]
    assert "\n".join(lines) + "\n" == SEEN, done.stdout + done.stderr
    with Reader("Java", servers=node.addresses.namesrv, until_end=True, user="java", password="password") as reader:
        native = sorted([bytes(one.body[:20]) for one in reader.messages()])
    assert native == sorted([b"single", b"batch0", b"batch1", b"batch2", b"delayed", b"selected", b"oneway", bytes(20)])
