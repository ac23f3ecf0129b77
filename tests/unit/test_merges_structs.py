"""Merges that read and change fields within struct columns of the table, against a merge of dictionaries.

As in Spark, a null struct of which a field gets a value is no longer null.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from skipstone.files.reader import describe_files
from skipstone.kernels.changes import SortRule, write_slice
from skipstone.kernels.computing.structs import with_kept
from skipstone.runs.merging.source import Changes, selective_first, target_schema
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import (
    ColumnMapping,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import MergeColumn, MergePlan, plan_merge

from tests.examples import cases
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import Bench, merged, rows_of

INNER = pa.struct([("c", pa.int64()), ("d", pa.string())])
TABLE = pa.schema([("id", pa.int32()), ("n", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("in", INNER)]))])
SOURCE = pa.schema([("id", pa.int32()), ("x", pa.int64()), ("y", pa.string())])
STRUCTS: list[dict[str, Any] | None] = [
    None,
    {"a": 1, "in": None},
    {"a": None, "in": {"c": 2, "d": "d"}},
    {"a": 3, "in": {"c": None, "d": None}},
]
Row = dict[str, Any]
_TOKENS = itertools.count()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("structs")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", TABLE)
    rows = [{"id": i, "n": i % 3, "s": STRUCTS[i % len(STRUCTS)]} for i in range(12)]
    for start in range(0, 12, 4):
        table.append(pa.Table.from_pylist(rows[start : start + 4], TABLE))
    table = catalog.load_table("n.t")
    files = read_file_set(table)
    live = {one.path: rows_of(one, TABLE.names) for one in describe_files(table, files, range(len(files)))}
    yield Bench(cast(RandomLake, None), table, table, files, live, [row for kept in live.values() for row in kept])
    catalog.close()


def plan_of(bench: Bench, *clauses: MergeClause, where: str | None = None, key: str = "id") -> MergePlan:
    source = [MergeColumn(name="id", type="int"), MergeColumn(name="x", type="long")]
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",)),
        keys=(MergeKey(target=key, source="id"),),
        when_matched=clauses,
        target_where=where,
    )
    columns = [*source, MergeColumn(name="y", type="string")]
    return selective_first(plan_merge(task, target_schema(bench.files.schema), columns), bench.files)


def after(bench: Bench, plan: MergePlan, rows: list[Row]) -> Counter[str]:
    types = {
        field.name: kind
        for field in SOURCE
        if (kind := key_type({"int32": "int", "int64": "long"}.get(str(field.type), "string")))
    }
    rule = SortRule(plan.keys, plan.sequence_by, types, plan.repeated_keys, plan.marks_several)
    path = Path(bench.table.location().removeprefix("file://")) / f"slice-{next(_TOKENS)}.parquet"
    given = pa.Table.from_pylist(rows, SOURCE).select(list(plan.source_columns))
    slices = (write_slice(given, rule, str(path)),) if rows else ()
    changes = Changes(plan=plan, slices=slices, schema_id=bench.files.schema.schema_id)
    return Counter(map(repr, merged(bench, changes)[0]))


def put(row: Row, path: str, value: object) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        fields = {"s": ("a", "in"), "in": ("c", "d")}[parent]
        if row[parent] is None:
            row[parent] = dict.fromkeys(fields)
        row = row[parent]
    row[last] = value


def get(row: Row, path: str) -> Any:
    for part in path.split("."):
        row = None if row is None else row[part]  # type: ignore[assignment]
    return row


VALUES: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "s.a": (("null", lambda t, s: None), ("7", lambda t, s: 7), ("source.id", lambda t, s: s["id"])),
    "s.in.c": (
        ("source.x", lambda t, s: s["x"]),
        ("target.s.in.c + 1", lambda t, s: None if get(t, "s.in.c") is None else get(t, "s.in.c") + 1),
        ("coalesce(target.s.a, target.n)", lambda t, s: t["n"] if get(t, "s.a") is None else get(t, "s.a")),
    ),
    "s.in.d": (("source.y", lambda t, s: s["y"]), ("'z'", lambda t, s: "z"), ("default", lambda t, s: None)),
    "n": (("coalesce(target.s.in.c, 9)", lambda t, s: 9 if get(t, "s.in.c") is None else get(t, "s.in.c")),),
}
WHENS: tuple[tuple[str | None, Any], ...] = (
    (None, lambda t, s: True),
    ("target.s.in.c <=> 2", lambda t, s: get(t, "s.in.c") == 2),
    ("target.s.a is null", lambda t, s: get(t, "s.a") is None),
    ("target.s.a < source.x", lambda t, s: None not in (get(t, "s.a"), s["x"]) and get(t, "s.a") < s["x"]),
)
changes_drawn = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 14), "x": st.sampled_from([None, 0, 5]), "y": st.sampled_from([None, "q"])}
    ),
    max_size=6,
    unique_by=lambda row: row["id"],
)


@settings(deadline=None, max_examples=cases(25, 1000))
@given(st.data(), changes_drawn, st.sampled_from(WHENS), st.sampled_from(WHENS))
def test_fields_of_structs_are_read_and_changed(
    bench: Bench, data: st.DataObject, rows: list[Row], when: tuple[str | None, Any], where: tuple[str | None, Any]
) -> None:
    """Keys are fields, too."""
    key = data.draw(st.sampled_from(["id", "id", "s.a", "s.in.c"]))
    chosen = {path: data.draw(st.sampled_from(values)) for path, values in VALUES.items() if data.draw(st.booleans())}
    chosen = chosen or {"s.a": VALUES["s.a"][1]}
    clause = MergeClause(
        action=MergeAction.UPDATE, when=when[0], values={path: text for path, (text, _) in chosen.items()}
    )
    expected, by_key = [], {row["id"]: row for row in rows}
    for row in bench.rows:
        new, source = copy.deepcopy(row), by_key.get(get(row, key))
        if source is not None and where[1](row, source) and when[1](row, source):
            for path, (_, value) in chosen.items():
                put(new, path, value(row, source))
        expected.append(new)
    found = after(bench, plan_of(bench, clause, where=where[0], key=key), rows)
    assert found == Counter(map(repr, expected)), (clause, where[0], key, rows)


def test_a_field_is_not_fed_by_the_mapping(bench: Bench) -> None:
    mapping = (ColumnMapping(column="s.a", from_="x"),)
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",), mapping=mapping),
        keys=(MergeKey(target="id", source="id"),),
        when_matched=(MergeClause(action=MergeAction.UPDATE),),
    )
    source = [MergeColumn(name="id", type="int"), MergeColumn(name="x", type="long")]
    with pytest.raises(BadSpec, match=r"s\.a is a field within a column of the table: name it in set"):
        plan_merge(task, target_schema(bench.files.schema), source)


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"s.a": "1", "s": "null"}, "id", "s.a is a field within s, which gets a value too: remove one of them"),
        ({"s.in": "null", "s.in.c": "1"}, "id", "s.in.c is a field within s.in"),
        ({"s.b": "1"}, "id", "the table has no column 's.b'"),
        ({"s.a": "'x'"}, "id", "does not fit 's.a', which is int"),
        (
            {"s.a": "source.y"},
            "id",
            "'y' is string in the source and cannot feed 's.a', which is int: write cast(… as int)",
        ),
        ({"n": "1"}, "s.b", "the table has no column 's.b'"),
        ({"n": "1"}, "s.in", "'s.in' is struct<"),
    ],
)
def test_what_of_fields_is_refused(bench: Bench, values: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(BadSpec) as caught:
        plan_of(bench, MergeClause(action=MergeAction.UPDATE, values=values), key=key)
    assert words in str(caught.value)


FIELDS = pa.struct([("a", pa.int64()), ("b", pa.string()), ("in", pa.struct([("c", pa.int64()), ("d", pa.string())]))])


def kept_by_hand(new: Any, old: Any, paths: list[tuple[str, ...]]) -> Any:
    """What ``with_kept`` makes of one struct."""
    if old is None:
        return new
    made = {name: None if new is None else new[name] for name in old}
    for name in old:
        below = [path[1:] for path in paths if path[0] == name]
        if () in below:
            made[name] = old[name]
        elif below:
            made[name] = kept_by_hand(made[name], old[name], below)
    return made


structs = st.none() | st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 3),
        "b": st.none() | st.sampled_from("xy"),
        "in": st.none()
        | st.fixed_dictionaries({"c": st.none() | st.integers(0, 3), "d": st.none() | st.sampled_from("xy")}),
    }
)


@settings(max_examples=cases(100, 3000))
@given(
    st.lists(st.tuples(structs, structs), max_size=6),
    st.sets(st.sampled_from([("a",), ("b",), ("in",), ("in", "c"), ("in", "d")]), min_size=1),
    st.integers(0, 2),
)
def test_fields_that_a_struct_lacks_are_kept(
    pairs: list[tuple[Any, Any]], paths: set[tuple[str, ...]], cut: int
) -> None:
    listed = sorted(paths)
    new, old = (pa.array([pair[side] for pair in pairs], FIELDS).slice(cut) for side in (0, 1))
    assert with_kept(new, old, listed).to_pylist() == [kept_by_hand(*pair, listed) for pair in pairs[cut:]]


def test_a_required_field_does_not_become_null_beside_one_that_is_kept() -> None:
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])
    old = pa.array([None, {"a": 1, "b": "x"}], kind)
    assert with_kept(pa.array([None, {"a": 2, "b": None}], kind), old, [("b",)]).to_pylist() == [
        None,
        {"a": 2, "b": "x"},
    ]
    with pytest.raises(
        BadData, match="a required field 'a' of a struct would become null in some row: give it a value"
    ):
        with_kept(pa.array([None, None], kind), old, [("b",)])


@pytest.mark.parametrize(
    ("lacks", "lacks_in_some", "present", "words"),
    [
        ({"b"}, set(), False, ""),
        ({"b"}, {"in.c"}, False, r"some files of the source lack the field 'in\.c' within 's', and an Update of 's'"),
        ({"b"}, set(), True, "files of the source lack the field 'b' within 's'"),
    ],
)
def test_fields_that_a_source_lacks_are_kept_or_refused(
    bench: Bench, lacks: set[str], lacks_in_some: set[str], present: bool, words: str
) -> None:
    column = next(one for one in target_schema(bench.files.schema) if one.name == "s")
    given = MergeColumn(name="s", type=column.type, lacks=frozenset(lacks), lacks_in_some=frozenset(lacks_in_some))
    source = [MergeColumn(name="id", type="int"), MergeColumn(name="seq", type="int"), given]

    def plan(clause: MergeClause) -> MergePlan:
        task = MergeTask(
            source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",)),
            keys=(MergeKey(target="id", source="id"),),
            when_matched=(clause,),
            when_not_matched=(MergeClause(action=MergeAction.INSERT),),
            sequence_by="seq" if present else None,
        )
        return plan_merge(task, target_schema(bench.files.schema), source)

    update = MergeClause(action=MergeAction.UPDATE, present=present)
    if words:
        with pytest.raises(BadSpec, match=f"{words}.*: write it into all files, or name the fields that change in set"):
            plan(update)
    else:
        bound = plan(update)
        assert (bound.when_matched[0].kept, bound.when_matched[0].read) == ({"s": lacks}, {"s"})
        assert not bound.when_not_matched[0].kept
    whole = plan(MergeClause(action=MergeAction.UPDATE, values={"s": "source.s"}))
    assert not whole.when_matched[0].kept
