"""Compaction: the small folders that batches write for a day become one.

A day has a folder for each batch, ``batch=7``. Those of batches that Spark has committed are copied to one folder,
``batch=-8`` for all up to 7, and removed. Spark repeats only the batch that it has not committed, which is never among
them. After a crash between the copy and the removal both are there until the next batch removes the copied folders.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDERS_MAX: Final = 60
"""Number of folders at which a day that is not over is compacted."""
_MARK: Final = "batch="
_ASIDE: Final = "_compacting"


class Plan(NamedTuple):
    """A compaction of a day's folder.

    Attributes:
        copied: folders that have been copied to another already: only to be removed.
        joined: folders to copy; empty if that is not worth it.
        into: the folder that they become.
    """

    copied: list[str]
    joined: list[str]
    into: str


def plan(names: Iterable[str], below: int, *, is_over: bool) -> Plan:
    """The compaction of a day's folders.

    Args:
        names: its folders.
        below: the number of the batch that is being written; those before it are committed.
        is_over: whether later days have begun.
    """
    numbers = {int(name.removeprefix(_MARK)): name for name in names if name.startswith(_MARK)}
    until = -min(numbers, default=0) - 1  # of the newest copy; -1 without one
    copied = [name for number, name in numbers.items() if -until - 1 < number <= until]
    rest = {number: name for number, name in numbers.items() if name not in copied and number < below}
    if len(rest) < (2 if is_over else FOLDERS_MAX):
        return Plan(sorted(copied), [], "")
    return Plan(sorted(copied), sorted(rest.values()), f"{_MARK}{-max(rest) - 1}")


def compact(spark: SparkSession, folder: str, partition: str, newest: str, below: int) -> None:
    """Compacts the days below a folder that are over or have many folders.

    Args:
        folder: where ``partition=DAY/batch=N`` lie.
        partition: the name of the column of days.
        newest: the newest day of the batch: those before it are over.
        below: the number of the batch.
    """
    files = Files(spark, folder)
    for day in files.names(""):
        if not day.startswith(f"{partition}="):
            continue
        todo = plan(files.names(day), below, is_over=day < f"{partition}={newest}")
        for name in todo.copied:
            files.remove(f"{day}/{name}")
        if todo.joined:
            aside = f"{_ASIDE}/{day}"
            rows = spark.read.parquet(*[f"{folder}/{day}/{name}" for name in todo.joined])
            rows.coalesce(1).write.mode("overwrite").parquet(f"{folder}/{aside}")
            files.rename(aside, f"{day}/{todo.into}")
            for name in todo.joined:
                files.remove(f"{day}/{name}")


class Files:
    """Folders of any file system that Spark writes to.

    Args:
        folder: what all names are below.
    """

    def __init__(self, spark: Any, folder: str) -> None:
        from penstock.telemetry.outputs import java

        self._paths = java(spark).org.apache.hadoop.fs.Path
        self._folder = folder
        self._system = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def names(self, below: str) -> list[str]:
        """The names in a folder; none where it is missing."""
        path = self._path(below)
        if not self._system.exists(path):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system.listStatus(path))

    def rename(self, old: str, new: str) -> None:
        """Gives a folder a name that no other has."""
        if not self._system.rename(self._path(old), self._path(new)):
            raise OSError(f"{self._folder}/{old} cannot be renamed to {new}")

    def remove(self, name: str) -> None:
        """Removes a folder with all that is in it."""
        self._system.delete(self._path(name), True)

    def claim(self, name: str, text: str) -> str:
        """Writes a file unless it exists; returns its text."""
        path = self._path(name)
        if not self._system.exists(path):
            out = self._system.create(path)
            out.writeUTF(text)
            out.close()
        file = self._system.open(path)
        try:
            return str(file.readUTF())
        finally:
            file.close()

    def _path(self, name: str) -> Any:
        return self._paths(f"{self._folder}/{name}" if name else self._folder)
