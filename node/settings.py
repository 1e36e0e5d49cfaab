"""Settings of `penstock up`: where data lives, ports, one process or several, and the services' own sections.

A configuration file has the fields of ``NodeSettings`` at its top and a table per service::

    mqtt_port = 1883
    [broker]
    default_queues = 8

Where a service listens is said at the top for all of them, or by the service's own ``host`` and ``port``, which are
stronger. What the node decides itself (``DECIDED``) cannot be said for a service.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from broker.settings import BrokerSettings
from console.settings import ConsoleSettings
from events.settings import EventsSettings
from gateway.settings import GatewaySettings
from gateway.transports.listening import parse_listener
from namesrv.settings import NamesrvSettings
from penstock.errors import InvalidConfig
from penstock.service import common_settings as common
from penstock.service import config
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import NATIVE, is_loopback, refuse_exposed
from penstock.service.process_log import TABLE as LOG
from penstock.service.process_log import USUAL, VARIABLES, LogSettings, take_settings
from penstock.service.service_main import CHILD_VARIABLE
from penstock.service.setting import check_bounds, port_setting, settable, setting

SETTINGS: Final[Mapping[str, type[Any]]] = {
    "namesrv": NamesrvSettings,
    "broker": BrokerSettings,
    "gateway": GatewaySettings,
    "console": ConsoleSettings,
    "events": EventsSettings,
}
SERVICES: Final = tuple(SETTINGS)
PORTS: Final[Mapping[str, str]] = {
    "namesrv": "namesrv_port",
    "broker": "broker_port",
    "gateway": "mqtt_port",
    "console": "console_port",
    "events": "events_port",
}
"""The node's setting for the ``port`` of each service."""

_OF_NODE: Final = ("cluster_secret_file", "status_host", "status_port", "status_hosts")
DECIDED: Final[Mapping[str, Sequence[str]]] = {
    "events": (*_OF_NODE, "namesrv"),
    "namesrv": _OF_NODE,
    "broker": (*_OF_NODE, "data", "namesrv", "node", "replica_port", "join"),
    "gateway": (*_OF_NODE, "namesrv", "share_port"),
    "console": (*_OF_NODE, "namesrv"),
}
"""Settings of the services that the node decides: where its own parts are, and what they share."""

_OF_ACCESS: Final = tuple(
    [one.name for one in fields(AccessSettings) if one.name not in ("insecure", "cluster_secret_file")]
)
SHARED: Final = (*_OF_ACCESS, "peers_tls_ca")
"""Settings at the top that count for every service which has them and says nothing else; those of TLS not for the
console."""

OTHER_VARIABLES: Final = frozenset(
    {
        *[f"PENSTOCK_{service.upper()}_" for service in SERVICES],
        CHILD_VARIABLE,
        f"{VARIABLES}_",
        "PENSTOCK_SERVER",  # clients
        "PENSTOCK_USER",
        "PENSTOCK_PASSWORD",
        "PENSTOCK_TOKEN",
        "PENSTOCK_TLS",
        "PENSTOCK_CLIENT_",
        "PENSTOCK_CONTEXT",
        "PENSTOCK_CONTEXTS_FILE",
        "PENSTOCK_MQTT",
        "PENSTOCK_MQTT_PASSWORD",
        "PENSTOCK_MQTT_ADDRESS",  # tests
        "PENSTOCK_CHAOS_S",
        "PENSTOCK_SEARCH",
        "PENSTOCK_SEED",
        "PENSTOCK_SEEDS",
        "PENSTOCK_SIMULATED_S",
        "PENSTOCK_CONNECTIONS",
        "PENSTOCK_MESSAGES",
        "PENSTOCK_SENDS",
        "PENSTOCK_FAILOVERS",
        "PENSTOCK_POWER_LOSSES",
        "PENSTOCK_LISTED",
        "PENSTOCK_FUZZ_",
        "PENSTOCK_HOSTILE_",
    }
)
"""What somebody else reads: services, clients, the house's own tests. Any other variable is a slip of the pen."""


_DATA: Final = Path("penstock-data")
REPLICA_PORT: Final = 10912
"""Where a node that joins a group is reached, unless its settings say another port."""
_ONLY_DEVICES: Final = (
    'make a user with `penstock user add NAME --file users`, and set password_file = "users"\n'
    "or, to let devices alone in, set host under [gateway]\n"
    "or, in a network of trusted machines, set insecure = true (--insecure)"
)


@dataclass(frozen=True, slots=True)
class NodeSettings(AccessSettings):
    """Settings of `penstock up`. A port of 0 takes any free one. Users, rules, tokens and TLS count for all
    services; the gateway's TLS is its listeners'.

    Raises ``InvalidConfig`` for fewer than one gateway or more than 64, for a port that is none and an empty host.
    """

    data: Path = setting(_DATA, "folder of all durable state; made when missing", option="Folder of all durable state.")
    host: str = setting("127.0.0.1", "address on which every server listens that has none of its own in its section")
    peers_tls_ca: str = common.peers_tls_ca()
    mqtt_port: int = port_setting(
        1883, "where devices come; 0 takes any free one, here and below", option="Where devices connect ({default})."
    )
    broker_port: int = port_setting(
        10911, "where native clients and gateways come", option="Where services connect ({default})."
    )
    namesrv_port: int = port_setting(
        9876, "where brokers register and are asked for", option="Where clients ask for routes ({default})."
    )
    http_host: str = setting(
        "",
        "address of the status pages. Empty: `host`, where that is loopback or `insecure` is set, else 127.0.0.1. At"
        " another address they speak TLS and ask for a login that may `view *`, except `/livez` and `/readyz`",
    )
    http_port: int = port_setting(8080, "where the status pages are", option="Status and metrics ({default}).")
    console_port: int = port_setting(
        8090,
        "where the web console is; -1 for none. While another process has the port it is at any free one: the line"
        " that begins with `ready` says where",
        least=-1,
        option="Web console ({default}); -1 for none.",
    )
    events_port: int = port_setting(
        -1,
        "where the event bridge takes events and rules; -1: there is none",
        least=-1,
        option="Run an event bridge, which takes events and rules here.",
    )
    http_hosts: tuple[str, ...] = common.hosts(" of the status pages")
    rocketmq_port: int = port_setting(
        -1,
        "where RocketMQ's clients reach the broker; -1 for nowhere",
        least=-1,
        option="Where RocketMQ's clients reach the broker (none).",
    )
    rocketmq_namesrv_port: int = port_setting(
        -1,
        "where RocketMQ's clients ask for routes; -1 for nowhere",
        least=-1,
        option="Where RocketMQ's clients ask for routes (none).",
    )
    node: str = setting(
        "",
        "name of this node, where the broker's log has copies on other nodes",
        option="Name of this node, where the log has copies on others.",
    )
    replica_port: int = port_setting(
        -1,
        "where other nodes reach this one; -1: the log has no copies, unless `join` says otherwise, which takes 10912"
        " then",
        least=-1,
        option="Where other nodes reach this one (none; with --join 10912).",
    )
    join: tuple[str, ...] = setting(
        (),
        "addresses for replicas of nodes whose group this one joins",
        option="Join the group of the node there. Repeatable.",
    )
    listen: tuple[str, ...] = setting(
        (),
        "further listeners of the gateway, after those in its own section",
        option="A further listener: see below. Repeatable.",
    )
    processes: bool = setting(
        False, "run the services as child processes instead of in one", option="Each service in a process of its own."
    )
    gateways: int = setting(
        1,
        "how many gateway processes share the MQTT port; more than one means `processes`",
        least=1,
        most=64,
        option="Gateway processes that share the MQTT port ({default}).",
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if not self.host:
            raise InvalidConfig("host is empty", hint="0.0.0.0 is every address of this machine")
        if not self.asks:
            refuse_exposed("host", self.host, self.insecure, NATIVE, hint=_ONLY_DEVICES)
        self.check_pages("http_host", self.pages_host)
        if self.tls_certificate and not self.peers_tls_ca:
            raise InvalidConfig(
                "tls_certificate is set, and the services do not know its authority",
                hint="set peers_tls_ca to the authority's certificate",
            )
        self._check_rocketmq()
        self._check_copies()

    def _check_copies(self) -> None:
        if self.copies and not self.cluster_secret_file:
            raise InvalidConfig(
                "the broker's log has copies, and there is no key",
                hint="make one with `penstock replica key > cluster.key`, and give it to all nodes: --key cluster.key",
            )
        if self.copies and not self.node:
            raise InvalidConfig("the broker's log has copies, and this node has no name", hint="give it one: --node b")

    @property
    def copies(self) -> dict[str, Any]:
        """The broker's settings for copies of its log; none where it has none."""
        if self.replica_port < 0 and not self.join:
            return {}
        port = self.replica_port if self.replica_port >= 0 else REPLICA_PORT
        return {"node": self.node, "replica_port": port, "join": self.join}

    def _check_rocketmq(self) -> None:
        ports = self.rocketmq_port, self.rocketmq_namesrv_port
        if -1 in ports and ports != (-1, -1):
            raise InvalidConfig(
                f"rocketmq_port is {ports[0]} and rocketmq_namesrv_port is {ports[1]}",
                hint="both are from 0 to 65535, or both -1 for none",
            )
        if self.has_rocketmq and (self.processes or self.gateways > 1):
            raise InvalidConfig(
                "rocketmq_port is for services in one process",
                hint="with processes = true, run `python -m remoting` beside them",
            )

    @property
    def has_rocketmq(self) -> bool:
        """Whether RocketMQ's clients are served."""
        return self.rocketmq_port >= 0

    @property
    def pages_host(self) -> str:
        """Where the status pages are: on this machine alone, unless the settings say otherwise."""
        return self.http_host or self.clear_host

    @property
    def clear_host(self) -> str:
        """Where a port is that speaks no TLS."""
        return self.host if self.insecure or is_loopback(self.host) else "127.0.0.1"


_DEFAULTS: Final = {field.name: field.default for field in fields(NodeSettings)}


@dataclass(frozen=True, slots=True)
class Configuration:
    """Node settings, the names of those that a flag gave, and, per service, the table of settings that a file gives
    it. ``source``: that file, for errors. ``log``: level and format of all processes."""

    node: NodeSettings
    services: Mapping[str, Mapping[str, Any]]
    flags: Collection[str] = ()
    source: config.Source = config.SOME_SETTINGS
    log: LogSettings = USUAL


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Configuration:
    """File, then environment (``PENSTOCK_DATA`` ...), then flags, in order of increasing weight. Raises
    ``InvalidConfig`` with all that is wrong: settings of the services too, also those that the node decides, and
    variables that nobody reads."""
    table, source = config.read_file(file)
    faults = config.Faults()
    services: dict[str, Mapping[str, Any]] = {}
    log = USUAL
    with faults.collected():
        log = take_settings(table, environ, source)
    for name in SERVICES:
        services[name] = _section(name, table.pop(name, {}), source, environ, faults)
    for name in [one for one in table if one not in settable(NodeSettings)]:
        misplaced = _misplaced(name, table[name], source)
        if misplaced is not None:
            faults.add(misplaced)
            del table[name]
    node = NodeSettings()
    with faults.collected():
        node = config.load_table(NodeSettings, table, environ, "PENSTOCK", flags, source=source, others=OTHER_VARIABLES)
    configuration = Configuration(node, services, tuple(flags), source, log)
    for name in services:
        with faults.collected():
            service_settings(configuration, name, environ)
    faults.raise_all()
    _refuse_bypass(configuration, environ)
    return configuration


def _refuse_bypass(configuration: Configuration, environ: Mapping[str, str]) -> None:
    """Raises ``InvalidConfig`` for a service that asks for no login, at a broker that does."""
    node = configuration.node
    if node.insecure or not service_settings(configuration, "broker", environ).asks:
        return
    if node.events_port >= 0 and not service_settings(configuration, "events", environ).asks:
        raise InvalidConfig(
            "events_port is set, and the event bridge knows no users: its callers would come past the broker's",
            hint="name the broker's users at the top of the file, or under [events] too",
        )


def access_of(settings: AccessSettings) -> dict[str, Any]:
    """The access settings of a service, as arguments for those of another one that has the same users and rules."""
    return {name: getattr(settings, name) for name in _OF_ACCESS}


def console_may_act(configuration: Configuration, environ: Mapping[str, str]) -> bool:
    """Whether the console gets the key of the cluster: it has users of its own, or the broker asks nobody. Else whoever
    opens it would come past the broker's users."""
    console = service_settings(configuration, "console", environ)
    return console.asks or not service_settings(configuration, "broker", environ).asks


def _section(
    name: str, section: Any, source: config.Source, environ: Mapping[str, str], faults: config.Faults
) -> Mapping[str, Any]:
    """The settings of a service in the file, without those that the node decides, which are faults."""
    if not isinstance(section, dict):
        faults.add(InvalidConfig(f"{source.at(name)} [{name}] must be a table"))
        return {}
    for one in DECIDED[name]:
        if one in section or _variable(name, one) in environ:
            place = source.table(name).at(one) if one in section else f"{_variable(name, one)}: [{name}]"
            hint = f"it counts for `python -m {name}` alone"
            faults.add(InvalidConfig(f"{place} {one} cannot be set here: `penstock up` decides it", hint=hint))
    return {one: value for one, value in section.items() if one not in DECIDED[name]}


def _misplaced(name: str, value: object, source: config.Source) -> InvalidConfig | None:
    """What to say of a name at the top that belongs into a table, or of a table that no service has."""
    if isinstance(value, dict):
        tables = (*SERVICES, LOG)
        near = config.nearest(name, tables)
        hint = f"did you mean [{near}]?" if near else f"the tables are {', '.join(f'[{one}]' for one in tables)}"
        return InvalidConfig(f"{source.at(name)} [{name}] is no table of settings", hint=hint)
    homes = [f"[{service}]" for service, kind in SETTINGS.items() if name in settable(kind)]
    if homes:
        hint = f"it is a setting of {' and of '.join(homes)}"
        return InvalidConfig(f"{source.at(name)} {name} stands in no table", hint=hint)
    for service, kind in SETTINGS.items():
        former = config.former_names(kind).get(name)
        if former:
            return InvalidConfig(f"{source.at(name)} {name} is no setting", hint=f"of [{service}]: {former}")
    return None


def service_settings(configuration: Configuration, service: str, environ: Mapping[str, str], **given: object) -> Any:
    """Settings of one service, where it listens included; ``given``: what else the node decides. Raises
    ``InvalidConfig``."""
    table, prefix = configuration.services[service], f"PENSTOCK_{service.upper()}"
    decided = place(configuration, service, environ) | given
    if service == "gateway":
        decided |= listeners(configuration, environ)
    source = configuration.source.table(service)
    return config.load_table(SETTINGS[service], table, environ, prefix, decided, source=source)


def _variable(service: str, setting: str) -> str:
    return f"PENSTOCK_{service}_{setting}".upper()


def place(configuration: Configuration, service: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """``host``, ``port``, ``insecure`` and who may come, of a service, as far as the node decides them: the port that a
    flag gives, else what neither the service's section nor its environment says. For the port, the node's environment
    is stronger than a file."""
    own, node, port = configuration.services[service], configuration.node, PORTS[service]
    given: dict[str, Any] = {}
    if not _says(configuration, service, "host", environ):
        has_own = _says(configuration, service, "tls_certificate", environ)
        is_clear = not has_own and (service == "console" or (service == "events" and not node.tls_certificate))
        given["host"] = node.clear_host if is_clear else node.host
    is_in_file = "port" in own and f"PENSTOCK_{port.upper()}" not in environ
    if port in configuration.flags or not (is_in_file or _variable(service, "port") in environ):
        given["port"] = max(0, getattr(node, port))
    if node.insecure and service != "gateway" and not _says(configuration, service, "insecure", environ):
        given["insecure"] = True
    known = settable(SETTINGS[service])
    for name in SHARED:
        if service == "console" and name.startswith("tls_"):  # what browsers are shown is said for the console alone
            continue
        value = getattr(node, name)
        if value != _DEFAULTS[name] and name in known and not _says(configuration, service, name, environ):
            given[name] = value
    if service == "console" and not _console_asks(configuration, environ, given):
        given.pop("acl_file", None)  # the node's rules are for those of its services that have users
    return given


def _console_asks(configuration: Configuration, environ: Mapping[str, str], given: Mapping[str, Any]) -> bool:
    """Whether the console has users: its own, or the node's. The node's certificates are not for browsers."""
    said = {**given, **configuration.services["console"]}
    for name in ("password_file", "jwt_key_file", "tls_clients"):
        said[name] = environ.get(_variable("console", name), said.get(name, ""))
    return bool(said["password_file"] or said["jwt_key_file"]) or said["tls_clients"] not in ("", "none")


def _says(configuration: Configuration, service: str, setting: str, environ: Mapping[str, str]) -> bool:
    """Whether a service's own section or environment has a setting."""
    return setting in configuration.services[service] or _variable(service, setting) in environ


def gateway_name(configuration: Configuration, environ: Mapping[str, str]) -> str:
    """The name that the operator gives the gateway, empty for none."""
    return environ.get(_variable("gateway", "name")) or configuration.services["gateway"].get("name", "")


def listeners(configuration: Configuration, environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The setting of the gateway's further listeners, where there are any: those of its section, or of its environment,
    then those that the node adds."""
    said = environ.get("PENSTOCK_GATEWAY_LISTENERS")
    own = configuration.services["gateway"].get("listeners", ())
    if said is not None:
        own = [line.strip() for line in said.split(",") if line.strip()]
    lines = (*own, *configuration.node.listen)
    return {"listeners": lines} if lines else {}


def with_ports(lines: Sequence[str], taken: Mapping[str, str]) -> tuple[str, ...]:
    """Listeners with the ports that a process took where they say 0. ``taken``: name -> ``host:port``."""
    fixed = []
    for line in lines:
        listening = parse_listener(line)
        kind, place, *options = line.split()
        if listening.port == 0 and listening.name in taken:
            place = place.rpartition(":")[0] + ":" + taken[listening.name].rpartition(":")[2]
        fixed.append(" ".join([kind, place, *options]))
    return tuple(fixed)


def for_child(
    configuration: Configuration, service: str, environ: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """What a service that runs as a process of its own is told: its section, except what the environment, which the
    process has too, says itself; and what the node decides."""
    prefix = f"PENSTOCK_{service.upper()}_"
    table = configuration.services[service]
    return {name: value for name, value in table.items() if prefix + name.upper() not in environ} | dict(given)
