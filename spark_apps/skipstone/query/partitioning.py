"""Which files may hold rows that pass an engine's filter, judged by their partition values and by nothing else.

Called by who plans scans for clients that answer from the list of files alone, such as counts of a partition: what
Iceberg's inclusive projection of a filter rules out is ruled out. Each distinct partition is judged once. Must not
read bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import FixedType, PrimitiveType
from skipstone_core.errors import BadSpec
from skipstone_core.keys import KeyType
from skipstone_core.language.filters import (
    IDENTITY,
    AllOf,
    Always,
    AnyOf,
    ColumnTest,
    Filter,
    Never,
    Term,
    Unjudged,
    columns_of,
    leaves,
)
from skipstone_core.reasons import Reason

from skipstone.compat.pyiceberg import field_ids
from skipstone.query.partitions.projecting import FieldProjection
from skipstone.query.partitions.values import Mask, ValueColumn
from skipstone.tables.filesets import FileSet


@dataclass(frozen=True)
class PartitionVerdict:
    """``mask``: one boolean per file, whether its partition may hold a row that passes."""

    mask: Mask


def partition_mask(
    tree: Filter, files: FileSet, table: Table, *, is_trusted: bool = True, zeros_differ: bool = True
) -> PartitionVerdict:
    """Judge all of ``files`` by their partitions, each by its own spec.

    ``zeros_differ`` False: the client takes 0.0 and -0.0 for equal, as SQL does, and tests no row; others may get files
    of one zero for the other, and test rows. Raises BadSpec when ``tree`` has a part that nobody can judge, of a column
    that partitions depend on, and the answer ``is_trusted``: the client reads no rows where the list of files alone
    tells it how many there are.
    """
    specs = table.specs()
    judges = {spec_id: _Judge(table, specs[spec_id], zeros_differ=zeros_differ) for spec_id in files.spec_ids}
    if is_trusted:
        _refuse_unjudged(tree, judges.values())
    tree = _without_nulls(tree, _required(files.schema) & _required(table.schema()))
    values = _values_of(files)
    keep = np.ones(values.count, np.bool_)
    for spec_id, numbers in values.by_spec.items():
        if isinstance(tree, Never) or judges[spec_id].sources & columns_of(tree):
            keep[numbers] = judges[spec_id].evaluate(tree, values.of(spec_id))
    return PartitionVerdict(keep[values.of_files])


def require_partitions_read_alike(table: Table) -> None:
    """Raise BadSpec for a table with partition values of a fixed type: Iceberg's Java library writes their length too.

    Others, PyIceberg among them, take what such a manifest says for something else.
    """
    for spec in table.specs().values():
        for part in spec.fields:
            source = _source(part, [table.schema(), *table.schemas().values()])
            if source is not None and isinstance(part.transform.result_type(source), FixedType):
                why = (
                    f"the table is partitioned by {part.name}, of the type {source}, which libraries of Iceberg do not "
                    "write alike; let the client plan reads of it (scan-planning-mode client)"
                )
                raise BadSpec(Reason.INVALID_SPEC, why)


def _required(schema: Schema) -> frozenset[int]:
    return frozenset(column.field_id for column in schema.fields if column.required)


def _without_nulls(tree: Filter, required: frozenset[int]) -> Filter:
    """``tree`` where ``required`` columns are not null: what Iceberg knows of them, and clients rely on."""
    match tree:
        case AllOf():
            parts = [_without_nulls(part, required) for part in tree.parts]
            return Never() if any(isinstance(part, Never) for part in parts) else AllOf(tuple(parts))
        case AnyOf():
            parts = [_without_nulls(part, required) for part in tree.parts]
            return Never() if all(isinstance(part, Never) for part in parts) else AnyOf(tuple(parts))
        case ColumnTest(Term(field_id), "is-null") if field_id in required:
            return Never()
    return tree


def _refuse_unjudged(tree: Filter, judges: Iterable[_Judge]) -> None:
    sources = frozenset().union(*(judge.sources for judge in judges))
    for leaf in leaves(tree):
        if isinstance(leaf, Unjudged) and leaf.field_ids & sources:
            why = (
                f"{leaf.what} cannot be judged, and the table is partitioned by it: leave this part out of the filter, "
                "or plan the scan in the client"
            )
            raise BadSpec(Reason.INVALID_SPEC, why, field="filter")


class _Judge:
    """Judges partitions of one spec."""

    def __init__(self, table: Table, spec: PartitionSpec, *, zeros_differ: bool) -> None:
        self._zeros_differ = zeros_differ
        schemas = [table.schema(), *table.schemas().values()]
        self._fields = [
            (place, part.source_id, FieldProjection(part.transform, source))
            for place, part in enumerate(spec.fields)
            if not isinstance(part.transform, VoidTransform | UnknownTransform)
            and (source := _source(part, schemas)) is not None
        ]
        self.sources = frozenset(source_id for _, source_id, _ in self._fields)

    def evaluate(self, tree: Filter, columns: _Columns) -> Mask:
        """Which partitions may hold a row that passes."""
        match tree:
            case AllOf():
                return reduce(np.logical_and, (self.evaluate(part, columns) for part in tree.parts))
            case AnyOf():
                return reduce(np.logical_or, (self.evaluate(part, columns) for part in tree.parts))
            case ColumnTest():
                return self._test(tree, columns)
            case Never():
                return np.zeros(columns.count, np.bool_)
            case Always() | Unjudged():
                return np.ones(columns.count, np.bool_)

    def _test(self, test: ColumnTest, columns: _Columns) -> Mask:
        mask = np.ones(columns.count, np.bool_)
        for place, source_id, projection in self._fields:
            if source_id != test.term.field_id:
                continue
            if test.term.transform != IDENTITY and (applied := projection.applied(test.term.transform)):
                mask &= columns.applied(place, applied, test)
            elif (projected := projection.project(test)) and projection.kind:
                column = columns.column(place, projection.kind)
                passes = column.passes(replace(projected, zeros_differ=self._zeros_differ))
                mask &= passes | projection.uncertain(test, column)
        return mask


def _source(part: PartitionField, schemas: Sequence[Schema]) -> PrimitiveType | None:
    """The newest type of the column that a partition field is of."""
    for schema in schemas:
        if part.source_id in field_ids(schema):
            kind = schema.find_type(part.source_id)
            return kind if isinstance(kind, PrimitiveType) else None
    return None


@dataclass(frozen=True)
class _Columns:
    """Values of the partitions of one spec, by the place of the field."""

    count: int
    values: tuple[tuple[object, ...], ...]
    _known: dict[tuple[int, KeyType], ValueColumn] = field(default_factory=dict)

    def column(self, place: int, kind: KeyType) -> ValueColumn:
        column = self._known.get((place, kind))
        if column is None:
            column = self._known[place, kind] = ValueColumn(self.values[place], kind)
        return column

    def applied(self, place: int, projection: FieldProjection, test: ColumnTest) -> Mask:
        """Which values pass a test on what a transform makes of them."""
        projected, kind = projection.project(test), projection.kind
        if projected is None or kind is None:
            return np.ones(self.count, np.bool_)
        return ValueColumn(projection.values_of(self.values[place]), kind).passes(projected)


class _PartitionValues:
    """The distinct partitions of a file set, column by column; kept as long as the file set is."""

    def __init__(self, files: FileSet) -> None:
        partitions, self.of_files = files.partitions()
        self.count = len(partitions)
        spec_ids = np.fromiter((each.spec_id for each in partitions), np.int64, self.count)
        self.by_spec = {spec_id: np.flatnonzero(spec_ids == spec_id) for spec_id in np.unique(spec_ids).tolist()}
        self._columns = {
            spec_id: _Columns(len(numbers), tuple(zip(*(partitions[number].values for number in numbers), strict=True)))
            for spec_id, numbers in self.by_spec.items()
        }

    def of(self, spec_id: int) -> _Columns:
        """The partitions of one spec."""
        return self._columns[spec_id]


_known: WeakKeyDictionary[FileSet, _PartitionValues] = WeakKeyDictionary()


def _values_of(files: FileSet) -> _PartitionValues:
    values = _known.get(files)
    if values is None:
        values = _known[files] = _PartitionValues(files)
    return values
