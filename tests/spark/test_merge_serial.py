"""Two merges at once give what one after the other gives, in one of the two orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeTask

from tests.spark.merge_bed import AtSwap, MergeBed, Row, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType()), NestedField(3, "seq", LongType()))
MODES = ["copy-on-write", "merge-on-read"]


@dataclass(frozen=True)
class Merge:
    """A merge of some rows."""

    rows: Sequence[tuple[int, int, int]]
    options: dict[str, Any] = field(default_factory=dict)

    def task(self, bed: MergeBed, name: str) -> MergeTask:
        """As a run takes it."""
        return task_of(bed.source(rows(*self.rows), name), **self.options)


@dataclass(frozen=True)
class Case:
    """A table, one data file for each list of rows, and two merges."""

    files: Sequence[Sequence[tuple[int, int, int]]]
    one: Merge
    other: Merge


def rows(*values: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([row(*one) for one in values], schema=pa.schema([(n, pa.int64()) for n in COLUMNS]))


COLUMNS = ("id", "v", "seq")


def row(*values: int) -> Row:
    return dict(zip(COLUMNS, values, strict=True))


def when(action: MergeAction, condition: str) -> dict[str, Any]:
    return {"when_matched": (MergeClause(action=action, when=condition),)}


#: Keys far apart, so that files do not overlap; more rows in a file, so that one changed row leaves it in place.
FILES = [[(1, 10, 10), (2, 0, 0), (3, 0, 0)], [(101, 1, 1), (102, 0, 0), (103, 0, 0)]]
RAISE = when(MergeAction.UPDATE, "source.v > target.v")
#: With inserts: what the other deletes comes back, so the order shows.
DROP = when(MergeAction.DELETE, "target.v >= source.v")
CASES = {
    "each keeps, by its condition, the row that the other changes": Case(
        FILES, Merge([(1, 0, 0), (101, 5, 5)], RAISE), Merge([(1, 10, 10), (101, 5, 5)], DROP)
    ),
    "each keeps, as later than its change, the row that the other changes": Case(
        FILES,
        Merge([(1, 0, 0), (101, 5, 5)], {"sequence_by": "seq", "target_sequence": "seq"}),
        Merge([(1, 10, 10), (101, 5, 5)], DROP),
    ),
    "both insert the same key": Case(
        FILES, Merge([(7, 1, 1)], {"when_matched": ()}), Merge([(7, 2, 2)], {"when_matched": ()})
    ),
    "both change the same row": Case(FILES, Merge([(1, 11, 11)], RAISE), Merge([(1, 12, 12)], RAISE)),
    "both are planned on an empty table": Case(
        [], Merge([(1, 1, 1), (2, 1, 1)], RAISE), Merge([(2, 0, 0), (3, 0, 0)], RAISE)
    ),
}


@contextmanager
def opened(root: Path, case: Case, mode: str) -> Iterator[MergeBed]:
    root.mkdir()
    bed = MergeBed(root)
    bed.create(SCHEMA, **{"write.merge.mode": mode})
    if case.files:
        bed.append(*([row(*one) for one in file] for file in case.files))
    yield bed
    bed.catalog.close()


def run(bed: MergeBed, merge: Merge, name: str, before_swap: Callable[[], None] | None = None) -> None:
    report = bed.merge(merge.task(bed, name), ports=CommitPorts(hooks=AtSwap(before=before_swap)))
    assert report.outcome is RunOutcome.COMMITTED, report.message


def one_after_the_other(root: Path, case: Case, mode: str, merges: Sequence[Merge]) -> list[str]:
    with opened(root, case, mode) as bed:
        for number, merge in enumerate(merges):
            run(bed, merge, f"feed{number}")
        return bed.rows()


def one_within_the_other(root: Path, case: Case, mode: str, merges: Sequence[Merge]) -> list[str]:
    """The second plans and commits after the first has planned and before it commits."""
    outer, inner = merges
    with opened(root, case, mode) as bed:
        run(bed, outer, "outer", lambda: run(bed, inner, "inner"))
        return bed.rows()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_two_merges_give_what_some_order_gives(tmp_path: Path, case: Case, mode: str) -> None:
    orders = [(case.one, case.other), (case.other, case.one)]
    serial = [one_after_the_other(tmp_path / f"serial{n}", case, mode, order) for n, order in enumerate(orders)]
    for number, order in enumerate(orders):
        assert one_within_the_other(tmp_path / f"within{number}", case, mode, order) in serial
