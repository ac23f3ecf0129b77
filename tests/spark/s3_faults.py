"""Runs in a bucket while S3 fails, drawn by a number: which run, what fails, at which of its requests and for how long.

Used by the campaign. What is demanded of every run, whatever failed: it is right in the end, or nothing of it is there
and its report says why; a run that gave up is right when it is repeated without the fault.
"""

from __future__ import annotations

import gc
import itertools
import logging
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from threading import Lock

import pyarrow as pa
from skipstone.query import ReadOptions, read
from skipstone.runs.load import run_load
from skipstone.runs.main import run_app
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.observe import run_observe
from skipstone.runs.reindex import run_reindex
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    ConsumePolicy,
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

from tests.s3proxy import Fault, Proxy, Refusal, s3_proxy
from tests.spark.index_bed import index_on
from tests.spark.merge_bed import DELETE_D, INSERT, UPDATE, task_of
from tests.spark.s3_bed import S3Bed

BY_ID = index_on("id")
RUNS = {RunKind.LOAD: run_load, RunKind.MERGE: run_merge, RunKind.REINDEX: run_reindex, RunKind.OBSERVE: run_observe}
ARROW = pa.schema([("id", pa.int64()), ("name", pa.string())])
STALL_SECONDS = 10.0
#: Attempts of a job, the last ones without a fault.
ATTEMPTS = 3


_LOG = logging.getLogger("skipstone.runs.main")


def _without_traceback(record: logging.LogRecord) -> bool:
    """Whoever keeps records, as pytest does, would keep the run's catalog and its connection with the traceback."""
    if record.exc_info:
        record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None  # type: ignore[arg-type]
    return True


class Work(Enum):
    """What runs."""

    LOAD = "load"
    MERGE = "merge, copy-on-write"
    MARK = "merge, merge-on-read"
    REINDEX = "reindex"
    COMPACT = "compaction of an index"
    OBSERVE = "observe"
    CONSUME = "consumption of a folder"


class Trouble(Enum):
    """What fails."""

    SLOW_DOWN = "503 SlowDown, a burst"
    FAILED = "500 after the server acted"
    LOST = "reset before the server acted"
    UNHEARD = "reset after the server acted"
    CUT = "cut body"
    STALL = "10 s stall"
    EXPIRED = "credentials expired"
    SKEWED = "clock skew"
    GONE = "bucket gone"
    FULL = "quota full"
    REPLACED = "source replaced while it is read"


_BURSTS = {one: Fault[one.name] for one in Trouble if one.name in Fault.__members__}
_REFUSALS = {one: Refusal[one.name] for one in Trouble if one.name in Refusal.__members__}
DONE = (RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED)
#: A word that the report of a run has which gave up.
SAID = {
    Trouble.EXPIRED: "expired",
    Trouble.SKEWED: "clock",
    Trouble.GONE: "bucket",
    Trouble.FULL: "room",
    Trouble.REPLACED: "changed|not the file|written, moved or replaced",
}


@dataclass(frozen=True)
class Draw:
    """One run. ``at``: the request at which the fault begins; ``times``: how many requests meet it."""

    number: int
    work: Work
    trouble: Trouble
    at: int
    times: int

    def __str__(self) -> str:
        """For progress and messages."""
        return f"{self.number}: {self.work.value}; {self.trouble.value} at request {self.at}, {self.times} times"


def draw(seed: int, number: int) -> Draw:
    """Every pair of work and fault has its turn; where in the run, chance says."""
    pairs = list(itertools.product(Trouble, Work))
    random.Random(seed).shuffle(pairs)
    trouble, work = pairs[number % len(pairs)]
    chance = random.Random(seed * 1_000_003 + number)
    at, times = chance.randint(1, 24), chance.randint(1, 5)
    if trouble is Trouble.STALL:
        times = 1
    if trouble in _REFUSALS:
        times = chance.choice([times, 10_000])
    return Draw(number, work, trouble, at, times)


@dataclass
class _Chooser:
    """Lets requests from the chosen one on meet the fault."""

    proxy: Proxy
    draw: Draw
    replace_source: Callable[[], None]
    seen: int = 0
    met: int = 0
    lock: Lock = field(default_factory=Lock)

    def choose(self, kind: str, _: str) -> Fault | Refusal | None:
        """What becomes of a request."""
        trouble = self.draw.trouble
        with self.lock:
            self.seen += trouble is not Trouble.FULL or kind == "PUT"
            at = max(1, self.draw.at // 4) if trouble is Trouble.FULL else self.draw.at
            if self.seen < at or self.met >= self.draw.times or (trouble is Trouble.FULL and kind != "PUT"):
                return None
            self.met += 1
        if trouble is Trouble.STALL:
            self.proxy.hold(STALL_SECONDS)
        if trouble is Trouble.REPLACED and self.met == 1:
            self.replace_source()
        return _BURSTS.get(trouble) or _REFUSALS.get(trouble)


class _Sink:
    """Takes reports."""

    def __init__(self) -> None:
        self.report: JobReport | None = None

    def show(self, report: str) -> None:
        """Nobody looks while it runs."""

    def finish(self, report: str, _: str) -> None:
        """The last one."""
        self.report = JobReport.from_json(report)


@dataclass
class Campaign:
    """One table and what must be in it. ``plain``: past every proxy."""

    plain: S3Bed
    folder: Path
    rows: dict[int, str] = field(default_factory=dict)
    made: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, drawn: Draw) -> str:
        """One run with its fault; how it ended. Raises AssertionError for whatever is wrong."""
        number = drawn.number
        before, after, request, source = self._prepare(drawn)
        result, rows = "as if nothing failed", after
        for attempt in range(1, ATTEMPTS + 1):
            with self._through_proxy() as bed:
                given = replace(
                    request, warehouse=bed.warehouse, attempt=attempt, run_id=f"{number:08d}-cafe-{attempt}"
                )
                chooser = _Chooser(self._proxy, drawn, lambda: self._replace(drawn, source))
                if attempt == 1:
                    self._proxy.choose = chooser.choose
                report = self._report(given)
                self._proxy.choose = None
            if (
                report.outcome in (RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED)
                or report.reason is Reason.OBSERVED
            ):
                break
            self._require_reason(drawn, report)
            result = f"gave up ({report.reason.value}), right when repeated"
            if report.outcome is RunOutcome.FAILED:
                result, rows = f"refused ({report.reason.value})", before
                break
        else:
            raise AssertionError(f"never done without the fault: {report.reason} {report.message}")
        self._require_rows(drawn, rows)
        return result

    def _prepare(self, drawn: Draw) -> tuple[dict[int, str], dict[int, str], JobRequest, str]:
        """Rows before and after, the request, and the file that is read."""
        number, before = drawn.number, dict(self.rows)
        uid = f"{next(self.made):08d}-{number:04d}-0000-0000-000000000000"
        path = f"in{number}/a.parquet"
        new = {number * 1000 + at: f"n{number}" for at in range(3)}
        if drawn.work in (Work.LOAD, Work.CONSUME):
            self._put(path, new)
            consumes = {"consume": ConsumePolicy.NEW, "consumer": f"c{number}"} if drawn.work is Work.CONSUME else {}
            source = SourceSpec(format=SourceFormat.PARQUET, paths=(f"in{number}",), **consumes)  # type: ignore[arg-type]
            return before, before | new, self._request(RunKind.LOAD, uid, load=LoadTask(source=source)), path
        if drawn.work in (Work.MERGE, Work.MARK):
            return before, *self._merge(drawn, uid, path)
        if drawn.work is Work.OBSERVE:
            task = ObserveTask(tables=(ObservedTable(table=self.plain.ref, indexes=(BY_ID,)),))
            return before, before, self._request(RunKind.OBSERVE, uid, observe=task), path
        for at in range(9 if drawn.work is Work.COMPACT else 1):
            self.append({number * 1000 + 500 + at: f"s{at}"}, uid, at)
            if drawn.work is Work.COMPACT and at < 8:
                self.index()
        rows = dict(self.rows)
        return rows, rows, self._request(RunKind.REINDEX, uid, reindex=ReindexTask(index=BY_ID)), path

    def _merge(self, drawn: Draw, uid: str, path: str) -> tuple[dict[int, str], JobRequest, str]:
        mode = "copy-on-write" if drawn.work is Work.MERGE else "merge-on-read"
        with self.plain.table().transaction() as change:
            change.set_properties({"write.merge.mode": mode})
        chance = random.Random(drawn.number)
        changed, gone = chance.sample(sorted(self.rows), 2)
        feed = {changed: f"m{drawn.number}", drawn.number * 1000 + 900: "new"}
        rows = [{"id": key, "name": name, "op": "U"} for key, name in feed.items()]
        rows.append({"id": gone, "name": "", "op": "D"})
        self.plain.put(path, pa.Table.from_pylist(rows))
        task = task_of(f"in{drawn.number}", when_matched=(DELETE_D, UPDATE), when_not_matched=(INSERT,))
        after = {key: name for key, name in (self.rows | feed).items() if key != gone}
        return after, self._request(RunKind.MERGE, uid, merge=task), path

    def _put(self, path: str, rows: dict[int, str]) -> None:
        table = pa.table({"id": list(rows), "name": list(rows.values())}, schema=ARROW)
        self.plain.put(path, table)

    def _replace(self, drawn: Draw, path: str) -> None:
        """Another row, unless there is no source."""
        if drawn.work in (Work.MERGE, Work.MARK):
            self.plain.put(path, pa.Table.from_pylist([{"id": -drawn.number, "name": "replaced", "op": "U"}]))
        elif drawn.work in (Work.LOAD, Work.CONSUME):
            self._put(path, {-drawn.number: "replaced"})

    def append(self, rows: dict[int, str], uid: str, at: int) -> None:
        """One segment, without a fault."""
        self._put(f"seg/{uid}/{at}/a.parquet", rows)
        self.plain.load(SourceSpec(format=SourceFormat.PARQUET, paths=(f"seg/{uid}/{at}",)))
        self.rows |= rows

    def index(self) -> None:
        """Bring the index up to date, without a fault."""
        uid = f"{next(self.made):08d}-9999-0000-0000-000000000000"
        report = self._report(self._request(RunKind.REINDEX, uid, reindex=ReindexTask(index=BY_ID)))
        assert report.outcome in (RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED), report

    def _request(self, kind: RunKind, uid: str, **task: object) -> JobRequest:
        return self.plain.request(kind, uid, indexes=(BY_ID,), **task)

    @contextmanager
    def _through_proxy(self) -> Iterator[S3Bed]:
        """A bed of an endpoint of its own: nothing that an earlier run remembers has its name."""
        with s3_proxy(self.plain.bucket.endpoint) as proxy:
            self._proxy = proxy
            bed = S3Bed(replace(self.plain.bucket, endpoint=proxy.endpoint), self.plain.server)
            yield bed
            bed.catalog.close()
        gc.collect()  # a run's process would end here, and its connections to the catalog with it

    def _report(self, request: JobRequest) -> JobReport:
        path = self.folder / "request.json"
        path.write_text(request.to_json())
        sink = _Sink()
        _LOG.addFilter(_without_traceback)
        run_app(request.kind, RUNS[request.kind], {"SKIPSTONE_REQUEST": str(path)}, sink)  # type: ignore[arg-type]
        assert sink.report is not None
        return sink.report

    def _require_reason(self, drawn: Draw, report: JobReport) -> None:
        assert report.reason not in (Reason.DRIVER_FAILED, Reason.INVALID_SPEC), (drawn, report)
        wanted = SAID.get(drawn.trouble, ".")
        assert re.search(wanted, report.message, re.IGNORECASE), (drawn, report.reason, report.message)

    def _require_rows(self, drawn: Draw, rows: dict[int, str]) -> None:
        """Every row once; the index knows what a full scan knows; every live file is there."""
        with self._through_proxy() as bed:
            table = bed.table()
            found = table.scan().to_arrow().sort_by("id").to_pylist()
            told = {row["id"]: row["name"] for row in found}
            if drawn.trouble is Trouble.REPLACED and -drawn.number in told:
                rows = {**self.rows, -drawn.number: "replaced"}
            assert len(told) == len(found), f"{drawn}: rows are doubled"
            assert told == rows, f"{drawn}: {set(told.items()) ^ set(rows.items())}"
            keys = random.Random(drawn.number).sample(sorted(told), min(2, len(told)))
            condition = f"id in ({', '.join(map(str, keys))})"
            answer = read(table, None, condition, ReadOptions()).to_pylist()
            assert {row["id"]: row["name"] for row in answer} == {key: told[key] for key in keys}, drawn
            assert len(answer) == len(keys), drawn
        self.rows = told
