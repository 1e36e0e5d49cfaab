"""The servers that are compared, each started as a child on free ports with a temporary folder, on one core.

A server that is not installed says so with ``Missing`` and is left out. ``level`` says what its PUBACK means: whoever
reads the numbers must know who has put a message on the disk by then and who has only taken note of it.
"""

from __future__ import annotations

import filecmp
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from loadtest import proc
from loadtest.cores import Cores, pin

START_S: Final = 300.0  # enough for a machine with ten times more to do than it can
STOP_S: Final = 8.0
HOST: Final = "127.0.0.1"
NAMES: Final = "namesrv"
"""Where native clients ask, among the ports of a server."""

_READY: Final = re.compile(r"^ready mqtt=(\S+):(\d+) ")
_NAMES: Final = re.compile(r" namesrv=\S+:(\d+) ")
_FURTHER: Final = re.compile(r" mqtt-(\w+)=\S+:(\d+)")


ROOT: Final = Path(__file__).parents[1]
COMPILED: Final = ROOT / ".compiled"
"""Made by ``make compile``: the packages with the compiled modules beside their sources."""
_PACKAGES: Final = ("broker", "gateway", "loadtest", "namesrv", "node", "penstock", "topicmap")

USER: Final = (
    "user:$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$41hRQCULKCSmNSQUP16QHPd1FwUxnAwu+hJRJRyml98"
    "$scram-sha-256$i=4096$W22ZaJ0SNY7soEsUEjb6gQ$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY"
    "$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU\n"
)
"""RFC 7677's example as a line of a password file (docs/formats/access.md); the password is ``pencil``."""


class Missing(Exception):
    """This server is not here; the message says what to do."""


def check_compiled(tree: Path, root: Path = ROOT) -> None:
    """Raises ``Missing`` where a tree has not been compiled from the sources as they are: its figures would be those of
    other code."""
    if not tree.exists():
        raise Missing("there are no compiled modules (`make compile` makes them)")
    for package in _PACKAGES:
        for source in sorted((root / package).rglob("*.py")):
            name = source.relative_to(root)
            if not (tree / name).exists() or not filecmp.cmp(source, tree / name, shallow=False):
                raise Missing(f"{name} has changed since the modules were compiled (`make compile` makes them anew)")


def free_port() -> int:
    """A port that nobody holds just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def certificate_in(folder: Path) -> Path | None:
    """The certificate that all servers of a run share, with its key (P-256), in the folder that theirs are in; ``None``
    without the package that makes it."""
    path = folder.parent / "server.pem"
    if not path.exists():
        if importlib.util.find_spec("trustme") is None:
            return None
        import trustme  # only TLS needs it, and it comes with the tests

        made = trustme.CA().issue_cert("localhost", HOST)
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
    return path


class Server(ABC):
    """One server process.

    Attributes:
        name: for tables.
        level: what its acknowledgement means.
        tree: the folder it is started in; ``python -m`` takes modules from there before all others.
        cores: which it has, and which the generator.
        port: where it speaks MQTT, once started.
        ports: the same by wire (``loadtest/wires.py``), and ``NAMES``; what it does not speak is not there.
    """

    name = ""
    level = ""
    tree = Path(__file__).parents[1]

    def __init__(self, folder: Path, cores: Cores) -> None:
        self.folder = folder / self.name.replace(" ", "-")
        self.cores = cores
        self.port = 0
        self.ports: dict[str, int] = {}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """Prepares the folder, chooses a port if the server cannot, and says how to start. Raises ``Missing``."""

    def start(self) -> None:
        """Starts it and waits until it accepts."""
        self.folder.mkdir(parents=True)
        command = self.command()
        with (self.folder / "stderr").open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=lambda: pin(self.cores.server),
                cwd=self.tree,
                env=self.environment(),
            )
        self.wait_until_ready()

    def environment(self) -> dict[str, str]:
        """Ours without settings."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}

    def wait_until_ready(self) -> None:
        """By default: until the port accepts."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        has_ended = self._process is None or self._process.poll() is not None
        raise self.broken() if has_ended else self.broken(f"did not accept in {START_S:g} s")

    def first_line(self) -> str:
        """The first line that it prints."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def broken(self, outcome: str = "does not start") -> RuntimeError:
        said = (self.folder / "stderr").read_text()[-800:]
        return RuntimeError(f"{self.name} {outcome}: {said.strip() or 'it said nothing'}")

    def stop(self) -> None:
        """Ends it, by force if need be."""
        if self._process is None:
            return
        children = proc.tree(self._process.pid)
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for pid in children:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Penstock(Server):
    """`penstock up` as it comes: one process, every message fsynced by group commit before its PUBACK."""

    name = "penstock"
    level = "fsynced, by group commit"
    topic_level = "disk"

    def command(self) -> list[str]:
        config = self.folder / "penstock.toml"
        config.write_text(f'{self.at_top()}[broker]\ndefault_level = "{self.topic_level}"\n')
        command = [sys.executable, "-m", "node", "up", "--data", str(self.folder / "data"), "--config", str(config)]
        for part in ("mqtt", "broker", "namesrv", "http"):
            command += [f"--{part}-port", "0"]
        command += ["--listen", f"ws {HOST}:0 name=ws"]
        certificate = certificate_in(self.folder)
        if certificate is not None:
            command += ["--listen", f"tls {HOST}:0 name=tls certificate={certificate}"]
        return command

    def at_top(self) -> str:
        """Settings at the top of its configuration."""
        return ""

    def wait_until_ready(self) -> None:
        line = self.first_line()
        found = _READY.match(line)
        if found is None:
            raise self.broken()
        self.port = int(found[2])
        self.ports = {name: int(port) for name, port in _FURTHER.findall(line)}
        if names := _NAMES.search(line):
            self.ports[NAMES] = int(names[1])


class PenstockCache(Penstock):
    """The same with topics of level ``cache``: the PUBACK comes when the log has it, before the fsync."""

    name = "penstock cache"
    level = "in the log, fsync follows"
    topic_level = "cache"


class Compiled(Penstock):
    """The same as ``penstock`` with its hot modules compiled (``make compile``)."""

    name = "compiled"
    tree = COMPILED

    def command(self) -> list[str]:
        check_compiled(COMPILED)
        return super().command()


class CompiledCache(Compiled):
    """The same as ``penstock cache``, compiled."""

    name = "compiled cache"
    level = PenstockCache.level
    topic_level = PenstockCache.topic_level


class Guarded(Penstock):
    """The same as ``penstock``, with users and rules: clients log in, and each request is checked."""

    name = "penstock login"

    def at_top(self) -> str:
        passwords, rules = self.folder / "users", self.folder / "rules"
        passwords.write_text(USER)
        rules.write_text("allow user user admin *\nallow all all #\n")
        return f'password_file = "{passwords}"\nacl_file = "{rules}"\n'

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PENSTOCK_USER": "user", "PENSTOCK_PASSWORD": "pencil"}


class CompiledGuarded(Guarded):
    """The same, compiled."""

    name = "compiled login"
    tree = COMPILED

    def command(self) -> list[str]:
        check_compiled(COMPILED)
        return super().command()


class Mosquitto(Server):
    """Mosquitto without limits on what is in flight or queued, and without its persistence file."""

    name = "mosquitto"
    level = "in memory"

    def command(self) -> list[str]:
        program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if program is None:
            raise Missing("mosquitto is not installed (Debian: apt-get install mosquitto)")
        self.port, web = free_port(), free_port()
        lines = [f"listener {self.port} {HOST}", "allow_anonymous true", "persistence false", "log_dest none"]
        lines += ["set_tcp_nodelay true", "max_inflight_messages 0", "max_queued_messages 0", "sys_interval 0"]
        if os.geteuid() == 0:
            lines.append("user root")  # otherwise it could not read what is here
        lines += [f"listener {web} {HOST}", "protocol websockets", "socket_domain ipv4"]
        self.ports = {"ws": web}
        certificate = certificate_in(self.folder)
        if certificate is not None:
            self.ports["tls"] = free_port()
            lines += [f"listener {self.ports['tls']} {HOST}", f"certfile {certificate}", f"keyfile {certificate}"]
        config = self.folder / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        return [program, "-c", str(config)]


class Amqtt(Server):
    """amqtt's broker, as it comes, anonymous clients allowed."""

    name = "amqtt"
    level = "in memory"

    def command(self) -> list[str]:
        if importlib.util.find_spec("amqtt") is None:
            raise Missing("amqtt is not installed (it comes with `make install-test`)")
        self.port = free_port()
        return [sys.executable, "-m", "loadtest.amqtt_server", str(self.port)]

    def wait_until_ready(self) -> None:
        if self.first_line().strip() != "ready":
            raise self.broken()


class Bare(Server):
    """No server, only what one must do (``bare_server``): what this machine leaves to reach."""

    name = "bare"
    level = "fsynced as it came, nothing else"
    file_level = "disk"

    def command(self) -> list[str]:
        self.port = free_port()
        file = str(self.folder / "file")
        return [sys.executable, "-m", "loadtest.bare_server", str(self.port), file, self.file_level]


class BareCache(Bare):
    """The same without waiting for the disk."""

    name = "bare cache"
    level = "written as it came, nothing else"
    file_level = "cache"


SERVERS: Final[tuple[type[Server], ...]] = (
    Penstock,
    PenstockCache,
    Compiled,
    CompiledCache,
    Mosquitto,
    Amqtt,
    Bare,
    BareCache,
)
