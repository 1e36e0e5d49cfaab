from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from broker import server
from broker.settings import BrokerSettings
from broker.store.disk import File, RealDisk
from penstock.errors import DataFolderLocked, StorageFailed, Unavailable
from penstock.frame_server import Peer
from penstock.lasting_links import lasting_links
from penstock.message import Message, encode_message
from penstock.requests import Append, Appended, Ping, Result, ServerInfo
from penstock.service_main import expected_error
from penstock.wire_link import ask
from penstock.world import real_world

pytestmark = pytest.mark.endtoend

ONE = encode_message(Message("orders", b"hello"))


def settings(tmp_path: Path) -> BrokerSettings:
    return BrokerSettings(port=0, data=tmp_path / "data", namesrv=())


class FailingFile:
    """A file whose fsync fails; all else is the real one's."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        raise OSError(5, "Input/output error")


class FailingDisk(RealDisk):
    """A disk that fails every fsync of files opened after ``fail``."""

    failing = False

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        disk = self

        class Switched(FailingFile):
            def sync(self) -> None:
                if disk.failing:
                    super().sync()
                else:
                    self._file.sync()

        return Switched(file)  # type: ignore[return-value]


async def test_a_record_is_acknowledged_over_the_wire_and_in_the_process(tmp_path: Path) -> None:
    local: list[Result] = []
    async with trio.open_nursery() as nursery, lasting_links() as links:
        running = await nursery.start(partial(server.run, settings(tmp_path), real_world()))
        link = links.link(f"{running.host}:{running.port}")
        about = await ask(link, Ping(), ServerInfo)
        over_the_wire = await ask(link, Append(1, True, ONE), Appended)
        session = running.open_session(Peer(-1, "here"))
        session.submit(Append(1, True, ONE), local.append)
        session.end_batch()
        assert local == []  # not before the sync
        with trio.fail_after(10):
            while not local:
                await trio.lowlevel.checkpoint()
        figures = running.figures()
        nursery.cancel_scope.cancel()
    assert about.role == "broker"
    assert (over_the_wire.level, len(over_the_wire.placed)) == ("disk", 1)
    assert isinstance(local[0], Appended)
    assert figures["rocketmq_messages_in_total"] == 2


async def test_a_folder_in_use_is_refused_and_its_port_is_free_again(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(server.run, settings(tmp_path), real_world()))
        with pytest.raises(DataFolderLocked):
            await server.run(settings(tmp_path), real_world())
        nursery.cancel_scope.cancel()


async def test_a_failed_fsync_ends_the_broker_and_acknowledges_nothing(tmp_path: Path) -> None:
    answered: list[Result] = []
    disk = FailingDisk(tmp_path / "data")
    error = None
    try:
        async with trio.open_nursery() as nursery:
            running = await nursery.start(partial(server.run, settings(tmp_path), real_world(), disk=disk))
            disk.failing = True
            session = running.open_session(Peer(-1, "here"))
            session.submit(Append(1, True, ONE), answered.append)
            session.end_batch()
    except BaseExceptionGroup as group:
        error = expected_error(group)
    assert isinstance(error, StorageFailed)
    assert [type(result) for result in answered] == [Unavailable]
    assert answered[0].unknown  # type: ignore[union-attr]
