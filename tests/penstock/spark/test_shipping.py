from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.blocking.reader import Reader
from tests.patience import PATIENCE_S

# As Spark does it: the driver ships the class, a process of its own plans with it, workers read.
DRIVER = """
import sys
from pyspark import cloudpickle
from penstock.spark.shipping import shipped
shipped(40)
open(sys.argv[1], "wb").write(cloudpickle.dumps(shipped(40)))
"""

# Ours, and what else a clone installs: executors need none of it.
ABSENT = [
    "penstock",
    "topicmap",
    "anyio",
    "click",
    "fastcrc",
    "h11",
    "lz4",
    "mypy_extensions",
    "rich",
    "trio",
]
WITHOUT = f"""
import pickle, sys
for name in {ABSENT!r}:
    sys.modules[name] = None
from pyspark import cloudpickle
"""

PLANNER = f"""{WITHOUT}
from pyspark.sql.datasource import CaseInsensitiveDict
source = pickle.loads(open(sys.argv[1], "rb").read())
options = CaseInsensitiveDict({{"servers": sys.argv[2], "subscribe": "t", "partitionTargetRows": "1"}})
reader = pickle.loads(cloudpickle.dumps(source(options))).reader(None)
print(len(reader.partitions()))
open(sys.argv[1], "wb").write(cloudpickle.dumps((reader.partitions(), reader.read)))
"""

WORKER = f"""{WITHOUT}
for at in range(2):
    partitions, read = pickle.loads(open(sys.argv[1], "rb").read())
    batches = [batch for part in partitions for batch in read(part)]
    assert at or "pandas" not in sys.modules  # it takes a fifth of a second of each worker's first task
    print([row["offset"] for batch in batches for row in batch.to_pylist()])
"""

WRITER = f"""{WITHOUT}
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructType
source = pickle.loads(open(sys.argv[1], "rb").read())
options = CaseInsensitiveDict({{"servers": sys.argv[2], "topic": "out", "writeId": "w"}})
writer = source(options).writer(schema=StructType().add("value", StringType()), overwrite=False)
write = pickle.loads(cloudpickle.dumps(writer)).write
TaskContext._setTaskContext(TaskContext())
TaskContext._taskContext._partitionId = 0
for _ in range(2):
    print(write(iter([pa.RecordBatch.from_pydict({{"value": ["a", "b"]}})])).rows)
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_without_penstock_plan_and_read_what_was_shipped_to_them(queues: Any, tmp_path: Path) -> None:
    queues.put("t", 0, 100)
    shipped = str(tmp_path / "shipped")
    run(DRIVER, shipped)
    assert run(PLANNER, shipped, queues.address) == "100\n"  # enough for the 40 cores that the driver knows of
    assert run(WORKER, shipped) == f"{list(range(100))}\n" * 2


DECODER = f"""{WITHOUT}
from pyspark.sql.datasource import CaseInsensitiveDict
source = pickle.loads(open(sys.argv[1], "rb").read())
options = CaseInsensitiveDict(
    {{"servers": sys.argv[2], "subscribe": "t", "payload": "json", "payloadSchema": "BIGINT", "columns": "offset"}}
)
reader = source(options).reader(source(options).schema())
partitions, read = pickle.loads(cloudpickle.dumps((reader.partitions(), reader.read)))
print([row["data"] for part in partitions for batch in read(part) for row in batch.to_pylist()])
"""


def test_a_process_without_penstock_decodes_what_it_reads(queues: Any, tmp_path: Path) -> None:
    queues.put("t", 0, 3)
    shipped = str(tmp_path / "shipped")
    run(DRIVER, shipped)
    assert run(DECODER, shipped, queues.address) == "[0, 1, 2]\n"


def test_a_process_without_penstock_writes_what_was_shipped_to_it(real_cluster: Any, tmp_path: Path) -> None:
    shipped = str(tmp_path / "shipped")
    run(DRIVER, shipped)
    assert run(WRITER, shipped, real_cluster.servers) == "2\n2\n"
    with Reader("out", servers=real_cluster.servers, until_end=True) as reader:
        assert sorted(message.body for batch in reader for message in batch) == [b"a", b"b"]
