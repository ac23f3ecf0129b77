"""What a load does in each Spark task: good rows into data files, bad ones counted, kept as examples or redirected.

Called by the load run. Every task answers with one row; only answers that the driver receives count.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from skipstone_core.contract.badrecords import BadRecordPolicy

from skipstone.files.writer import DataFileWriter, WriteSpec
from skipstone.sources.arrow import table_batch
from skipstone.sources.reading import ERROR_COLUMN, FILE_COLUMN, RECORD_COLUMN, UNUSED_COLUMN
from skipstone.sources.rejects import RejectPart, RejectPlace
from skipstone.sources.unused import add_up, merged_counts

ANSWER_DDL = "answer binary not null"
MAX_EXAMPLES = 3
_ANSWER = pa.schema([pa.field("answer", pa.binary(), nullable=False)])


@dataclass(frozen=True, kw_only=True)
class LoadSpec:
    """All that a task needs: picklable. ``token`` differs between drivers, so that two never share a file name.

    ``rejects``: None unless rows are redirected. ``counted``: what UNUSED_COLUMN of the rows is about.
    """

    write: WriteSpec
    policy: BadRecordPolicy
    token: str
    rejects: RejectPlace | None = None
    counted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """One bad row: where it is and what is wrong with it, never what it holds."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskAnswer:
    """The answer of one task. ``written``: rows as ``WrittenFile.to_row`` makes them. ``reject_part``: in the storage.

    ``read``: rows that it was given; ``unused``: how many of them have a value, by column that nothing uses.
    """

    partition: int
    written: tuple[bytes, ...] = ()
    read: int = 0
    unused: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    examples: tuple[Example, ...] = ()
    reject_part: str | None = None


@dataclass
class _Rejects:
    """The bad rows of one task; ``part``: where they are written, if they are kept."""

    part: RejectPart | None
    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def take(self, bad: pa.RecordBatch) -> None:
        """Count, keep the first ones, write them down when a part is given."""
        self.count += bad.num_rows
        # the record of a bad row may hold bytes that are not text
        records = bad.column(RECORD_COLUMN).cast(pa.binary()).to_pylist()
        for row, raw in zip(bad.select([FILE_COLUMN, ERROR_COLUMN]).to_pylist(), records, strict=True):
            record = (raw or b"").decode(errors="replace")
            if len(self.examples) < MAX_EXAMPLES:
                self.examples.append(Example(row[FILE_COLUMN] or "", row[ERROR_COLUMN]))
            if self.part is not None:
                self.part.write({"file": row[FILE_COLUMN], "reason": row[ERROR_COLUMN], "record": record})

    def close(self) -> str | None:
        """Put the part into the storage; its path when there is one."""
        return self.part.close() if self.part is not None else None

    def abort(self) -> None:
        """Leave nothing."""
        if self.part is not None:
            self.part.abort()


def load_kernel(spec: LoadSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: takes rows as ``read_table_rows`` gives them, answers once per task."""

    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answer = pickle.dumps(_load_partition(spec, batches))
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], schema=_ANSWER)

    return kernel


def opened_answer(answer: bytes) -> TaskAnswer:
    """Read the answer of one of our own tasks."""
    content = pickle.loads(answer)
    if not isinstance(content, TaskAnswer):
        raise TypeError(f"a load task answered {type(content).__name__}")
    return content


def load_here(spec: LoadSpec, rows: Iterable[pa.Table]) -> TaskAnswer:
    """Write ``rows``, all of them good, in this process. Raises what reading them raises, and leaves nothing then."""
    writer = DataFileWriter(spec.write, f"here-{spec.token}")
    read = 0
    try:
        for part in rows:
            read += part.num_rows
            writer.write(part)
        return TaskAnswer(partition=0, written=tuple(file.to_row() for file in writer.close()), read=read)
    except BaseException:
        writer.abort()
        raise


def _load_partition(spec: LoadSpec, batches: Iterable[pa.RecordBatch]) -> TaskAnswer:
    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    name = f"{partition:05d}-{attempt}-{spec.token}"
    writer = DataFileWriter(spec.write, name)
    rejects, taken = _Rejects(RejectPart(spec.rejects, name) if spec.rejects else None), _Taken(spec.counted)
    try:
        _split(spec, map(taken.noted, batches), writer, rejects)
        written = tuple(file.to_row() for file in writer.close())
        part = rejects.close()
    except BaseException:
        writer.abort()
        rejects.abort()
        raise
    return TaskAnswer(
        partition=partition,
        written=written,
        read=taken.read,
        unused=taken.unused,
        rejected=rejects.count,
        examples=tuple(rejects.examples),
        reject_part=part,
    )


@dataclass
class _Taken:
    """The input of a task: rows, and those of them with a value in columns ``counted``."""

    counted: tuple[str, ...]
    read: int = 0
    unused: Mapping[str, int] = field(default_factory=dict)

    def noted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """``batch``, counted."""
        self.read += batch.num_rows
        if self.counted:
            self.unused = merged_counts([self.unused, add_up(batch.column(UNUSED_COLUMN), self.counted)])
        return batch


def _split(spec: LoadSpec, batches: Iterable[pa.RecordBatch], writer: DataFileWriter, rejects: _Rejects) -> None:
    """Good rows to the writer, bad ones to the rejects; a load that must fail anyway writes nothing more."""
    for batch in batches:
        is_good = pc.is_null(batch.column(ERROR_COLUMN))
        if not pc.all(is_good, min_count=0).as_py():
            rejects.take(batch.filter(pc.invert(is_good)))
            batch = batch.filter(is_good)
        if batch.num_rows and not (rejects.count and spec.policy is BadRecordPolicy.FAIL):
            writer.write(table_batch(batch, writer.arrow_schema))
