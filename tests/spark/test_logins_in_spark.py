"""Queries and writes at a node whose ports ask for a login and speak TLS, and where their secrets are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pyspark.errors import AnalysisException

from penstock.cli.root import root
from tests.node.running import RunningSystem

SECRET = "pencil"


class Asking:
    """A node that asks for a login. ``login``: the options that all logins have; ``token``: one of the user billing."""

    def __init__(self, folder: Path) -> None:
        made = CliRunner().invoke(
            root, ["user", "add", "billing", "--file", str(folder / "users")], input=f"{SECRET}\n"
        )
        assert made.exit_code == 0
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(folder / "node.pem")
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "token.key").write_bytes(public)
        (folder / "password").write_text(SECRET)
        self.token = jwt.encode({"sub": "billing", "aud": "penstock", "exp": time.time() + 36_000}, key, "ES256")
        (folder / "token").write_text(self.token)
        given = {"password_file": "users", "tls_certificate": "node.pem", "peers_tls_ca": "ca.pem"}
        lines = [f'{name} = "{folder / file}"' for name, file in {**given, "jwt_key_file": "token.key"}.items()]
        file = folder / "penstock.toml"
        file.write_text("\n".join([*lines, 'jwt_audience = "penstock"', "console_port = -1\n"]))
        self.system = RunningSystem(folder / "data", file)
        self.folder = folder
        self.login = {"servers": self.system.addresses.namesrv, "tls": str(folder / "ca.pem")}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    made = Asking(tmp_path_factory.mktemp("asking"))
    yield made
    made.system.stop()


def all_that_is_shown(spark: Any, frame: Any, folder: Path) -> str:
    """The text of a frame's plans, of all queries on Spark's web page, and of all files of a folder."""
    plans = [str(frame._jdf.queryExecution()), str(frame._jdf.queryExecution().stringWithStats())]
    page = spark._jsparkSession.sharedState().statusStore().executionsList()
    for at in range(page.size()):
        query = page.apply(at)
        plans += [query.physicalPlanDescription(), query.details(), str(query.modifiedConfigs())]
    files = [file.read_bytes().decode(errors="replace") for file in folder.rglob("*") if file.is_file()]
    return "\n".join([*plans, *files])


def test_queries_and_writes_log_in_on_the_driver_and_on_executors_and_nothing_shows_their_secrets(
    spark: Any, asking: Asking, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.range(20).selectExpr("'asked' AS topic", "CAST(id AS STRING) AS value")
    by_file = {"user": "billing", "passwordFile": str(asking.folder / "password")}
    rows.write.format("penstock").mode("append").options(**asking.login, **by_file).save()
    logins = (
        {"user": "billing", "password": SECRET},
        {"token": asking.token},
        {"tokenFile": str(asking.folder / "token")},
    )
    for login in logins:
        read = spark.read.format("penstock").options(**asking.login, **login, subscribe="asked").load()
        assert sorted(int(row.value) for row in read.collect()) == list(range(20)), login.keys()
        shown = all_that_is_shown(spark, read, tmp_path)
        assert "asked" in shown
        assert SECRET not in shown
        assert asking.token not in shown
    given = {**asking.login, **logins[0]}
    stream = spark.readStream.format("penstock").options(**given, subscribe="asked", startingOffsets="earliest").load()
    writer = stream.writeStream.format("penstock").options(**given, topic="copied")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress.numInputRows == 20
    query.explain(extended=True)
    assert SECRET not in all_that_is_shown(spark, read, tmp_path) + query.lastProgress.json
    told = "".join(capfd.readouterr())
    assert SECRET not in told
    assert asking.token not in told


@pytest.mark.parametrize("given", [{}, {"user": "billing", "password": "geheim"}, {"token": "ge.he.im"}])
def test_without_the_right_login_one_sentence_says_so(given: dict[str, str], spark: Any, asking: Asking) -> None:
    options = {**asking.login, "subscribe": "asked", "brokerPatienceMs": "0", **given}
    with pytest.raises(AnalysisException) as raised:
        spark.read.format("penstock").options(**options).load().count()
    assert "log" in str(raised.value)
    assert "geheim" not in str(raised.value)
    assert "ge.he.im" not in str(raised.value)
