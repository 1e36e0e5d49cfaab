"""The files of a guarded port: bad ones are errors at the start, changed ones count."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.access.policy import SCRAM, Identity
from penstock.errors import InvalidConfig
from penstock.service.access_files import AccessFiles
from penstock.service.access_settings import AccessSettings
from penstock.world import real_world
from tests.penstock.native_access import access_files, write_users


async def test_changed_users_and_rules_count_and_bad_ones_do_not(tmp_path: Path) -> None:
    files = AccessFiles(AccessSettings(**access_files(tmp_path)), real_world(), None)
    authority, ada = files.authority, Identity("ada", SCRAM)
    assert authority.asks
    assert authority.policy.may(ada, "admin")
    write_users(tmp_path / "users", {"billing": "pencil"})
    (tmp_path / "rules").write_text("allow user ada view *\n")
    await files.look()
    assert not authority.still(ada)
    assert not authority.policy.may(ada, "admin")
    version = authority.version
    (tmp_path / "users").write_text("nonsense\n")
    await files.look()
    assert authority.version == version


@pytest.mark.parametrize("name", ["password_file", "acl_file", "jwt_key_file"])
def test_a_bad_file_at_the_start_is_an_error_that_names_the_setting(tmp_path: Path, name: str) -> None:
    given = access_files(tmp_path) | {name: str(tmp_path / "nowhere")}
    with pytest.raises(InvalidConfig, match=f"{name} .*nowhere"):
        AccessFiles(AccessSettings(**given), real_world(), None)


def test_a_port_without_files_is_open() -> None:
    files = AccessFiles(AccessSettings(), real_world(), None)
    assert not files.authority.asks
    assert files.certificates is None
