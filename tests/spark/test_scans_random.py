"""Scans planned for engines, of random tables and filters, beside those of Iceberg's Java library: no file is lost.

Where Java's clients trust the list of files and test no row, the list has no file too many. Tables have files without
content; `make test` takes a few tables, `make soak-expressions` more of them, others each time.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable, Table
from pyspark.sql import SparkSession
from skipstone.query import ReadOptions
from skipstone.query.scans import ScanRequest, plan_scan
from skipstone_core.errors import BadSpec
from skipstone_core.language.filters import Unjudged, leaves

from tests.examples import cases
from tests.spark.javafilters import JavaPlanner, JavaScan
from tests.unit.filter_cases import KINDS, Column, Kind, read_of, rows
from tests.unit.filter_trees import cells_of, filter_trees, schema_json

_MOMENTS = ("year", "month", "day", "hour")
_TRANSFORMS = {
    "int": ("bucket[3]", "truncate[3]", "truncate[1000]"),
    "long": ("bucket[3]", "truncate[3]", "truncate[1000]"),
    "decimal(9, 2)": ("bucket[3]", "truncate[50]"),
    "decimal(38, 0)": ("bucket[3]",),
    "string": ("bucket[3]", "truncate[1]", "truncate[2]"),
    "date": ("bucket[3]", "year", "month", "day"),
    "timestamp": ("bucket[3]", *_MOMENTS),
    "timestamptz": ("bucket[3]", *_MOMENTS),
    "uuid": ("bucket[3]",),
    "binary": ("bucket[3]", "truncate[1]"),
}
#: Java 1.12 writes partition values of fixed types as no other library reads them.
_KINDS = tuple(kind for kind in KINDS if kind.name != "fixed[2]")
_PROMOTED = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(18, 2)"}
_FILTERS = 12


class _Bed(NamedTuple):
    """A random table: its columns now and when it was made, and what is done to it."""

    version: int
    made: list[Column]
    columns: list[Column]
    spec: Any
    steps: list[Any]
    filters: list[list[Any]]
    case_sensitive: bool


@st.composite
def _spec(draw: st.DrawFn, columns: list[Column], tag: str) -> list[tuple[str, str, Column]]:
    """One or two fields: a name, a transform, a column. No two of one column and transform."""
    drawn = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2))
    found = {}
    for column in drawn:
        transform = draw(st.sampled_from(("identity", *_TRANSFORMS.get(column.kind.name, ()))))
        found[column.field_id] = (f"{tag}_{column.field_id}", transform, column)
    return [*found.values()]


def _one_zero(value: Any) -> Any:
    """Java tells -0.0 from 0.0, and SQL does not: partitions are judged by SQL."""
    match value:
        case float():
            return value + 0.0
        case dict():
            return {key: _one_zero(each) for key, each in value.items()}
        case list():
            return [_one_zero(each) for each in value]
        case _:
            return value


def _appended(draw: st.DrawFn, columns: list[Column]) -> Any:
    data = [[_one_zero(value) for value in row] for row in draw(rows(columns, 12))]
    return data, {"append": cells_of(data), "bounds": draw(st.booleans())}


@st.composite
def _beds(draw: st.DrawFn) -> _Bed:
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=3))
    made = [Column(number + 1, f"c{number + 1}", kind) for number, kind in enumerate(kinds)]
    first = draw(_spec(made, "p"))
    data, step = _appended(draw, made)
    steps, columns = [step], made
    if draw(st.booleans()):
        second = draw(_spec(made, "q"))
        kept = {(transform, column.field_id) for _, transform, column in first}
        added = [field for field in second if (field[1], field[2].field_id) not in kept]
        removed = draw(st.lists(st.sampled_from([name for name, _, _ in first]), unique=True))
        steps.append({"remove": removed, "add": [_field_json(*field) for field in added]})
    if draw(st.booleans()):
        columns = [_promoted(column) for column in columns]
        steps += [
            {"promote": after.name, "type": after.kind.name}
            for before, after in zip(made, columns, strict=True)
            if after.kind is not before.kind
        ]
    if draw(st.booleans()):
        more, step = _appended(draw, columns)
        data, steps = data + more, [*steps, step]
    if draw(st.booleans()):
        steps.append({"rename": columns[0].name, "to": "renamed"})
        columns = [columns[0].renamed("renamed"), *columns[1:]]
    trees = filter_trees(columns, data, odd=True, transforms=[transform for _, transform, _ in first])
    filters = draw(st.lists(st.lists(trees, min_size=1, max_size=3), min_size=_FILTERS, max_size=_FILTERS))
    filters = [[_one_zero(part) for part in parts] for parts in filters]
    fields = [
        {"name": name, "transform": transform, "source-id": column.field_id, "field-id": 1000 + number}
        for number, (name, transform, column) in enumerate(first)
    ]
    version = draw(st.sampled_from([1, 2, 3]))
    return _Bed(version, made, columns, {"spec-id": 0, "fields": fields}, steps, filters, draw(st.booleans()))


def _field_json(name: str, transform: str, column: Column) -> Any:
    term = {"type": "transform", "transform": transform, "term": column.name}
    return {"name": name, "term": column.name if transform == "identity" else term}


def _promoted(column: Column) -> Column:
    name = _PROMOTED.get(column.kind.name)
    known = {kind.name: kind for kind in (*KINDS, Kind("decimal(18, 2)", KINDS[5].arrow, KINDS[5].values))}
    return column.typed(known[name]) if name else column


@pytest.fixture(scope="module")
def planner(spark: SparkSession) -> JavaPlanner:
    return JavaPlanner(spark)


def _conjunction(parts: list[Any]) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = {"type": "and", "left": whole, "right": part}
    return whole


def _planned(table: Table, bed: _Bed, tree: Any) -> set[str] | None:
    """Paths of the files that are planned; None when the filter is refused, which needs a part that is not judged."""
    try:
        request = ScanRequest(filter=tree, case_sensitive=bed.case_sensitive)
        scan = plan_scan(table, request, ReadOptions(use_indexes=False))
    except BadSpec:
        read = read_of(bed.columns, tree, case_sensitive=bed.case_sensitive)
        assert any(isinstance(leaf, Unjudged) for leaf in leaves(read))
        return None
    assert len(scan.ordinals) + sum(scan.left_out.values()) == len(scan.files)
    return set(scan.files.files.column("path").take(scan.ordinals).to_pylist())


def _check(ours: set[str], scan: JavaScan, parts: list[Any]) -> None:
    for file in scan.files:
        if file.passing:
            assert file.path in ours, ("lost", file, parts)
        for part, is_trusted, passing in zip(parts, scan.selecting, file.passing_parts, strict=True):
            if is_trusted and file.path in ours:
                assert passing == file.rows, ("too many", file, part)


def test_no_file_is_lost_and_none_is_too_many_where_clients_trust_the_list(
    planner: JavaPlanner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=cases(12, 400), phases=[Phase.generate], database=None)
    @given(_beds())
    def check(bed: _Bed) -> None:
        folder = tmp_path_factory.mktemp("scans") / "t"
        metadata = planner.build(str(folder), bed.version, schema_json(bed.made), bed.spec, bed.steps)
        table = StaticTable.from_metadata(metadata)
        for parts in bed.filters:
            scan = planner.plan(str(folder), parts, case_sensitive=bed.case_sensitive)
            if scan is None:
                seen["refused by Java"] += 1
                continue
            ours = _planned(table, bed, _conjunction(parts))
            if ours is None:
                seen["refused"] += 1
                continue
            seen.update({"filters": 1, "trusted parts": sum(scan.selecting), "files": len(scan.files)})
            seen["left out"] += len(scan.files) - len(ours)
            seen["left out by Java"] += sum(not file.is_planned for file in scan.files)
            _check(ours, scan, parts)

    check()
    print(f"\nscans: {dict(seen)}")


def _table(planner: JavaPlanner, folder: Path, kinds: list[str], rows: list[list[str | None]]) -> Table:
    """A table that is partitioned by all of its columns."""
    fields = [{"id": n + 1, "name": f"c{n}", "required": False, "type": kind} for n, kind in enumerate(kinds)]
    parts = [
        {"name": f"c{n}", "transform": "identity", "source-id": n + 1, "field-id": 1000 + n} for n in range(len(kinds))
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    steps = [{"append": rows, "bounds": True}]
    return StaticTable.from_metadata(planner.build(str(folder), 2, schema, {"spec-id": 0, "fields": parts}, steps))


@pytest.mark.parametrize(
    ("kind", "values"),
    [("decimal(38, 0)", ["1", "2"]), ("uuid", [f"00000000-0000-0000-0000-00000000000{n}" for n in (1, 2)])],
    ids=["decimals", "uuids"],
)
def test_partitions_of_two_columns_of_one_type_are_read(
    planner: JavaPlanner, tmp_path: Path, kind: str, values: list[str]
) -> None:
    """The Avro schema of their manifests has the type once, and its name the second time."""
    first, second = values
    table = _table(planner, tmp_path / "t", [kind, kind], [[first, second], [second, first], [None, first]])
    request = ScanRequest(filter={"type": "eq", "term": "c1", "value": first})
    assert plan_scan(table, request, ReadOptions(use_indexes=False)).ordinals.tolist() == [1, 2]


def test_a_table_with_partitions_that_libraries_write_differently_is_refused(
    planner: JavaPlanner, tmp_path: Path
) -> None:
    table = _table(planner, tmp_path / "t", ["fixed[2]"], [["0001"]])
    with pytest.raises(BadSpec, match=r"partitioned by c0, of the type fixed\[2\], .* let the client plan"):
        plan_scan(table, ScanRequest(), ReadOptions(use_indexes=False))
