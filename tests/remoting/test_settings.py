from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from remoting.settings import RemotingSettings


@pytest.mark.parametrize(
    "wrong",
    [{"advertise": "nowhere"}, {"host": "0.0.0.0"}, {"status_host": "::"}],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        RemotingSettings(**wrong)  # type: ignore[arg-type]


def test_beyond_loopback_it_listens_only_if_that_is_meant() -> None:
    assert RemotingSettings(host="0.0.0.0", insecure=True, advertise="host-a:10909").advertise == "host-a:10909"
