"""Settings: what is taken, from where, and what is said when something is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.service.config import Source, load, load_table, read_file


@dataclass(frozen=True, slots=True)
class Settings:
    name: str = "broker-a"
    port: int = 10911
    data: Path = Path("data")
    share_port: bool = False
    lease_s: float = 120.0
    keep_alive_s_max: int = 0
    segment_bytes: int = 1 << 30
    namesrv: tuple[str, ...] = ("127.0.0.1:9876",)
    delays_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65_536:
            raise InvalidConfig(f"port is {self.port}")
        if not self.namesrv:
            raise ValueError("namesrv is empty")


@dataclass(frozen=True, slots=True)
class Needing:
    name: str


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text)
    return path


def from_table(**table: object) -> Settings:
    return load_table(Settings, table, {}, "PENSTOCK_BROKER")


def from_environment(**variables: str) -> Settings:
    return load(
        Settings, None, {f"PENSTOCK_BROKER_{name}": text for name, text in variables.items()}, "PENSTOCK_BROKER"
    )


def test_without_file_and_environment_the_defaults_hold() -> None:
    assert load(Settings, None, {"HOME": "/root"}, "PENSTOCK_BROKER") == Settings()


def test_a_value_of_the_environment_that_is_refused_is_said_to_be_from_there() -> None:
    with pytest.raises(InvalidConfig, match=r"^PENSTOCK_BROKER_NAMESRV: namesrv is empty$"):
        from_environment(NAMESRV="")


def test_a_file_gives_every_type_of_setting(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'name = "b"\nport = 1\ndata = "/var/d"\nshare_port = true\n'
        'lease_s = 5\nsegment_bytes = 4096\nnamesrv = ["a:1", "b:2"]\n',
    )
    expected = Settings("b", 1, Path("/var/d"), True, 5.0, 0, 4096, ("a:1", "b:2"))
    assert load(Settings, file, {}, "PENSTOCK_BROKER") == expected


def test_the_environment_gives_every_type_of_setting() -> None:
    expected = Settings("b", 1, Path("/var/d"), True, 5.0, 60, 512 << 20, ("a:1", "b:2"))
    assert expected == from_environment(
        NAME="b",
        PORT="1",
        DATA="/var/d",
        SHARE_PORT="true",
        LEASE_S="5s",
        KEEP_ALIVE_S_MAX="1min",
        SEGMENT_BYTES="512MiB",
        NAMESRV="a:1, b:2",
    )


def test_environment_is_stronger_than_the_file_and_overrides_are_stronger_than_both(tmp_path: Path) -> None:
    file = written(tmp_path, 'name = "file"\nport = 1\nlease_s = 1\n')
    environ = {"PENSTOCK_BROKER_NAME": "environment", "PENSTOCK_BROKER_PORT": "2"}
    found = load(Settings, file, environ, "PENSTOCK_BROKER", {"name": "override"})
    assert (found.name, found.port, found.lease_s) == ("override", 2, 1.0)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("512MiB", 512 << 20), ("1 GiB", 1 << 30), ("2kB", 2000), ("1.5KiB", 1536), ("77", 77), ("9B", 9)],
)
def test_sizes_have_units(text: str, size_bytes: int) -> None:
    assert from_table(segment_bytes=text).segment_bytes == size_bytes


@pytest.mark.parametrize(
    ("text", "wait_s"), [("30s", 30), ("250ms", 0.25), ("2min", 120), ("2m", 120), ("1.5h", 5400), ("1d", 86400)]
)
def test_durations_have_units(text: str, wait_s: float) -> None:
    assert from_table(lease_s=text).lease_s == wait_s


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"prot": 1}, "prot is no setting (did you mean 'port'?)"),
        ({"segment_byte": 1}, "did you mean 'segment_bytes'?"),
        ({"port": 1.5}, "port: expected a whole number, got 1.5"),
        ({"port": True}, "port: expected a whole number, got True"),
        ({"share_port": 1}, "share_port: expected true or false, got 1"),
        ({"name": 5}, "name: expected a string, got 5"),
        ({"data": 5}, "data: expected a path, got 5"),
        ({"namesrv": "a:1"}, "namesrv: expected a list of strings, got 'a:1'"),
        ({"namesrv": ["a:1", 2]}, "namesrv: expected a list of strings"),
        ({"lease_s": float("nan")}, "lease_s: nan is no number to work with"),
        ({"lease_s": "30 parsecs"}, "write a number with one of ms, s, m, min, h, d"),
        ({"segment_bytes": "0.3B"}, "segment_bytes: expected a whole number, got '0.3B'"),
        ({"port": "80s"}, "port: expected a whole number, got '80s'"),
        ({"port": 70_000}, "port is 70000"),
        ({"namesrv": []}, "test.toml: namesrv is empty"),
        ({"broker": {"port": 1}}, "broker is no setting"),
    ],
)
def test_a_wrong_setting_is_refused_and_the_error_says_what_is_expected(table: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load_table(Settings, table, {}, "PENSTOCK_BROKER", source=Source("test.toml"))
    assert said in str(refused.value)


def test_all_that_is_wrong_is_told_at_once_with_file_and_line_or_variable(tmp_path: Path) -> None:
    file = written(tmp_path, "prot = 1\nport = 70000\n\nlease_s = true\n")
    environ = {"PENSTOCK_BROKER_NAME": "b", "PENSTOCK_BROKER_SHARE_PORT": "perhaps", "PENSTOCK_BROKER_X": "1"}
    with pytest.raises(InvalidConfig) as refused:
        load(Settings, file, environ, "PENSTOCK_BROKER")
    assert [str(one).replace(str(tmp_path), "") for one in refused.value.parts] == [
        "/broker.toml:1: prot is no setting (did you mean 'port'?)",
        "/broker.toml:4: lease_s: expected a number, got True",
        "the environment variable PENSTOCK_BROKER_X names no setting",
        "PENSTOCK_BROKER_SHARE_PORT: expected true or false, got 'perhaps'",
        "/broker.toml:2: port is 70000",
    ]
    assert str(refused.value).startswith("5 settings are wrong:\n  ")


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("PROT", "1", "PENSTOCK_BROKER_PROT names no setting (did you mean PENSTOCK_BROKER_PORT?)"),
        ("PORT", "many", "PENSTOCK_BROKER_PORT: expected a whole number, got 'many'"),
        ("PORT", "-1", "port is -1"),
        ("SHARE_PORT", "perhaps", "PENSTOCK_BROKER_SHARE_PORT: expected true or false, got 'perhaps'"),
        ("LEASE_S", "inf", "PENSTOCK_BROKER_LEASE_S: expected a number, got 'inf'"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        from_environment(**{variable: text})
    assert said in str(refused.value)


def test_variables_that_others_read_are_left_alone() -> None:
    environ = {"PENSTOCK_BROKER_DEFAULT_QUEUES": "8", "PENSTOCK_SEED": "1", "PENSTOCK_NAME": "node", "PENSTOCKING": "1"}
    others = ("PENSTOCK_BROKER_", "PENSTOCK_SEED")
    assert load_table(Settings, {}, environ, "PENSTOCK", others=others).name == "node"
    with pytest.raises(InvalidConfig, match="PENSTOCK_SEEDS names no setting"):
        load_table(Settings, {}, {"PENSTOCK_SEEDS": "1"}, "PENSTOCK", others=others)


def test_a_variable_of_a_longer_word_is_not_of_the_prefix() -> None:
    assert load(Settings, None, {"PENSTOCK_BROKERS_PORT": "1"}, "PENSTOCK_BROKER") == Settings()


def test_a_setting_without_a_default_must_be_given() -> None:
    with pytest.raises(InvalidConfig, match="'name' is missing"):
        load(Needing, None, {}, "PENSTOCK_BROKER")


def test_a_file_that_is_not_there_or_no_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*missing\.toml: No such file"):
        load(Settings, tmp_path / "missing.toml", {}, "PENSTOCK_BROKER")
    with pytest.raises(InvalidConfig, match=r"broker\.toml"):
        load(Settings, written(tmp_path, "name = \n"), {}, "PENSTOCK_BROKER")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match=r"binary\.toml"):
        load(Settings, binary, {}, "PENSTOCK_BROKER")


@pytest.mark.parametrize("line", ['data = "\\u0000"', 'namesrv = ["a:1", "b\\u0000:2"]', 'gateway.data = "a\\u0000"'])
def test_a_nul_is_refused_by_the_name_of_the_setting(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidConfig, match=r": (data|namesrv) holds a NUL"):
        read_file(written(tmp_path, line))


def test_a_list_of_durations_is_one_in_a_file_and_in_the_environment() -> None:
    assert from_table(delays_s=[0.5, 2, "10s", "2h"]).delays_s == (0.5, 2.0, 10.0, 7200.0)
    assert from_environment(DELAYS_S="500ms, 2,10s").delays_s == (0.5, 2.0, 10.0)
    for wrong in ([True], ["soon"], 5, "10s"):
        with pytest.raises(InvalidConfig, match=r"delays_s: expected a (list of numbers|number), got"):
            from_table(delays_s=wrong)
    with pytest.raises(InvalidConfig, match="PENSTOCK_BROKER_DELAYS_S: expected a number, got 'x'"):
        from_environment(DELAYS_S="1,x")
