"""Requests to S3 for the same work, ours beside Iceberg in Spark, through one counting proxy: `make bench-requests`.

Prints a table and writes build/bench/requests.jsonl: for each case the requests by kind and the bytes of bodies, and
``ratio`` = requests of the peer / ours. Ours runs in processes of its own, as pods do, that find decoded manifests on
their machine where the case says warm; the peer is a warm Spark session that reads and writes by S3FileIO.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import skipstone
from pyspark.sql import SparkSession
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.observe import run_observe
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.requests import (
    JobRequest,
    LoadTask,
    ObservedTable,
    ObserveTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.reasons import Reason

from tests.bench.lineitem import say
from tests.bench.results import FOLDER, keep, show_goals, verdict
from tests.bench.s3lake import S3Lake, in_own_process, s3_lake
from tests.s3proxy import Seen
from tests.spark.index_bed import index_on
from tests.spark.merge_bed import task_of

RESULTS = FOLDER / "requests.jsonl"
FILES, PER_COMMIT, ROWS = 400, 10, 2_000
TOUCHED = 4
RUNS = {RunKind.LOAD: run_load, RunKind.MERGE: run_merge, RunKind.REINDEX: run_reindex, RunKind.OBSERVE: run_observe}
BY_PART = index_on("part")
Work = Callable[[], object]


@dataclass(frozen=True)
class Traffic:
    """What came by. ``sent`` and ``received``: bytes of bodies, as the client sees them."""

    requests: int
    kinds: dict[str, int]
    sent: int
    received: int


@dataclass(frozen=True)
class Case:
    """The same work twice."""

    name: str
    ours: Work
    theirs: Work


def main() -> None:
    """Run all cases."""
    with s3_lake() as lake:
        say(f"{FILES} files of {ROWS} rows in {FILES // PER_COMMIT} segments")
        _make(lake)
        for case in _Cases(lake).all():
            print(_shown(keep(RESULTS, _line(case, lake))), flush=True)
    show_goals(RESULTS)


def _make(lake: S3Lake) -> None:
    """The same rows as one table for ours and one for the peer; ours has an index on a column in no order."""
    for name in ("t", "peer"):
        lake.make(name, [rows_of(number) for number in range(FILES)], PER_COMMIT, {"format-version": "2"})
    request = lake.direct.request(RunKind.REINDEX, indexes=(BY_PART,), reindex=ReindexTask(index=BY_PART))
    in_own_process(run_here, request)


def rows_of(number: int, rows: int = ROWS) -> pa.Table:
    """A file: ids in order, parts in no order, and some weight."""
    ids = np.arange(number * rows, (number + 1) * rows)
    parts = ids * 2_654_435_761 % (FILES * rows)
    weight = np.random.default_rng(number).random((4, rows))
    columns = {f"w{at}": weight[at] for at in range(len(weight))}
    return pa.table({"id": ids, "part": parts, "name": [f"n{one}" for one in ids], **columns})


def run_here(request: JobRequest) -> None:
    """A run. Raises RuntimeError unless it did what was asked for."""
    report = RUNS[request.kind](request, Reporter(request))  # type: ignore[operator]
    if report.reason not in (Reason.COMMITTED, Reason.OBSERVED):
        raise RuntimeError(f"the run ended as {report.reason}: {report.message}")


class _Cases:
    def __init__(self, lake: S3Lake) -> None:
        self._lake = lake
        self._spark: SparkSession = lake.session()
        self._spark.sql(f"select count(*) from {lake.name('peer')}").collect()

    def all(self) -> Iterator[Case]:
        """In their order: the first one has decoded nothing yet."""
        yield Case("load of one file", self._load, self._insert)
        yield Case("merge touching 4 of 400 files", self._merge, self._merge_into)
        yield Case("merge touching 4 of 400 files, on read", self._merge, self._merge_into)
        yield Case("reindex of one segment", self._reindex, self._ordered)
        yield Case("observe run", self._observe, self._inspect)
        for name in ("first of a session", "next ones"):
            yield Case(f"point lookup, {name}", self._lookup("t"), self._select("peer"))

    def _run(self, kind: RunKind, **task: Any) -> None:
        in_own_process(run_here, self._lake.bed.request(kind, indexes=(BY_PART,), **task))

    def _view(self, path: str) -> None:
        self._spark.read.parquet(self._lake.address(path)).createOrReplaceTempView("source")

    def _sql(self, text: str) -> list[Any]:
        return self._spark.sql(text).collect()

    def _load(self) -> None:
        source = SourceSpec(format=SourceFormat.PARQUET, paths=("in/a.parquet",))
        self._run(RunKind.LOAD, load=LoadTask(source=source))

    def _insert(self) -> None:
        self._view("in/a.parquet")
        self._sql(f"insert into {self._lake.name('peer')} select * from source")

    def _merge(self) -> None:
        self._run(RunKind.MERGE, merge=task_of("changes"))

    def _merge_into(self) -> None:
        self._view("changes/c.parquet")
        self._sql(
            f"merge into {self._lake.name('peer')} t using source s on t.id = s.id "
            "when matched then update set * when not matched then insert *"
        )

    def _reindex(self) -> None:
        self._run(RunKind.REINDEX, reindex=ReindexTask(index=BY_PART, max_segments=1))

    def _ordered(self) -> None:
        """The peer keeps no index: it writes the column of as many files in its order."""
        peer, bound = self._lake.name("peer"), (FILES - PER_COMMIT) * ROWS
        self._sql(
            f"create table {peer}_ordered using iceberg as select part from {peer} where id >= {bound} order by part"
        )

    def _observe(self) -> None:
        task = ObserveTask(tables=(ObservedTable(table=self._lake.bed.ref, indexes=(BY_PART,)),))
        self._run(RunKind.OBSERVE, observe=task)

    def _inspect(self) -> None:
        self._sql(f"select count(*), sum(record_count) from {self._lake.name('peer')}.files")

    def _lookup(self, table: str) -> Work:
        return lambda: skipstone.sql(self._spark, self._point(table)).collect()

    def _select(self, table: str) -> Work:
        return lambda: self._sql(self._point(table))

    def _point(self, table: str) -> str:
        self._next = getattr(self, "_next", 0) + 1
        return f"select * from {self._lake.name(table)} where part = {self._next * 7919 % (FILES * ROWS)}"


def _line(case: Case, lake: S3Lake) -> dict[str, Any]:
    _put_sources(case, lake)
    ours, theirs = (_counted(lake, work) for work in (case.ours, case.theirs))
    ratio = theirs.requests / ours.requests
    return {
        "case": case.name,
        "ours": asdict(ours),
        "peers": {"iceberg": asdict(theirs)},
        "ratio": ratio,
        "bytes_ratio": (theirs.sent + theirs.received) / max(1, ours.sent + ours.received),
    }


def _put_sources(case: Case, lake: S3Lake) -> None:
    lake.direct.put("in/a.parquet", rows_of(FILES))
    ids = [number * FILES // TOUCHED * ROWS + 7 * at for number in range(TOUCHED) for at in range(20)]
    changed = pa.concat_tables(rows_of(number * FILES // TOUCHED).slice(0, 140) for number in range(TOUCHED))
    keep = pa.array([one in set(ids) for one in changed["id"].to_pylist()])
    lake.direct.put("changes/c.parquet", changed.filter(keep).set_column(2, "name", pa.array([case.name] * len(ids))))
    mode = "merge-on-read" if "on read" in case.name else "copy-on-write"
    for name in ("t", "peer"):
        with lake.direct.catalog.load_table((lake.bed.namespace, name)).transaction() as change:
            change.set_properties({"write.merge.mode": mode})


def _counted(lake: S3Lake, work: Work) -> Traffic:
    lake.proxy.forget()
    work()
    seen = list(lake.proxy.seen)
    if "--paths" in sys.argv:
        _tell(seen)
    kinds = Counter(one.kind for one in seen)
    return Traffic(len(seen), dict(sorted(kinds.items())), sum(s.sent for s in seen), sum(s.received for s in seen))


def _tell(seen: list[Seen]) -> None:
    """Every request, for who wants fewer."""
    for one in seen:
        path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", one.path)
        print(f"      {one.kind:<6} {path} sent {one.sent} received {one.received}")


def _shown(line: dict[str, Any]) -> str:
    ours, theirs = line["ours"], line["peers"]["iceberg"]

    def told(one: dict[str, Any]) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in one["kinds"].items())
        return f"{one['requests']} ({kinds}; {(one['sent'] + one['received']) / 1024:.0f} KiB)"

    return f"{line['case']:<42} ours {told(ours)}, Iceberg {told(theirs)}: {line['ratio']:.2f} {verdict(line)}"


if __name__ == "__main__":
    main()
