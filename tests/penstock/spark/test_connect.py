from __future__ import annotations

import sys

import pytest

from penstock.errors import InvalidConfig, Unavailable
from penstock.spark.connect import address_of, check_packages, is_remote, remote_of
from penstock.spark.session import session


def test_the_server_is_the_one_of_the_settings_else_of_the_environment() -> None:
    assert remote_of({}, {}) == ""
    assert remote_of({"SPARK_REMOTE": "sc://a"}, {}) == "sc://a"
    assert remote_of({"SPARK_REMOTE": "sc://a"}, {"spark.remote": "sc://b"}) == "sc://b"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sc://spark", ("spark", 15002)),
        ("sc://spark:443/;use_ssl=true;token=abc:d", ("spark", 443)),
        ("sc://[::1]:15003", ("::1", 15003)),
        ("sc://[::1]", ("::1", 15002)),
    ],
)
def test_an_address_has_a_host_and_a_port(url: str, address: tuple[str, int]) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("url", ["local[2]", "spark:15002", "sc://", "sc://:7", "sc://spark:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="no address of a Spark Connect server"):
        address_of(url)


def test_packages_that_are_missing_are_named_with_what_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InvalidConfig, match=r"needs .*grpcio, .*zstandard") as raised:
        check_packages()
    assert "pip install 'pyspark[connect]'" in raised.value.hint


def test_a_session_honours_spark_remote_and_starts_nothing_of_its_own(
    monkeypatch: pytest.MonkeyPatch, unused_address: str
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", f"sc://{unused_address}")
    with pytest.raises(Unavailable, match=f"no Spark Connect server answers at {unused_address}: Connection refused"):
        session()
    with pytest.raises(InvalidConfig, match=r"at master local\[2\] and at sc://"):
        session(master="local[2]")


def test_a_session_of_this_process_is_not_remote() -> None:
    assert not is_remote(object())
