"""The cases of the merge benchmark and their feeds: full images of changed rows, as change data capture sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from skipstone_core.contract.requests import MergeAction, MergeClause

from tests.bench.lineitem import say
from tests.bench.merge_engines import OP, Case
from tests.bench.merge_tables import FILTERED, GROUPED, ID, LINES, NUMBERS, ORDERS, UUIDS, Bed, Target, keyed
from tests.bench.peers import is_wanted

UPDATE = MergeClause(action=MergeAction.UPDATE)
DELETE = MergeClause(action=MergeAction.DELETE)
DELETE_D = MergeClause(action=MergeAction.DELETE, when=f"source.{OP} = 'D'")
INSERT = MergeClause(action=MergeAction.INSERT)
SEED = 5
#: Rises with every change of feeds.
FEEDS = 2
#: Files that a case touches at least, if the table has as many: fewer are written again before the cores are busy.
FEWEST = 4
#: The case of keys in no order, on files with bloom filters and without an index.
BLOOM = "bloom filters of random UUIDs"
Files = Sequence[Path]
#: The name of a case, and what makes it.
Maker = tuple[str, Callable[[], Case]]


@dataclass
class Feeds:
    """Makes feeds of one scale, once each."""

    bed: Bed
    #: Of targets that cases were made for, by name.
    files: dict[str, list[Path]] = field(default_factory=dict)

    def cases(self, only: str = "") -> list[Case]:
        """All cases, or those that ``only`` selects; tables and feeds are made for these."""
        return [make() for name, make in self._makers() if is_wanted(name, only)]

    def _makers(self) -> Iterator[Maker]:
        both = {"when_matched": (DELETE_D, UPDATE), "when_not_matched": (INSERT,)}
        yield self._maker("recent keys", LINES, self._recent, **both)
        yield self._maker("sparse keys", LINES, self._sparse, when_matched=(UPDATE,))
        yield self._maker("insert only", LINES, self._inserts, when_not_matched=(INSERT,))
        yield self._maker("delete only", LINES, self._sparse, when_matched=(DELETE,))
        upsert = {"when_matched": (UPDATE,), "when_not_matched": (INSERT,)}
        yield self._maker("uniform keys", LINES, self._uniform, **upsert)
        yield self._maker("composite key", LINES, self._sparse, (ORDERS, NUMBERS), when_matched=(UPDATE,))
        yield self._maker("string key with a key index", UUIDS, self._few_recent, when_matched=(UPDATE,))
        yield self._maker(BLOOM, FILTERED, self._one_percent, when_matched=(UPDATE,))
        yield "not matched by source, conditional", self._with_gone
        yield self._maker("sparse keys, eight row groups a file", GROUPED, self._sparse, when_matched=(UPDATE,))
        yield self._maker("uniform keys, deletes, all columns changed", LINES, self._rewritten, **both)

    def _maker(self, name: str, *of: Any, **clauses: tuple[MergeClause, ...]) -> Maker:
        return name, partial(self._case, name, *of, **clauses)

    def _with_gone(self) -> Case:
        """An extract that says which of the last rows are gone: those that it does not hold."""
        recent = pq.read_table(self._last(LINES)[0], columns=[ID])
        gone = MergeClause(action=MergeAction.DELETE, when=f"target.{ID} >= {pc.min(recent[ID]).as_py()}")
        clauses = {"when_matched": (UPDATE,), "when_not_matched": (INSERT,), "when_not_matched_by_source": (gone,)}
        return self._case("not matched by source, conditional", LINES, self._extract, **clauses)

    def _case(
        self,
        name: str,
        target: Target,
        feed: Callable[[Files, Target], Iterator[pa.Table]],
        keys: tuple[str, ...] = (),
        **clauses: tuple[MergeClause, ...],
    ) -> Case:
        folder = self.bed.root / "feeds" / f"{name.replace(' ', '-').replace(',', '')}-{FEEDS}"
        files = self._files(target)
        if not folder.exists():
            say(f"feed: {name}")
            rows = pa.concat_tables(feed(files, target))
            making = folder.with_name(f"making-{folder.name}")
            making.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, making / "part-0.parquet", compression="zstd")
            making.rename(folder)
        columns = tuple(pq.read_schema(files[0]).names)
        return Case(name=name, target=target, feed=folder, keys=keys or (target.key,), columns=columns, **clauses)

    def _files(self, target: Target) -> list[Path]:
        if target.name not in self.files:
            self.files[target.name] = self.bed.make(target)
        return self.files[target.name]

    def _last(self, target: Target) -> Files:
        """The last 2 % of files, and at least ``FEWEST``."""
        files = self._files(target)
        return files[-max(FEWEST, len(files) // 50) :]

    def _recent(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """A fifth of the rows of the last files changed, a tenth of these gone, and as many new ones."""
        for path in self._last(target):
            rows = _picked(path, 0.2)
            yield _with_op(_changed(rows), 0.1)
            yield _with_op(_new(rows, target), 0.0)

    def _few_recent(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """Twenty rows of each of the last files."""
        for path in self._last(target):
            yield _with_op(_changed(_picked(path, 20)), 0.0)

    def _sparse(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """Twenty rows of every tenth file."""
        for path in files[:: max(1, min(10, len(files)))]:
            yield _with_op(_changed(_picked(path, 20)), 0.0)

    def _one_percent(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """Twenty rows of each of one file in a hundred, and of at least ``FEWEST``, from all over the table."""
        step = max(1, len(files) // max(FEWEST, len(files) // 100))
        for path in files[step // 2 :: step]:
            yield _with_op(_changed(_picked(path, 20)), 0.0)

    def _inserts(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """Rows with keys after all others."""
        for path in self._last(target):
            yield _with_op(_new(_picked(path, 0.2), target), 0.0)

    def _uniform(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """One row in a thousand of every file and some new ones; where rows are deleted it is a tenth of them."""
        for path in files:
            rows = _picked(path, 0.001)
            yield _with_op(_changed(rows), 0.1)
        yield _with_op(_new(rows, target), 0.0)

    def _rewritten(self, files: Files, target: Target) -> Iterator[pa.Table]:
        for rows in self._uniform(files, target):
            yield _all_changed(rows, target)

    def _extract(self, files: Files, target: Target) -> Iterator[pa.Table]:
        """All rows of the last files but a hundredth, a tenth of them changed."""
        for path in self._last(target):
            rows = _picked(path, 0.99)
            tenth = rows.num_rows // 10
            yield _with_op(pa.concat_tables([_changed(rows.slice(0, tenth)), rows.slice(tenth)]), 0.0)


def _picked(path: Path, share: float) -> pa.Table:
    """A share of the rows of a file, or so many of them."""
    rows = pq.read_table(path).replace_schema_metadata(None)
    count = int(share) if share >= 1 else int(rows.num_rows * share)
    chance = np.random.default_rng(SEED)
    plain = pa.schema([field.remove_metadata() for field in rows.schema])
    return rows.cast(plain).take(np.sort(chance.choice(rows.num_rows, count, replace=False)))


def _changed(rows: pa.Table) -> pa.Table:
    """What an order's change changes: a quantity, a price, a date and a way."""
    rows = _set(rows, "l_quantity", _plus(rows["l_quantity"], 1))
    rows = _set(rows, "l_extendedprice", _plus(rows["l_extendedprice"], 7))
    rows = _set(rows, "l_shipdate", _plus(pc.cast(rows["l_shipdate"], pa.int32()), 3))
    return _set(rows, "l_shipmode", pa.repeat("DRONE", rows.num_rows))


def _plus(column: pa.ChunkedArray, number: int) -> pa.ChunkedArray:
    return pc.add(column, pa.scalar(Decimal(number) if pa.types.is_decimal(column.type) else number, column.type))


def _all_changed(rows: pa.Table, target: Target) -> pa.Table:
    """Another value in every column but the key."""
    for name in rows.schema.names:
        if name in (target.key, OP):
            continue
        column = rows[name]
        if pa.types.is_string(column.type):
            rows = _set(rows, name, pc.binary_join_element_wise(column, "x", ""))
        else:
            number = pc.cast(column, pa.int32()) if pa.types.is_date(column.type) else column
            rows = _set(rows, name, _plus(number, 1))
    return rows


def _new(rows: pa.Table, target: Target) -> pa.Table:
    """The rows once more under keys that follow all others."""
    orders = pc.add(rows[ORDERS], 1_000_000_000)
    moved = _set(rows.drop_columns([target.key]), ORDERS, orders)
    return keyed(moved, target).cast(rows.schema)


def _set(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pc.cast(values, rows.schema.field(at).type))


def _with_op(rows: pa.Table, deleted: float) -> pa.Table:
    """Every so many rows are marked as deleted, all others as changed."""
    marks = np.full(rows.num_rows, "U")
    if deleted:
        marks[:: round(1 / deleted)] = "D"
    return rows.append_column(OP, pa.array(marks))
