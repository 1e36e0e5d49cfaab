"""The identity of a node and its promises: read at its start before its log is opened, and written for a new node."""

from __future__ import annotations

from typing import NamedTuple

from broker.net.office import OpenLog
from broker.net.peers import Introduction
from broker.replica.hard_state import HardStateFile
from broker.replica.log_face import HardState
from broker.replica.resync import finish_resync
from broker.settings import BrokerSettings
from broker.store import segment
from broker.store.disk import Disk
from penstock.errors import DataFolderUnusable, InvalidConfig
from penstock.protocol.addresses import join_address, split_address
from penstock.service.exposure import is_loopback
from penstock.world import Rng


class Promised(NamedTuple):
    """The promises of a node, and their file."""

    file: HardStateFile
    hard: HardState


def promises(settings: BrokerSettings, disk: Disk, rng: Rng) -> Promised:
    """This node's identity and promises; new ones for a new node. Puts a whole copy that has come in place.
    Raises ``DataFolderLocked``, ``DataFolderUnusable``, ``Damaged``, ``InvalidConfig``."""
    disk.lock(segment.FOLDER)  # no other process is at work here
    try:
        file = HardStateFile(disk)
        known = file.load()
        finish_resync(disk)
    except OSError as error:
        raise DataFolderUnusable(f"cannot use the data folder: {error.strerror} ({error.filename or ''})") from None
    finally:
        disk.unlock()
    if known is None:
        cluster = "" if settings.join else f"{rng.getrandbits(128):032x}"
        return Promised(file, HardState(cluster, settings.node, f"{rng.getrandbits(128):032x}"))
    if known.node != settings.node:
        raise InvalidConfig(
            f"{settings.data} is the folder of node {known.node}, not of {settings.node}",
            hint=f"start it with --node {known.node}",
        )
    return Promised(file, known)


def promise(settings: BrokerSettings, file: HardStateFile, hard: HardState, opened: OpenLog) -> None:
    """A new node writes down who it is. Raises ``DataFolderUnusable`` where its log is another one's."""
    if file.load() is not None:
        return
    if settings.join and opened.store.written:
        opened.let_go()
        raise DataFolderUnusable(
            f"{settings.data} has a log of its own, which cannot join another", hint="give it a new folder"
        )
    file.save(hard.entered(max(hard.epoch, opened.follower().epochs[-1].epoch)))


def introduction(settings: BrokerSettings, hard: HardState, clients: str, address: str) -> Introduction:
    """The introduction of the node. ``clients``: its address for clients; ``address``: its port for replicas."""
    host, _ = split_address(address)
    namesrv = tuple(_reached(one, host) for one in settings.namesrv)
    return Introduction(hard.cluster, settings.name, hard.node, hard.uuid, address, clients, namesrv)


def _reached(address: str, host: str) -> str:
    """A name server's address, as other machines reach it: one on this machine is where this node is."""
    own, port = split_address(address)
    return join_address(host, port) if is_loopback(own) and not is_loopback(host) else address
