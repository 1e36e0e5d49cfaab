"""The files are taken again when they change, bad ones are not, and passwords are checked beside the loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio

from gateway.login.access import Access
from gateway.login.auth import Credentials, Identity, Peer
from gateway.login.verifier import CHECKERS, LOOK_EVERY_S, Bell, Verifier
from penstock.access.passwords import Hashed, Users, format_passwords
from penstock.access.tokens import TokenRules
from penstock.errors import InvalidConfig
from penstock.world import real_world
from tests.cheap_passwords import cheap_hash
from tests.patience import PATIENCE_S


def nothing() -> None:
    """Nothing follows."""


def make(
    folder: Path, users: str | None, rules: str | None, on_rules: Callable[[], None] = nothing
) -> tuple[Access, Verifier]:
    bell = Bell()
    access = Access("nobody", 10, 60.0, b"key", bell.ring, trio.current_time)
    for name, text in (("passwords", users), ("acl", rules)):
        if text is not None:
            (folder / name).write_text(text)
    world = real_world()
    files = [str(folder / name) if text is not None else "" for name, text in (("passwords", users), ("acl", rules))]
    return access, Verifier(access, world, bell, *files, on_rules=on_rules, on_users=nothing)


@pytest.mark.endtoend
async def test_passwords_are_checked_and_a_changed_file_counts(tmp_path: Path) -> None:
    access, verifier = make(tmp_path, format_passwords(Users({"alice": cheap_hash(b"right")})), None)

    async def ask(password: bytes) -> Identity | int:
        told, answers = trio.open_memory_channel[Identity | int](1)
        access.connect(Credentials("c", "alice", password, Peer("::1")), told.send_nowait)
        with trio.fail_after(PATIENCE_S):
            return await answers.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(verifier.run)
        assert await ask(b"right") == Identity("c", "alice", is_listed=True)
        assert await ask(b"wrong") == 0x86
        (tmp_path / "passwords").write_text(format_passwords(Users({"alice": cheap_hash(b"new one")})))
        with trio.fail_after(PATIENCE_S):
            while True:
                if await ask(b"new one") == Identity("c", "alice", is_listed=True):
                    break
                await trio.sleep(LOOK_EVERY_S / 4)
        assert await ask(b"right") == 0x86
        nursery.cancel_scope.cancel()


@pytest.mark.endtoend
async def test_a_check_that_ends_in_an_error_refuses_its_client_and_the_next_ones_are_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access, verifier = make(tmp_path, "", None)
    nothing_computes_it = Hashed(17, 1, 1, bytes(16), bytes(32))
    access.set_users(Users({"alice": cheap_hash(b"right"), "mallory": nothing_computes_it}))
    told, answers = trio.open_memory_channel[Identity | int](1)
    heard: list[Identity | int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(verifier.run)
        for user, password in [("mallory", b"hush-hush")] * (2 * CHECKERS) + [("alice", b"right")]:
            access.connect(Credentials("c", user, password, Peer("::1")), told.send_nowait)
            with trio.fail_after(PATIENCE_S):
                heard.append(await answers.receive())
        nursery.cancel_scope.cancel()
    assert heard == [0x88] * (2 * CHECKERS) + [Identity("c", "alice", is_listed=True)]
    assert access.unchecked == len(caplog.records) == 2 * CHECKERS
    assert "hush-hush" not in caplog.text


async def test_a_file_that_went_bad_leaves_what_was_there_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access, verifier = make(tmp_path, None, "allow anonymous subscribe a\n")
    (tmp_path / "acl").write_text("allow everything\n")
    os.utime(tmp_path / "acl", ns=(1, 1))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await verifier.look()
    assert access.may_subscribe(Identity("c", ""), "a")
    assert (verifier.failures, len(caplog.records)) == (1, 1), "told once per change"
    (tmp_path / "acl").unlink()
    for _ in range(3):
        await verifier.look()
    assert access.may_subscribe(Identity("c", ""), "a")
    assert verifier.failures == 2, "one that is gone is told once too"
    (tmp_path / "acl").write_text("allow anonymous subscribe b\n")
    await verifier.look()
    assert not access.may_subscribe(Identity("c", ""), "a")


async def test_files_are_read_beside_the_loop_and_taken_in_it(tmp_path: Path) -> None:
    access, verifier = make(tmp_path, None, "allow anonymous subscribe a\n")
    (tmp_path / "acl").write_text("")
    reads: list[bool] = []

    async def offload(work: Any) -> Any:
        result = work()
        reads.append(access.may_subscribe(Identity("c", ""), "a"))
        return result

    for one in verifier._files:
        await one.look(offload)
    assert reads == [True], "what was read counts only when it is taken"
    assert not access.may_subscribe(Identity("c", ""), "a")


@pytest.mark.parametrize(("users", "rules"), [("no colon\n", None), (None, "allow everything\n")])
def test_a_bad_file_at_the_start_is_an_error_that_names_file_and_line(
    tmp_path: Path, users: str | None, rules: str | None
) -> None:
    with pytest.raises(InvalidConfig, match="line 1"):
        make(tmp_path, users, rules)


@pytest.mark.parametrize("setting", ["password_file", "acl_file", "jwt_key_file"])
def test_a_missing_file_at_the_start_is_an_error_that_names_the_setting(tmp_path: Path, setting: str) -> None:
    access = Access("everyone", 1, 0.0, b"", lambda: None, lambda: 0.0)
    path = str(tmp_path / "none")
    with pytest.raises(InvalidConfig) as caught:
        Verifier(
            access,
            real_world(),
            Bell(),
            **{"password_file": "", "acl_file": "", setting: path},
            on_rules=nothing,
            on_users=nothing,
        )
    assert str(caught.value) == f"{setting} {path}: No such file or directory"


async def test_why_a_file_cannot_be_taken_any_more_is_said_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, verifier = make(tmp_path, None, "allow all publish #\n")
    file = tmp_path / "acl"
    file.write_bytes(b"\xffallow")
    await verifier.look()
    file.unlink()
    await verifier.look()
    stays = "what was read before stays in force at the gateway"
    assert caplog.messages == [
        f"{file}: it is no text in UTF-8: invalid start byte at byte 0; {stays}",
        f"{file}: No such file or directory; {stays}",
    ]


async def test_a_new_key_of_tokens_counts_and_a_bad_one_leaves_the_old_in_force(tmp_path: Path) -> None:
    access = Access("nobody", 1, 0.0, b"", lambda: None, lambda: 0.0)
    file = tmp_path / "key"
    keys = ["a key of more than thirty-two bytes, the first", "a key of more than thirty-two bytes, the second"]
    file.write_text(keys[0] + "\n")
    verifier = Verifier(
        access,
        real_world(),
        Bell(),
        "",
        "",
        str(file),
        TokenRules(needs_expiry=False),
        on_rules=nothing,
        on_users=nothing,
    )

    def accepted() -> list[bool]:
        answers: list[Identity | int] = []
        for key in keys:
            shown = Credentials("c", None, jwt.encode({"sub": "alice"}, key, "HS256").encode(), Peer("::1"))
            access.connect(shown, answers.append)
        return [answer == Identity("c", "alice") for answer in answers]

    assert accepted() == [True, False]
    file.write_text(keys[1])
    await verifier.look()
    assert accepted() == [False, True]
    file.write_text("short")
    await verifier.look()
    assert accepted() == [False, True]
    assert verifier.failures == 1
    with pytest.raises(InvalidConfig, match="too short") as caught:
        Verifier(access, real_world(), Bell(), "", "", str(file), TokenRules(), on_rules=nothing, on_users=nothing)
    assert str(file) in str(caught.value)


async def test_a_change_is_seen_also_where_a_file_keeps_its_time_and_size(tmp_path: Path) -> None:
    access, verifier = make(tmp_path, None, "allow anonymous subscribe a\n")
    found = (tmp_path / "acl").stat()
    (tmp_path / "acl").write_text("allow anonymous subscribe b\n")
    os.utime(tmp_path / "acl", ns=(found.st_atime_ns, found.st_mtime_ns))
    await verifier.look()
    assert [access.may_subscribe(Identity("c", ""), one) for one in ("a", "b")] == [False, True]


async def test_files_are_read_again_for_who_asks_changed_or_not(tmp_path: Path) -> None:
    times = list[int]()
    _, verifier = make(tmp_path, None, "allow anonymous subscribe a\n", lambda: times.append(1))
    assert times == [1]
    await verifier.look()
    assert times == [1]
    await verifier.look(anyway=True)
    assert times == [1, 1]


@pytest.mark.endtoend
async def test_a_verifier_that_is_told_to_looks_again_at_once(tmp_path: Path) -> None:
    times, taken = list[int](), trio.Event()

    def took() -> None:
        times.append(1)
        if len(times) > 1:  # the first is at the start
            taken.set()

    access, verifier = make(tmp_path, None, "allow anonymous subscribe a\n", took)
    found = (tmp_path / "acl").stat()
    (tmp_path / "acl").write_text("allow anonymous subscribe b\n")
    os.utime(tmp_path / "acl", ns=(found.st_atime_ns, found.st_mtime_ns))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(verifier.run)
        verifier.look_again()
        with trio.fail_after(PATIENCE_S):  # by itself it would never see a change
            await taken.wait()
        nursery.cancel_scope.cancel()
    assert access.may_subscribe(Identity("c", ""), "b")


async def test_a_file_that_was_read_again_has_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, verifier = make(tmp_path, None, "allow all publish #\n")
    file = tmp_path / "acl"
    file.write_text("nonsense\n")
    await verifier.look()
    caplog.clear()
    file.write_text("allow all subscribe #\n")
    await verifier.look()
    assert caplog.messages == [f"{file}: read again and in force at the gateway"]
    file.write_text("allow all publish a/#\n")
    await verifier.look()
    await verifier.look()
    assert caplog.messages == [f"{file}: read again and in force at the gateway"] * 2
    await verifier.look(anyway=True)
    assert caplog.messages == [f"{file}: read again and in force at the gateway"] * 3
