"""Settings of a remoting front."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import NATIVE
from penstock.service.setting import port_setting, setting


@dataclass(frozen=True, slots=True)
class RemotingSettings(AccessSettings):
    """Settings of a front for RocketMQ's clients. Users sign with their secret keys (`penstock user key`), which the
    password file holds."""

    host: str = common.host()
    port: int = port_setting(10909, "where clients reach the broker; 0 takes any free one")
    namesrv_port: int = port_setting(9877, "where clients ask for routes; 0 takes any free one")
    advertise: str = setting("", "`host:port` that clients are to use; empty: where it listens")
    peers_tls_ca: str = common.peers_tls_ca()
    broker: str = setting(
        "127.0.0.1:10911", "`host:port` of its broker's native port; of one with copies, as it is advertised"
    )
    namesrv: str = setting("127.0.0.1:9876", "`host:port` of the name server")
    connection_log: str = common.connection_log()
    user_topics_per_min_max: int = setting(
        1000,
        "maximum number of topics per minute, and in one burst, that messages of one user make here. 0: no limit. A"
        " front that asks for no login has none",
        least=0,
    )
    status_host: str = common.status_host()
    status_port: int = common.status_port()
    status_hosts: tuple[str, ...] = common.status_hosts()

    def __post_init__(self) -> None:
        self.check_access(self.host, NATIVE)
        self.check_pages("status_host", self.status_host)
        if self.advertise and not self.advertise.rpartition(":")[2].isdigit():
            raise InvalidConfig(f"advertise is {self.advertise!r}", hint="it is HOST:PORT")
