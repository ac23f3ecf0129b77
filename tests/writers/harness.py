"""What Skipstone does with a table that another engine wrote: looked at, indexed, asked, merged into, compacted.

The rows are known from the start, as a reference engine reads them without a filter. What each step must leave is
computed from these, and each step's rows are read by our reader and, if there is a session, by plain Spark. Called by
the soak and by the test of recorded tables.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.types import TimestamptzType
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone.runs.observe import run_observe
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import JobReport, RunOutcome, TableState
from skipstone_core.contract.requests import (
    IndexRef,
    JobRequest,
    MergeAction,
    MergeClause,
    ObservedTable,
    ObserveTask,
    RunKind,
    TableRef,
)
from skipstone_core.errors import SkipstoneError
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import rows_of, task_of
from tests.spark.secondengine import second_spark
from tests.writers.conditions import conditions, matching

#: Where every writer has a folder.
PLACES = Path("/tmp/skipstone-writers")
NAMESPACE, KEY, GONE = "ns", "id", "op_"
#: How many conditions are asked of Spark and PyIceberg, which is to say what they cannot read.
ASKED = 6
MODES = ("copy-on-write", "merge-on-read")


@dataclass(frozen=True)
class Place:
    """A table as its writer left it: ``metadata`` is the path of its metadata file, below ``root``."""

    root: Path
    name: str
    metadata: str


@dataclass
class Findings:
    """What became of one table. ``steps``: what went well; ``refused``, ``wrong``: sentences by step.

    ``engines``: what another engine cannot do with the table as it was written.
    """

    name: str
    rows: int = 0
    steps: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: value for name, value in asdict(self).items() if value or name == "rows"}


class Refused(Exception):
    """Skipstone refuses a step, with a sentence."""


class Wrong(Exception):
    """Rows, or counts, are not those of the reference."""


class WriterBed(MaintainBed):
    """A bed whose table has been registered under a name of its own."""

    name = "t"

    @property
    def ref(self) -> TableRef:
        """The table as requests carry it."""
        return TableRef(namespace=self.namespace, name=self.name, uid="11111111-aaaa-bbbb-cccc-000000000000")


class Check:
    """The steps on one table, one after another."""

    def __init__(self, place: Place, spark: SparkSession | None = None, reference: pa.Table | None = None) -> None:
        """Register the table. ``reference``: its rows; read with Spark or PyIceberg if not given."""
        self.bed = WriterBed(place.root)
        self.bed.name = place.name.replace("-", "_")
        self.lake = Lake(place.root)
        self.spark, self.found = spark, Findings(place.name)
        self.spark_opens = spark is not None
        self.session = second_spark(spark, self.bed.warehouse) if spark is not None else None
        table = self.bed.catalog.register_table(self.bed.ref.identifier, place.metadata)
        self.rows = self._reference(table) if reference is None else reference
        self.found.rows = len(self.rows)
        self.indexes: list[IndexRef] = []

    def run(self) -> Findings:
        """All steps; a step that fails does not keep the next one from being tried."""
        if self.spark is not None:
            self._step("engines", self._ask_engines)
        self._step("observe", self._observe)
        self._step("read", self._compare)
        for name, columns, include in self._wanted():
            self._step(f"index {name}", lambda n=name, c=columns, i=include: self._index(n, c, i))
        self._step(f"{len(conditions(self.rows))} conditions", self._ask)
        for mode in MODES:
            self._step(f"merge {mode}", lambda m=mode: self._merge(m))
        self._step("catch up", self._catch_up)
        self._step("compaction", self._compact)
        self._step("conditions afterwards", lambda: self._ask_all(conditions(self.rows)[1::3]))
        self.bed.catalog.close()
        self.lake.catalog.close()
        return self.found

    def _step(self, name: str, do: Callable[[], None]) -> None:
        try:
            do()
        except (SkipstoneError, Refused) as error:
            self.found.refused[name] = _line(error)
        except Exception as error:  # noqa: BLE001 - whatever comes out of a step is a finding
            self.found.wrong[name] = f"{type(error).__name__}: {_line(error)}"
        else:
            self.found.steps.append(name)

    def _reference(self, table: Table) -> pa.Table:
        """All rows as Spark reads them without a filter, else as PyIceberg does."""
        if self.spark is not None:
            try:
                return self._spark_rows("")
            except Exception as error:  # noqa: BLE001 - it may not open the table at all
                self.found.engines["Spark"] = f"cannot open the table: {_line(error)}"
                self.spark_opens = False
        return table.scan().to_arrow()

    def _spark_rows(self, condition: str) -> pa.Table:
        """The rows that plain Spark finds under ``condition``; all if it is empty."""
        assert self.session is not None
        frame = self.session.table(f"{self.bed.warehouse.catalog.name}.{NAMESPACE}.{self.bed.name}")
        return (frame.where(condition) if condition else frame).toArrow()

    def _ask_engines(self) -> None:
        """What Spark and PyIceberg cannot read of the table; never wrong, as that is not for us to say."""
        asked = [one for one in conditions(self._plain()) if "price" not in one][:ASKED]
        if self.spark is not None and self.spark_opens:
            self._ask_engine("Spark", self._spark_rows, asked)
        self._ask_engine("PyIceberg", partial(_pyiceberg_rows, self.bed.table()), ["", *asked])

    def _ask_engine(self, engine: str, ask: Callable[[str], pa.Table], asked: Iterable[str]) -> None:
        failed, lost, said = [], [], ""
        for condition in asked:
            expected = matching(self.rows, condition) if condition else self.rows
            try:
                found = ask(condition)
            except Exception as error:  # noqa: BLE001 - told as it is
                failed.append(condition)
                said = said or f"{type(error).__name__}: {_line(error)}"
                if not condition:
                    break
                continue
            if len(found) != len(expected):
                lost.append(f"{condition or 'no condition'} ({len(found)} of {len(expected)} rows)")
        if failed and not failed[0]:
            self.found.engines[engine] = f"cannot read the table: {said}"
        elif failed or lost:
            parts = [f"{len(failed)} of {len(list(asked))} conditions fail ({said})"] if failed else []
            parts += (
                [f"{len(lost)} of {len(list(asked))} conditions give other rows, such as {lost[0]}"] if lost else []
            )
            self.found.engines[engine] = "; ".join(parts)

    def _plain(self) -> pa.Table:
        """The rows without nested and binary columns."""
        return self.rows.select([one.name for one in self.rows.schema if _is_plain(one.type)])

    def _wanted(self) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Indexes: on the key, covering; on two other columns."""
        others = [one.name for one in self._plain().schema if one.name != KEY]
        yield "key", (KEY,), tuple(others[:2])
        if others:
            yield "other", (others[0],), ()
        if len(others) > 2:
            yield "pair", (others[1], others[2]), ()

    def _observe(self) -> None:
        state = self._state()
        self.found.caveats = list(state.caveats)
        if state.problem is not None:
            raise Refused(state.message)

    def _state(self) -> TableState:
        observed = ObservedTable(table=self.bed.ref, indexes=tuple(self.indexes))
        request = JobRequest(
            kind=RunKind.OBSERVE,
            run_id="r-1",
            attempt=1,
            warehouse=self.bed.warehouse,
            owner_kind="Warehouse",
            owner_name="wh",
            owner_uid="u",
            observe=ObserveTask(tables=(observed,)),
        )
        (state,) = run_observe(request, Reporter(request)).table_states
        return state

    def _index(self, name: str, columns: tuple[str, ...], include: tuple[str, ...]) -> None:
        index = index_on(*columns, name=name, include=include)
        _require(self.lake.reindex(index, name=self.bed.name))
        self.indexes.append(index)
        self._require_synced()

    def _require_synced(self) -> None:
        for state in self._state().indexes:
            if state.segments_missing:
                raise Wrong(f"the index {state.name} lacks {state.segments_missing} segments: {state.message}")

    def _ask(self) -> None:
        self._ask_all(conditions(self.rows))

    def _ask_all(self, asked: Iterable[str]) -> None:
        table = self.bed.table()
        names = self.rows.column_names
        for condition in asked:
            _same(read(table, None, condition).select(names), matching(self.rows, condition), condition)

    def _compare(self) -> None:
        """All rows are those of the reference, for our reader and for Spark."""
        _same(read(self.bed.table()).select(self.rows.column_names), self.rows, "our reader")
        if self.spark is not None and self.spark_opens:
            _same(self._spark_rows(""), self.rows, "Spark")

    def _merge(self, mode: str) -> None:
        """Update three rows, delete one, insert two; everything else stays."""
        with self.bed.table().transaction() as transaction:
            transaction.set_properties({"write.merge.mode": mode})
        source, left = self._changes(mode)
        delete = MergeClause(action=MergeAction.DELETE, when=f"source.{GONE} = 'D'")
        path = self.bed.source(source, f"{self.bed.name}-{mode}")
        task = task_of(path, [(KEY, KEY)], when_matched=(delete, MergeClause(action=MergeAction.UPDATE)))
        _require(self.bed.merge(task))
        self.rows = left
        self.spark_opens = self.spark is not None  # a commit completes metadata that Spark refuses
        self._compare()

    def _changes(self, mode: str) -> tuple[pa.Table, pa.Table]:
        """The source of a merge, and the rows that it must leave."""
        plain = self._plain().schema
        before = self.rows.to_pylist()
        keyed = sorted((row for row in before if row[KEY] is not None), key=lambda row: row[KEY])
        first, taken = MODES.index(mode) * 5, len(keyed) // 11
        touched = [copy.copy(keyed[first + step * taken]) for step in range(4)]
        template, changes = keyed[first + 1], []
        for number, row in enumerate(touched):
            changed = {name: row[name] if name == KEY else template[name] for name in plain.names}
            changes.append({**changed, GONE: "D" if number == 3 else "U"})
        last = keyed[-1][KEY]
        changes += [{**{name: template[name] for name in plain.names}, KEY: last + step, GONE: "U"} for step in (1, 2)]
        after = {row[KEY]: row for row in before}
        for change in changes:
            key, is_gone = change[KEY], change[GONE] == "D"
            values = {name: change[name] for name in plain.names}
            if is_gone:
                del after[key]
            else:
                after[key] = {**dict.fromkeys(self.rows.column_names), **after.get(key, {}), **values}
        source = pa.Table.from_pylist(changes, schema=plain.append(pa.field(GONE, pa.string())))
        return source, pa.Table.from_pylist(list(after.values()), schema=self.rows.schema)

    def _catch_up(self) -> None:
        for index in self.indexes:
            _require(self.lake.reindex(index, name=self.bed.name))
        self._require_synced()
        self._ask_all(conditions(self.rows)[::3])

    def _compact(self) -> None:
        self.bed.policy = replace(self.bed.policy, delete_permille=1)
        step = self.bed.compact()
        if not step.is_done or step.reason is not Reason.COMMITTED:
            raise Refused(f"{step.reason.value}: {step.message}")
        if left := self.bed.files().delete_files:
            raise Wrong(f"{len(left)} delete files are left")
        self._compare()


def check_table(place: Place, spark: SparkSession | None = None, reference: pa.Table | None = None) -> Findings:
    """Run all steps on the table at ``place``."""
    return Check(place, spark, reference).run()


def reference_rows(place: Place, spark: SparkSession) -> pa.Table:
    """All rows of the table at ``place`` as the reference engine reads them; the catalog forgets the table again."""
    check = Check(place, spark)
    check.bed.catalog.drop_table(check.bed.ref.identifier)
    return check.rows


def _pyiceberg_rows(table: Table, condition: str) -> pa.Table:
    """The rows that PyIceberg finds; it writes times and dates as texts, and moments with an offset."""
    moments = {field.name for field in table.schema().fields if isinstance(field.field_type, TimestamptzType)}
    offset = "+00:00" if any(re.search(rf"\b{name}\b", condition) for name in moments) else ""
    told = re.sub(r"timestamp '(\S+) ([^']+)'", rf"'\1T\2{offset}'", condition).replace("date '", "'")
    return (table.scan(row_filter=told) if told else table.scan()).to_arrow()


def _require(report: JobReport) -> None:
    if report.outcome is not RunOutcome.COMMITTED:
        raise Refused(f"{report.reason.value}: {report.message}")


def _same(found: pa.Table, expected: pa.Table, what: str) -> None:
    mine, theirs = rows_of(found), rows_of(expected)
    if mine != theirs:
        odd = list(itertools.islice((one for one in mine if one not in set(theirs)), 1))
        lost = list(itertools.islice((one for one in theirs if one not in set(mine)), 1))
        raise Wrong(f"{what}: {len(mine)} rows, {len(theirs)} expected; too many {odd}, missing {lost}")


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _line(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    lines = [line for line in str(error if java is None else java.toString()).splitlines() if line.strip()]
    return lines[0].replace(str(PLACES), "…")[:600] if lines else ""
