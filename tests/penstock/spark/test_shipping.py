from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

SHIP = """
import pickle, sys
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from penstock.spark import shipping
from penstock.spark.source import PenstockSource
shipping.by_value()
shipping.by_value()
options = CaseInsensitiveDict({"servers": sys.argv[1], "subscribe": "t"})
reader = cloudpickle.loads(cloudpickle.dumps(PenstockSource))(options).reader(None)
work = reader.partitions(), reader.read
open(sys.argv[2], "wb").write(cloudpickle.dumps(work))
"""

RUN = """
import pickle, sys
for name in ("penstock", "topicmap"):
    sys.modules[name] = None
partitions, read = pickle.loads(open(sys.argv[1], "rb").read())
for _ in range(2):
    print([row["offset"] for part in partitions for batch in read(part) for row in batch.to_pylist()])
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_process_without_penstock_reads_what_was_shipped_to_it(queues: Any, tmp_path: Path) -> None:
    queues.put("t", 0, 3)
    run(SHIP, queues.address, str(tmp_path / "work"))
    assert run(RUN, str(tmp_path / "work")) == "[0, 1, 2]\n[0, 1, 2]\n"
