"""The cluster's secret: its file, and the proofs that are made of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.errors import DataFolderUnusable, InvalidConfig
from penstock.service.cluster_secret import FILE_NAME, broker_proof, is_proof, keep_secret, nonce_of, read_secret

SECRET = bytes(range(32))


def test_a_proof_has_these_bytes() -> None:
    proof = broker_proof(SECRET, b"n" * 32, "broker-a", "10.0.0.3:10911")
    assert proof.hex() == "fa60aa4ab10fd0e784e6fef1ed7d6ff686fadf934bc1961e26bde31964e55d79"


def test_a_proof_is_of_one_secret_one_nonce_one_name_and_one_address() -> None:
    right = (SECRET, b"n" * 32, "a", "h:1")
    proof = broker_proof(*right)
    assert is_proof(proof, *right)
    for wrong in [
        (b"x" * 32, *right[1:]),
        (SECRET, b"m" * 32, "a", "h:1"),
        (*right[:2], "b", "h:1"),
        (*right[:3], "h:2"),
    ]:
        assert not is_proof(proof, *wrong)
    assert not is_proof(b"", *right)
    assert not is_proof(proof[:-1], *right)


def test_what_stands_between_the_parts_of_a_proof_cannot_be_moved() -> None:
    assert broker_proof(SECRET, b"n", "ab", "c:1") != broker_proof(SECRET, b"n", "a", "bc:1")


def test_a_nonce_does_not_show_the_chance_that_it_is_made_of() -> None:
    chance = b"c" * 32
    assert chance not in nonce_of(SECRET, chance)
    assert nonce_of(SECRET, chance) != nonce_of(b"x" * 32, chance)
    assert len(nonce_of(SECRET, chance)) == 32


def test_white_space_around_the_secret_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_bytes(b"\n " + b"s" * 32 + b" \n")
    assert read_secret(file) == b"s" * 32


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read .*No such file"),
        (b"", "has 0 bytes, it needs 32"),
        (b"s" * 31, "31"),
        (b"s" * 70_000, "more"),
    ],
)
def test_a_file_without_a_secret_is_refused_with_the_command_that_makes_one(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidConfig, match=f"cluster_secret_file: .*{said}.*openssl rand"):
        read_secret(file)


def test_a_secret_that_other_users_may_read_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"s" * 32)
    file.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        read_secret(file)
    assert f"run chmod 600 {file}" in caplog.text


def test_a_data_folder_keeps_the_secret_that_was_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    path = keep_secret(folder)
    assert path == folder / FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    secret = read_secret(path)
    assert read_secret(keep_secret(folder)) == secret
    assert [one.name for one in folder.iterdir()] == [FILE_NAME]
    assert read_secret(keep_secret(tmp_path / "other")) != secret


def test_a_folder_where_no_secret_can_be_kept_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataFolderUnusable, match=r"cannot make .*cluster\.secret"):
        keep_secret(tmp_path / "file")
