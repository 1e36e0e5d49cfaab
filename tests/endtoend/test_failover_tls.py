"""Nodes of a group speak TLS with each other, each with a certificate of its own: of another authority none gets in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.endtoend.copies import Group, asking

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "failover.md").read_text()

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]


def certificates(folder: Path) -> dict[str, str]:
    """An authority, a certificate by it, and the settings for both that the guide prints."""
    found = re.search(r"^## TLS between the nodes\n.*?```toml\n(.*?)```", GUIDE, re.MULTILINE | re.DOTALL)
    assert found
    folder.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "node.pem")
    said = tomllib.loads(found[1])
    return {name: str(folder / value) if value.endswith(".pem") else value for name, value in said.items()}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, **certificates(tmp_path / "ours"))
    try:
        yield made
    finally:
        made.end()


def is_refused(group: Group, join: str, settings: dict[str, str], why: str) -> bool:
    """Whether a node that asks to join says at last that it is not let in, and why."""
    own = {"node": "x", "name": "group", "data": str(group.data / "x"), "replica_port": "0", "port": "0", "join": join}
    own |= {"namesrv": group.servers, "cluster_secret_file": str(group.key)} | settings
    environ = {f"PENSTOCK_BROKER_{name.upper()}": value for name, value in own.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "broker"], env=os.environ | environ, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            return any(f"replica at {join}" in line and why in line for line in process.stderr)
        finally:
            process.kill()


async def test_nodes_show_certificates_to_each_other_and_another_authority_is_refused(
    group: Group, tmp_path: Path
) -> None:
    group.start("a")
    async with asking(group) as asks:
        await asks.grown()
        await asks.level()
        group.kill(await asks.leader())
        await asks.leader()
        address = await asks.address(await asks.leader())
        rows = (await asks.described(await asks.leader())).rows
    theirs = certificates(tmp_path / "theirs")
    assert is_refused(group, address, theirs, "does not count here")
    ours = group.starting["peers_tls_ca"]
    assert is_refused(group, address, theirs | {"peers_tls_ca": ours}, "of the authority that it knows")
    assert is_refused(group, address, {}, "set peers_tls_ca")
    assert {row.node for row in rows} == set("abc")
