"""The secret that brokers and name servers of one cluster share, and the proof that a broker knows it.

The secret itself never travels. A name server sends a nonce, the broker answers with an HMAC-SHA256 over the nonce, its
own name and its address (docs/formats/wire.md). An overheard proof is good for that one nonce, name and address only.
"""

from __future__ import annotations

import hmac
import logging
import os
from pathlib import Path
from typing import Final

from penstock.errors import DataFolderUnusable, InvalidConfig
from penstock.world import new_secret

FILE_NAME: Final = "cluster.secret"
"""In a data folder: what ``penstock up`` makes for its own broker and name server."""
SECRET_BYTES_MIN: Final = 32
"""A shorter secret could be guessed from one overheard proof."""
_FILE_BYTES_MAX: Final = 64 * 1024
_PURPOSE: Final = b"penstock broker 1"
_REPLICA: Final = b"penstock replica 1"
_NONCE: Final = b"penstock nonce 1"
_HOW: Final = "make one with: (umask 077; openssl rand -hex 32 > FILE)"

_log = logging.getLogger(__name__)


def broker_proof(secret: bytes, nonce: bytes, broker: str, address: str) -> bytes:
    """The proof of the broker with this name and address that it knows the secret."""
    return _mac(secret, _PURPOSE, nonce, broker.encode(), address.encode())


def is_proof(proof: bytes, secret: bytes, nonce: bytes, broker: str, address: str) -> bool:
    """Whether this is that broker's proof. Takes the same time for every wrong one."""
    return hmac.compare_digest(proof, broker_proof(secret, nonce, broker, address))


def replica_proof(secret: bytes, is_caller: bool, nonces: tuple[bytes, bytes], *names: str) -> bytes:
    """The proof of a node of a group of copies that it knows the secret: of the one that calls, or of the one that is
    called. ``nonces``: the caller's and the other one's. ``names``: what the prover says of itself."""
    side = b"caller" if is_caller else b"called"
    return _mac(secret, _REPLICA, side, *nonces, *[name.encode() for name in names])


def is_replica_proof(proof: bytes, secret: bytes, is_caller: bool, nonces: tuple[bytes, bytes], *names: str) -> bool:
    """Whether this is that node's proof. Takes the same time for every wrong one."""
    return hmac.compare_digest(proof, replica_proof(secret, is_caller, nonces, *names))


def nonce_of(secret: bytes, chance: bytes) -> bytes:
    """A nonce that is unpredictable without the secret, whatever made ``chance`` (32 bytes)."""
    return _mac(secret, _NONCE, chance)


def _mac(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join([len(part).to_bytes(4, "big") + part for part in parts]), "sha256")


def read_secret(path: Path) -> bytes:
    """The secret in a file, without the white space around it.

    Raises:
        InvalidConfig: the file cannot be read, is too short or far too long.
    """
    try:
        with path.open("rb") as file:
            secret = file.read(_FILE_BYTES_MAX + 1).strip()
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise InvalidConfig(f"cluster_secret_file: cannot read {path}: {error.strerror}", hint=_HOW) from None
    if len(secret) < SECRET_BYTES_MIN:
        raise InvalidConfig(
            f"cluster_secret_file: the secret in {path} has {len(secret)} bytes, it needs {SECRET_BYTES_MIN}", hint=_HOW
        )
    if len(secret) > _FILE_BYTES_MAX:
        raise InvalidConfig(f"cluster_secret_file: {path} has more than {_FILE_BYTES_MAX} bytes", hint=_HOW)
    if mode & 0o077:
        _log.warning("other users may read the cluster's secret: run chmod 600 %s", path)
    return secret


def keep_secret(folder: Path) -> Path:
    """The file of a data folder that holds a secret of its own; made, for its owner alone, where there is none.

    Raises:
        DataFolderUnusable: the file cannot be made.
    """
    path = folder / FILE_NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
    except OSError as error:
        raise DataFolderUnusable(f"cannot make {path}: {error.strerror}") from None
    return path


def _make(path: Path) -> None:
    """Makes the file with its whole content at once: a crash leaves none, or a good one."""
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(new_secret().hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
