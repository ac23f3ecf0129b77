"""The runs of `make bench-memory`, each in a process of its own: `python -m tests.bench.memory_runs FOLDER KIND WHO`.

``prepare`` makes the table and the source of a kind in a folder; the process runs it and prints its peak of memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv, orc
from skipstone.query import read
from skipstone.runs.load import run_load
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.arrow import arrow_schema
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    ChangeFormat,
    IndexRef,
    JobRequest,
    MergeTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
)

from tests.spark.index_bed import index_on
from tests.spark.load_bed import Bed
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE, task_of

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("n", pa.int64()), pa.field("txt", pa.string())])
#: Texts that differ: files hold each once, whatever the number of rows.
DISTINCT = 30
#: Keys that merges concern, and that reads ask for.
FEW = 100
#: Values that Arrow writes into a page at least, however long they are.
_PAGE_ROWS = 1024
_ON_READ = {"write.merge.mode": "merge-on-read"}
PYICEBERG = "PyIceberg"
OURS = "Skipstone"


@dataclass(frozen=True)
class Texts:
    """What a file holds: ``rows``, each with one of a few texts of ``length`` bytes; or (``own``) one of its own."""

    length: int
    rows: int
    own: bool = False

    def dictionary(self) -> pa.Array:
        """The texts."""
        return pa.array([f"{number:04d}".ljust(self.length, chr(97 + number % 26)) for number in range(DISTINCT)])

    def table(self, start: int = 0, rows: int | None = None) -> pa.Table:
        """Rows with keys from ``start`` on, texts as a dictionary."""
        keys = range(start, start + (self.rows if rows is None else rows))
        codes = pa.array([key % DISTINCT for key in keys], pa.int32())
        texts = pa.DictionaryArray.from_arrays(codes, self.dictionary())
        return pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(keys, pa.int64()), "txt": texts})

    def parts(self) -> Iterator[pa.Table]:
        """The rows in pieces of about 16 MiB, texts as texts."""
        whole, step = self.table(), max(1, (16 << 20) // max(self.length, 64))
        for start in range(0, self.rows, step):
            part = whole.slice(start, step)
            if self.own:
                part = part.set_column(
                    2, "txt", pa.array([f"{key:012d}".ljust(self.length) for key in part["k"].to_pylist()])
                )
            yield part.cast(SCHEMA)


@dataclass(frozen=True)
class Kind:
    """A kind of run. ``make``: its table and source, in a bed; ``peer``: PyIceberg's way to the same rows.

    ``page_rows``: texts in each page of the file, where these are more than a few: readers unpack pages as a whole.
    """

    make: Callable[[MaintainBed, Texts], None]
    run: Callable[[MaintainBed], int]
    peer: Callable[[MaintainBed], None] | None = None
    page_rows: int = 0


def _file(bed: MaintainBed, rows: pa.Table, name: str) -> str:
    """Write a Parquet file as other writers do, texts in a dictionary."""
    path = bed.root / "files" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # without a limit Arrow gives up dictionaries of long texts
    pq.write_table(rows, path, store_schema=False, dictionary_pagesize_limit=1 << 30, row_group_size=1 << 30)
    return str(path)


def _table(bed: MaintainBed, *files: pa.Table, **properties: str) -> None:
    table = bed.catalog.create_table(bed.ref.identifier, SCHEMA, properties={"format-version": "2", **properties})
    table.add_files([_file(bed, rows, f"part-{number}.parquet") for number, rows in enumerate(files)])


def _one_file(bed: MaintainBed, texts: Texts) -> None:
    _table(bed, texts.table())


def _two_files(bed: MaintainBed, texts: Texts) -> None:
    half = texts.rows // 2
    _table(bed, texts.table(0, half), texts.table(half, half))


def _changes(bed: MaintainBed, **columns: Any) -> None:
    bed.source(pa.table({"k": pa.array(range(5, 5 + FEW), pa.int64()), **columns}))


def _with_changes(bed: MaintainBed, texts: Texts, **properties: str) -> None:
    _table(bed, texts.table(), **properties)
    _changes(bed, n=pa.array(range(FEW), pa.int64()))


def _empty(bed: MaintainBed) -> None:
    bed.catalog.create_table(bed.ref.identifier, SCHEMA, properties={"format-version": "2"})


def _from_texts(bed: MaintainBed, texts: Texts) -> None:
    """A merge into short texts of a source that repeats long ones."""
    _table(bed, Texts(1, texts.rows).table())
    pq.write_table(texts.table(), _feed_path(bed, "changes"), store_schema=False, dictionary_pagesize_limit=1 << 30)


def _a_third_from_texts(bed: MaintainBed, texts: Texts) -> None:
    """As ``_from_texts``, for so few rows that they are deleted by position."""
    _table(bed, Texts(1, texts.rows).table(), **_ON_READ)
    rows = texts.table(0, texts.rows // 3)
    pq.write_table(rows, _feed_path(bed, "changes"), store_schema=False, dictionary_pagesize_limit=1 << 30)


def _feed_path(bed: MaintainBed, name: str, ending: str = "parquet") -> Path:
    path = bed.root / "feeds" / name / f"20260101-000000000.{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _parquet(bed: MaintainBed, texts: Texts) -> None:
    _empty(bed)
    pq.write_table(texts.table(), _feed_path(bed, "load"), store_schema=False, dictionary_pagesize_limit=1 << 30)


def _write_orc(path: Path, texts: Texts) -> None:
    with orc.ORCWriter(str(path), compression="zstd", dictionary_key_size_threshold=0 if texts.own else 1) as out:
        for part in texts.parts():
            out.write(part)


def _orc(bed: MaintainBed, texts: Texts) -> None:
    _empty(bed)
    _write_orc(_feed_path(bed, "load", "orc"), texts)


def _from_orc(bed: MaintainBed, texts: Texts) -> None:
    _table(bed, Texts(1, texts.rows).table())
    _write_orc(_feed_path(bed, "changes", "orc"), texts)


def _one_group(path: Path, *parts: Texts) -> None:
    """Write a Parquet file of one row group without dictionaries: the rows of some texts, one after the other."""
    chunks = [chunk for texts in parts for chunk in _chunks(texts)]
    keys = pa.array(range(sum(map(len, chunks))), pa.int64())
    rows = pa.table({"k": keys, "n": keys, "txt": pa.chunked_array(chunks)})
    pq.write_table(rows, path, store_schema=False, use_dictionary=False, compression="zstd", row_group_size=1 << 30)


def _chunks(texts: Texts) -> Iterator[pa.Array]:
    """Texts in pieces, in dictionaries: what writes them makes texts of one piece at a time."""
    if texts.own:
        yield from (part["txt"].chunk(0).dictionary_encode() for part in texts.parts())
        return
    column = texts.table()["txt"].chunk(0)
    yield from (column.slice(start, _PAGE_ROWS) for start in range(0, len(column), _PAGE_ROWS))


def _own(make: Callable[[MaintainBed, Texts], None]) -> Callable[[MaintainBed, Texts], None]:
    """The same for rows with a text of their own."""
    return lambda bed, texts: make(bed, replace(texts, own=True))


def _uneven(bed: MaintainBed, texts: Texts) -> None:
    """Long texts between a million short ones, in one row group of a data file."""
    path, short = bed.root / "files" / "part-0.parquet", Texts(8, 500_000)
    path.parent.mkdir(parents=True)
    _one_group(path, short, texts, short)
    bed.catalog.create_table(bed.ref.identifier, SCHEMA, properties={"format-version": "2"}).add_files([str(path)])
    _changes(bed, n=pa.array(range(FEW), pa.int64()))


def _from_own_texts(bed: MaintainBed, texts: Texts) -> None:
    _table(bed, Texts(1, texts.rows).table())
    _one_group(_feed_path(bed, "changes"), replace(texts, own=True))


def _write_as_usual(path: Path, texts: Texts) -> None:
    """Rows with a text of their own in one row group as PyArrow writes them: all in a dictionary, or the first ones."""
    rows = pa.concat_tables(replace(texts, own=True).parts())
    pq.write_table(rows, path, compression="zstd", row_group_size=1 << 30)


def _load_of_usual(bed: MaintainBed, texts: Texts) -> None:
    _empty(bed)
    _write_as_usual(_feed_path(bed, "load"), texts)


def _changes_of_usual(bed: MaintainBed, texts: Texts) -> None:
    _empty(bed)
    path = bed.root / "files" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    _write_as_usual(path, texts)
    bed.table().add_files([str(path)])
    _changes(bed, n=pa.array(range(FEW), pa.int64()))


def _csv(bed: MaintainBed, texts: Texts) -> None:
    _empty(bed)
    with (
        pa.CompressedOutputStream(str(_feed_path(bed, "load", "csv.gz")), "gzip") as sink,
        csv.CSVWriter(sink, SCHEMA) as out,
    ):
        for part in texts.parts():
            out.write(part)


def _json(bed: MaintainBed, texts: Texts) -> None:
    _empty(bed)
    with pa.CompressedOutputStream(str(_feed_path(bed, "load", "json.gz")), "gzip") as sink:
        for part in texts.parts():
            lines = (json.dumps(row) for row in part.to_pylist())
            sink.write(("\n".join(lines) + "\n").encode())


def _avro(bed: MaintainBed, texts: Texts) -> None:
    import fastavro

    _empty(bed)
    fields = [{"name": name, "type": kind} for name, kind in (("k", "long"), ("n", "long"), ("txt", "string"))]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    with _feed_path(bed, "load", "avro").open("wb") as sink:
        rows = (row for part in texts.parts() for row in part.to_pylist())
        fastavro.writer(sink, schema, rows, codec="deflate")


def _dms(bed: MaintainBed, texts: Texts) -> None:
    _table(bed, Texts(1, texts.rows).table())
    rows = texts.table()
    rows = rows.add_column(0, "Op", pc.if_else(pc.equal(rows["k"], 7), "D", "U"))
    pq.write_table(rows, _feed_path(bed, "changes"), store_schema=False, dictionary_pagesize_limit=1 << 30)


def _debezium(bed: MaintainBed, texts: Texts) -> None:
    _table(bed, Texts(1, texts.rows).table())
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "name": "x"}
    with pa.CompressedOutputStream(str(_feed_path(bed, "changes", "json.gz")), "gzip") as sink:
        for part in texts.parts():
            messages = (
                {"op": "u", "after": row, "source": {**source, "lsn": row["k"] + 1, "txId": 1, "snapshot": "false"}}
                for row in part.to_pylist()
            )
            sink.write("".join(json.dumps(one) + "\n" for one in messages).encode())


# --- runs ---


def _ended(report: JobReport) -> JobReport:
    if report.outcome is not RunOutcome.COMMITTED:
        raise RuntimeError(f"the run ended with {report}")
    return report


def _merge(bed: MaintainBed, task: MergeTask, share: DriverShare = USUAL_SHARE) -> int:
    request = bed.request(task)
    report = _ended(run_merge(request, Reporter(request), share=share))
    return report.counts["rowsUpdated"] + report.counts["rowsDeleted"]


def _update(bed: MaintainBed, share: DriverShare = USUAL_SHARE) -> int:
    return _merge(bed, task_of("feeds/changes", keys=("k",), when_not_matched=()), share)


def _update_from(bed: MaintainBed, kind: SourceFormat) -> int:
    source = SourceSpec(format=kind, paths=("feeds/changes",))
    return _merge(bed, task_of("", keys=("k",), source=source, when_not_matched=()), NO_SHARE)


def _delete(bed: MaintainBed) -> int:
    return _merge(bed, task_of("feeds/changes", keys=("k",), when_matched=(DELETE,), when_not_matched=()))


def _feed(bed: MaintainBed, tool: ChangeFormat, kind: SourceFormat, share: DriverShare = USUAL_SHARE) -> int:
    source = SourceSpec(format=kind, paths=("feeds/changes",), change_format=tool)
    return _merge(bed, task_of("", keys=("k",), source=source, when_matched=(), when_not_matched=()), share)


def _load(bed: MaintainBed, kind: SourceFormat, share: DriverShare = USUAL_SHARE) -> int:
    options = {"header": "true"} if kind is SourceFormat.CSV else {}
    asked = Bed(bed.root).request(SourceSpec(format=kind, paths=("feeds/load",), options=options))
    return _ended(run_load(asked, Reporter(asked), share=share)).counts["rowsLoaded"]


def _loads(kind: SourceFormat, share: DriverShare = USUAL_SHARE) -> Callable[[MaintainBed], int]:
    return lambda bed: _load(bed, kind, share)


def _compact(bed: MaintainBed) -> int:
    request = bed.compaction()
    run_maintain(request, Reporter(request))
    return len(bed.paths())


def _reindex(bed: MaintainBed, index: IndexRef) -> int:
    request = JobRequest(
        kind=RunKind.REINDEX,
        run_id="22222222-00000001-1",
        attempt=1,
        warehouse=bed.warehouse,
        owner_kind="SecondaryIndex",
        owner_name=index.name,
        owner_uid=index.uid,
        table=bed.ref,
        indexes=(index,),
        reindex=ReindexTask(index=index),
    )
    return _ended(run_reindex(request, Reporter(request))).counts["entries"]


def _read(bed: MaintainBed) -> int:
    return read(bed.table(), None, f"n < {FEW}").num_rows


# --- the same by PyIceberg ---


def _pyiceberg_append(bed: MaintainBed) -> None:
    (path,) = (bed.root / "feeds" / "load").iterdir()
    bed.table().append(pq.read_table(path).cast(arrow_schema(bed.table().schema())))


def _pyiceberg_delete(bed: MaintainBed) -> None:
    bed.table().delete(f"k >= 5 and k < {5 + FEW}")


def _pyiceberg_upsert(bed: MaintainBed) -> None:
    table = bed.table()
    rows = table.scan().to_arrow()
    changed = pc.and_(pc.greater_equal(rows["k"], 5), pc.less(rows["k"], 5 + FEW))
    table.overwrite(rows.set_column(1, "n", pc.if_else(changed, pc.subtract(rows["k"], 5), rows["n"])))


def _pyiceberg_overwrite(bed: MaintainBed) -> None:
    table = bed.table()
    table.overwrite(table.scan().to_arrow())


def _pyiceberg_read(bed: MaintainBed) -> None:
    bed.table().scan(row_filter=f"n < {FEW}").to_arrow()


KINDS: Mapping[str, Kind] = {
    "load, Parquet": Kind(_parquet, _loads(SourceFormat.PARQUET), _pyiceberg_append),
    "load, Parquet, own texts, as PyArrow writes them": Kind(_load_of_usual, _loads(SourceFormat.PARQUET)),
    "load, Parquet, own texts, as PyArrow writes them, in Spark": Kind(
        _load_of_usual, _loads(SourceFormat.PARQUET, NO_SHARE)
    ),
    "load, Parquet, in Spark": Kind(_parquet, _loads(SourceFormat.PARQUET, NO_SHARE)),
    "load, ORC, own texts, in Spark": Kind(_own(_orc), _loads(SourceFormat.ORC, NO_SHARE)),
    "load, Csv, own texts, in Spark": Kind(_own(_csv), _loads(SourceFormat.CSV, NO_SHARE)),
    "load, Json, own texts, in Spark": Kind(_own(_json), _loads(SourceFormat.JSON, NO_SHARE)),
    "load, Avro, own texts, in Spark": Kind(_own(_avro), _loads(SourceFormat.AVRO, NO_SHARE)),
    "load, Avro": Kind(_avro, _loads(SourceFormat.AVRO)),
    "load, Avro, in Spark": Kind(_avro, _loads(SourceFormat.AVRO, NO_SHARE)),
    "load, ORC, in Spark": Kind(_orc, _loads(SourceFormat.ORC, NO_SHARE)),
    "load, Csv": Kind(_csv, _loads(SourceFormat.CSV)),
    "load, Csv, own texts": Kind(_own(_csv), _loads(SourceFormat.CSV)),
    "load, Csv, in Spark": Kind(_csv, _loads(SourceFormat.CSV, NO_SHARE)),
    "load, Json": Kind(_json, _loads(SourceFormat.JSON)),
    "load, Json, own texts": Kind(_own(_json), _loads(SourceFormat.JSON)),
    "load, Json, in Spark": Kind(_json, _loads(SourceFormat.JSON, NO_SHARE)),
    "merge, copy-on-write, deletes": Kind(_with_changes, _delete, _pyiceberg_delete),
    "merge, copy-on-write, deletes, long texts in the middle of a row group": Kind(
        _uneven, _delete, page_rows=_PAGE_ROWS
    ),
    "merge, copy-on-write, deletes, own texts, as PyArrow wrote them": Kind(
        _changes_of_usual, _delete, _pyiceberg_delete
    ),
    "merge, copy-on-write, updates": Kind(_with_changes, _update, _pyiceberg_upsert),
    "merge, merge-on-read": Kind(lambda bed, texts: _with_changes(bed, texts, **_ON_READ), _update, _pyiceberg_upsert),
    "merge, all rows get a long text": Kind(_from_texts, _update),
    "merge, merge-on-read, a third of the rows gets a long text": Kind(_a_third_from_texts, _update),
    "merge, all rows get a long text, in Spark": Kind(_from_texts, lambda bed: _update(bed, NO_SHARE)),
    "merge, all rows get a text of their own": Kind(_from_own_texts, _update),
    "merge, all rows get a text of their own, in Spark": Kind(_from_own_texts, lambda bed: _update(bed, NO_SHARE)),
    "merge, ORC, all rows get a long text, in Spark": Kind(_from_orc, lambda bed: _update_from(bed, SourceFormat.ORC)),
    "merge, ORC, all rows get a text of their own, in Spark": Kind(
        _own(_from_orc), lambda bed: _update_from(bed, SourceFormat.ORC)
    ),
    "compaction": Kind(_two_files, _compact, _pyiceberg_overwrite),
    "reindex": Kind(_one_file, lambda bed: _reindex(bed, index_on("k"))),
    "reindex, including the column": Kind(_one_file, lambda bed: _reindex(bed, index_on("k", include=("txt",)))),
    "change feed, Dms in Parquet": Kind(_dms, lambda bed: _feed(bed, ChangeFormat.DMS, SourceFormat.PARQUET)),
    "change feed, Dms in Parquet, in Spark": Kind(
        _dms, lambda bed: _feed(bed, ChangeFormat.DMS, SourceFormat.PARQUET, NO_SHARE)
    ),
    "change feed, Debezium": Kind(_debezium, lambda bed: _feed(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON)),
    "read": Kind(_one_file, _read, _pyiceberg_read),
}


def prepare(root: Path, kind: str, texts: Texts) -> int:
    """Make the table and the source of a kind; bytes of the files that hold texts."""
    bed = MaintainBed(root)
    KINDS[kind].make(bed, texts)
    return max(path.stat().st_size for folder in ("files", "feeds") for path in (root / folder).rglob("*.*"))


def _peaks() -> int:
    """Bytes of memory that this process and those that it started took at most, each at its own time."""
    return sum(_peak(pid) for pid in _family())


def _has_jvm() -> bool:
    """Whether this process started Spark, which stays until it ends."""
    return any(_program(pid) == "java" for pid in _family())


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:  # it ended meanwhile
        return ""


def _family() -> set[int]:
    """This process, and all below it."""
    parents = {int(one.name): _parent(one) for one in Path("/proc").iterdir() if one.name.isdigit()}
    found, more = set(), {int(Path("/proc/self").readlink().name)}
    while more - found:
        found |= more
        more |= {pid for pid, parent in parents.items() if parent in found}
    return found


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmHWM"].split()[0]) * 1024 if "VmHWM" in status else 0


def main() -> None:
    """Run one kind and print what it took."""
    root, name, who = sys.argv[1:4]
    bed, kind, started, rows = MaintainBed(Path(root)), KINDS[name], time.perf_counter(), 0
    if who == OURS:
        rows = kind.run(bed)
    elif kind.peer is not None:
        kind.peer(bed)
    seconds = round(time.perf_counter() - started, 2)
    print(json.dumps({"peak": _peaks(), "rows": rows, "seconds": seconds, "jvm": _has_jvm()}))


if __name__ == "__main__":
    main()
