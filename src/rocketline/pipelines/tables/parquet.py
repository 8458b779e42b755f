"""Tables as folders of Parquet files.

    DIR/orders/rows/part=N/day=.../*.parquet   a part: the rows of a batch, or of parts that were merged into it
    DIR/orders/notes/slot=0, slot=1            which parts count, and the position; the two are written in turn

A part counts when a note says so. Notes that are written while a run is killed leave the one before. What a killed run
leaves among the parts is replaced by the next one, under the same number. Only one job may write such a table.

Ten parts of about the same size are merged into one, up to parts of ten million rows. So a row is written again a few times
at most, and there are never many small parts. Parts that were merged are removed with the next merge: whoever reads them
has until then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.formats import GROWS, NOTHING, Past, State, is_missing, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ALIKE = 10
"""So many parts, of sizes with as many digits, are merged."""

LARGE_ROWS = 10_000_000
"""A part of so many rows is left alone."""

FILE_ROWS = 5_000_000
_NOTE = "number bigint, note string"


class _Part(NamedTuple):
    number: int
    rows: int


@dataclass(frozen=True)
class _Note:
    """What counts."""

    number: int = -1
    """Notes before this one."""
    state: State = NOTHING
    columns: StructType | None = None
    parts: tuple[_Part, ...] = ()
    merged: tuple[int, ...] = ()
    """Parts that are in others now, and will be removed."""
    last: int = -1
    """The highest number that a part ever had."""

    def to_text(self) -> str:
        columns = None if self.columns is None else self.columns.jsonValue()
        content = {"parts": self.parts, "merged": self.merged, "last": self.last, "columns": columns}
        return json.dumps({**json.loads(self.state.to_text()), **content}, separators=(",", ":"))

    @staticmethod
    def of(number: int, text: str, path: str) -> _Note:
        from pyspark.sql.types import StructType

        content = json.loads(text)
        columns = StructType.fromJson(content["columns"]) if content["columns"] else None
        parts = tuple(_Part(*part) for part in content["parts"])
        return _Note(number, State.of(text, path), columns, parts, tuple(content["merged"]), content["last"])


class ParquetTable:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self._known: _Note | None = None
        """The newest note, once it was read or written."""

    def state(self) -> State:
        return self._newest().state

    def read(self) -> DataFrame | None:
        note = self._newest()
        if note.columns is None:
            return None
        return self._rows(note.parts, note.columns)

    def past(self, as_of: str) -> Past | None:
        raise ConfigError("--as-of needs --format delta or iceberg: tables of parquet keep no history")

    def append(self, rows: DataFrame, next_state: State) -> None:
        note = self._known or self._newest()
        added = self._write(rows, note.last + 1)
        parts = (*note.parts, added) if added.rows else note.parts
        self._note(replace(note, state=next_state, columns=rows.schema, parts=parts, last=added.number))

    def merge(self, rows: DataFrame, next_state: State, key: Sequence[str], deleted: str) -> None:
        raise ConfigError(GROWS)

    def tidy(self, batch: int) -> None:
        while parts := _alike((self._known or self._newest()).parts):
            self._merge(parts)

    def compact(self) -> None:
        parts = [part for part in self._newest().parts if part.rows < LARGE_ROWS]
        if len(parts) > 1:
            self._merge(parts)

    def _merge(self, parts: Sequence[_Part]) -> None:
        note = self._known
        assert note is not None
        assert note.columns is not None
        for number in note.merged:
            self._remove(number)
        rows = self._rows(parts, note.columns)
        merged = self._write(rows.repartition("day"), note.last + 1)
        others = tuple(part for part in note.parts if part not in parts)
        gone = tuple(part.number for part in parts)
        self._note(replace(note, parts=(*others, merged), merged=gone, last=merged.number))

    def _rows(self, parts: Sequence[_Part], columns: StructType) -> DataFrame:
        if not parts:
            return self._spark.createDataFrame([], columns)
        reader = self._spark.read.schema(columns).option("basePath", f"{self.path}/rows")
        return reader.parquet(*(self._folder(part.number) for part in parts)).select(*map(quoted, columns.names))

    def _write(self, rows: DataFrame, number: int) -> _Part:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        counted = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
        writer = counted.write.mode("overwrite").partitionBy("day").option("maxRecordsPerFile", FILE_ROWS)
        writer.parquet(self._folder(number))
        return _Part(number, seen.get["rows"])

    def _note(self, note: _Note) -> None:
        """Make a note count, by a file that appears as a whole."""
        note = replace(note, number=note.number + 1)
        line = self._spark.createDataFrame([(note.number, note.to_text())], _NOTE)
        line.coalesce(1).write.mode("overwrite").json(f"{self.path}/notes/slot={note.number % 2}")
        self._known = note

    def _newest(self) -> _Note:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        # One of the two may be written anew while they are read.
        reader = self._spark.read.schema(_NOTE).option("ignoreMissingFiles", "true")
        try:
            found = reader.json(f"{self.path}/notes").orderBy(f.desc("number")).head()
        except AnalysisException as error:
            if not is_missing(error):
                raise
            found = None
        self._known = _Note() if found is None else _Note.of(found.number, found.note, self.path)
        return self._known

    def _folder(self, number: int) -> str:
        return f"{self.path}/rows/part={number}"

    def _remove(self, number: int) -> None:
        """Remove a part; over Connect there is no file system to do it with, and an empty folder stays."""
        jvm = getattr(self._spark, "_jvm", None)
        if jvm is None:
            self._spark.createDataFrame([], "day date").write.mode("overwrite").parquet(self._folder(number))
            return
        folder = jvm.org.apache.hadoop.fs.Path(self._folder(number))
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        folder.getFileSystem(configuration).delete(folder, True)


def _alike(parts: Sequence[_Part]) -> list[_Part]:
    """Parts that are worth being merged: enough of them have about the same size.

    >>> [part.rows for part in _alike([_Part(n, 20 + n % 2 * 500) for n in range(19)])]
    [20, 20, 20, 20, 20, 20, 20, 20, 20, 20]
    """
    by_size: dict[int, list[_Part]] = {}
    for part in parts:
        if part.rows < LARGE_ROWS:
            by_size.setdefault(len(str(part.rows)), []).append(part)
    return next((alike for _, alike in sorted(by_size.items()) if len(alike) >= ALIKE), [])
