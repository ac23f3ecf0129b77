"""MERGE statements, generated: the manifest, run by the merge's kernels, gives the rows of DuckDB's MERGE INTO.

A statement is written for Spark, and once more for DuckDB with ``*`` as a list of columns. What is refused is refused
for the reason that the generator knows.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from skipstone.files.reader import describe_files
from skipstone.kernels.changes import SortRule, write_slice
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone.runs.merging.source import Changes, selective_first, target_schema
from skipstone.tables.filesets import read_file_set
from skipstone_cli.translating.dialects import find_dialect
from skipstone_cli.translating.jobs import Chosen, Translation, translate
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.keys import key_type
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import check_types
from skipstone_core.merging.merges import MergeColumn, plan_merge
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.kinds import parse
from skipstone_operator.resources.mergejob import MergeJobSpec

from tests.examples import cases
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import Bench, merged, rows_of

TARGET = {"id": "int", "grp": "string", "a": "long", "name": "string", "ok": "boolean", "d": "double"}
SOURCE = {**TARGET, "op": "string", "seq": "long"}
ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}
VALUES: dict[str, Sequence[object]] = {
    "int": (1, 2, 3, 4, 5, None),
    "long": (-2, 0, 1, 3, 7, None),
    "string": ("x", "y", "xy", "it's", None),
    "boolean": (True, False, None),
    "double": (-1.5, 0.0, 0.25, 2.0, None),
}
PATTERNS = ("'%y'", "'_'", "'%t_s%'", "'x_'", "'%'", "''", "'x'")
KEYS = (("id",), ("grp",), ("id", "grp"))
_TOKENS = itertools.count()


@dataclass(frozen=True)
class Statement:
    """One MERGE in both dialects. ``keys``: its key columns. ``refused``: the part that has to be refused, if any.

    ``repeats``: the source may have several rows of a key. ``of_table``: the source is a Table, else files.
    """

    spark: str
    duckdb: str
    keys: tuple[str, ...]
    repeats: bool = False
    refused: str = ""
    of_table: bool = False


def schema_of(columns: dict[str, str]) -> pa.Schema:
    return pa.schema([(name, ARROW[kind]) for name, kind in columns.items()])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A table of three files."""
    root = tmp_path_factory.mktemp("table")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    catalog.create_namespace("n")
    schema = schema_of(TARGET)
    table = catalog.create_table("n.t", schema)
    drawn = random.Random(7)
    for _ in range(3):
        rows = [{name: drawn.choice(VALUES[kind]) for name, kind in TARGET.items()} for _ in range(6)]
        table.append(pa.Table.from_pylist(rows, schema))
    table = catalog.load_table("n.t")
    files = read_file_set(table)
    live = {one.path: rows_of(one, list(TARGET)) for one in describe_files(table, files, range(len(files)))}
    rows = [row for kept in live.values() for row in kept]
    yield Bench(cast(RandomLake, None), table, table, files, live, rows)
    catalog.close()


def conditions_on(side: str, columns: dict[str, str]) -> st.SearchStrategy[str]:
    """Conditions on the columns of one side."""
    by_kind = {kind: [name for name, one in columns.items() if one == kind] for kind in ARROW}
    compared = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])

    def column(*kinds: str) -> st.SearchStrategy[str]:
        return st.sampled_from([f"{side}.{name}" for kind in kinds for name in by_kind[kind]])

    def literal(kind: str) -> st.SearchStrategy[str]:
        known = {"long": ["-1", "0", "1", "2.5", "3"], "string": ["'x'", "'y'", "'q'"]}
        return st.sampled_from(known[kind])

    number, text = column("int", "long", "double"), column("string")
    return st.one_of(
        st.builds("{} {} {}".format, number, compared, st.one_of(number, literal("long"))),
        st.builds("{2} {1} {0}".format, number, compared, literal("long")),
        st.builds("{} {} {}".format, text, compared, st.one_of(text, literal("string"))),
        st.builds("{} IS {}NULL".format, column(*ARROW), st.sampled_from(["", "NOT "])),
        st.builds("{} {}IN (1, 3)".format, number, st.sampled_from(["", "NOT "])),
        st.builds("{} IN ('x', {})".format, text, literal("string")),
        st.builds("{} {}BETWEEN 0 AND 3".format, number, st.sampled_from(["", "NOT "])),
        st.builds("{} {}LIKE 'x%'".format, text, st.sampled_from(["", "NOT "])),
        st.builds(
            "{} IS {}{}".format, column("boolean"), st.sampled_from(["", "NOT "]), st.sampled_from(["TRUE", "FALSE"])
        ),
        column("boolean"),
        st.builds("coalesce({}, {})".format, column("boolean"), st.sampled_from(["true", "false"])),
        st.builds("{} {} NULL".format, number, compared),
        st.builds("{} {}IN (1, NULL)".format, number, st.sampled_from(["", "NOT "])),
        st.builds("{} % {} {} {}".format, column("int", "long"), st.sampled_from(["2", "-3"]), compared, number),
        st.builds("coalesce({}, {}) {} {}".format, number, number, compared, number),
        st.builds("{} + {} > -{}".format, number, literal("long"), column("int", "double")),
        st.builds("{} {}LIKE {}".format, text, st.sampled_from(["", "NOT "]), st.sampled_from(PATTERNS)),
        st.builds(
            "{} IS {}DISTINCT FROM {}".format, number, st.sampled_from(["", "NOT "]), st.one_of(number, literal("long"))
        ),
    )


@cache
def nested(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=4,
    )


ON_SOURCE, ON_TARGET = conditions_on("s", SOURCE), conditions_on("t", TARGET)
ACROSS = st.builds(
    "s.{} {} t.{}".format, st.sampled_from(["a", "id"]), st.sampled_from(["=", "<>", "<"]), st.sampled_from(["a", "id"])
)
WHEN = {
    "matched": nested(st.one_of(ON_SOURCE, ON_TARGET, ACROSS)),
    "not matched": nested(ON_SOURCE),
    "by source": nested(ON_TARGET),
}


@cache
def numbers(sides: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Expressions of whole numbers.

    Made once: hypothesis leaves out strategies that are the same object, and keeps equal ones in a cache of limited
    size, so those that each draw makes again may differ in how many there are to choose from.
    """
    leaves = st.one_of(
        st.sampled_from([f"{side}.{name}" for side in sides for name in ("a", "id")]), st.sampled_from(["1", "-3", "5"])
    )
    remainder = st.builds("{} % 4".format, leaves)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("{} {} {}".format, inner, st.sampled_from("+-*"), inner),
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
            remainder,
            st.builds("coalesce({}, {})".format, inner, inner),
            st.builds("-({})".format, inner),
        ),
        max_leaves=4,
    )


#: Conditions on the columns of some sides.
JUDGED: dict[tuple[str, ...], st.SearchStrategy[str]] = {
    ("s",): ON_SOURCE,
    ("t",): ON_TARGET,
    ("s", "t"): st.one_of(ON_SOURCE, ON_TARGET, ACROSS),
}


def by_cases(sides: tuple[str, ...], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """One of ``values``, or what a condition chooses of them."""
    condition = JUDGED[sides]
    return st.one_of(
        values,
        values,
        st.builds("CASE WHEN {} THEN {} END".format, condition, values),
        st.builds(
            "CASE WHEN {} THEN {} WHEN {} THEN {} ELSE {} END".format, condition, values, condition, values, values
        ),
        st.builds("CASE {0}.id WHEN 1 THEN {1} ELSE {2} END".format, st.sampled_from(sides), values, values),
        st.builds("nullif({}, {})".format, values, values),
    )


@cache
def assigned(sides: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    """What a clause gives some columns."""
    texts = st.sampled_from([f"{side}.{name}" for side in sides for name in ("name", "grp")])
    return st.fixed_dictionaries(
        {},
        optional={
            "a": by_cases(sides, st.one_of(numbers(sides), st.just("NULL"))),
            "name": by_cases(
                sides,
                st.one_of(texts, st.builds("{} || '-' || {}".format, texts, texts), st.just("'new'"), st.just("NULL")),
            ),
            "ok": st.sampled_from([*(f"{side}.ok" for side in sides), "true", "NULL"]),
            "d": st.one_of(
                st.sampled_from([f"{side}.d" for side in sides]),
                st.builds("{} / 4".format, st.sampled_from([f"{side}.a" for side in sides])),
                st.just("2.5"),
            ),
        },
    ).map(lambda found: found or {"name": "'new'"})


@st.composite
def clause(draw: st.DrawFn, role: str, *, conditional: bool) -> tuple[str, str]:
    """One WHEN, for Spark and for DuckDB."""
    head = {"matched": "WHEN MATCHED", "not matched": "WHEN NOT MATCHED", "by source": "WHEN NOT MATCHED BY SOURCE"}[
        role
    ]
    head += f" AND {draw(WHEN[role])}" if conditional else ""
    all_sides: dict[str, tuple[str, ...]] = {"matched": ("s", "t"), "not matched": ("s",), "by source": ("t",)}
    sides = all_sides[role]
    if role == "not matched":
        if draw(st.booleans()):
            names, values = ", ".join(TARGET), ", ".join(f"s.{name}" for name in TARGET)
            return f"{head} THEN INSERT *", f"{head} THEN INSERT ({names}) VALUES ({values})"
        given_values = {"id": "s.id", "grp": "s.grp", **draw(assigned(sides))}
        both = f"{head} THEN INSERT ({', '.join(given_values)}) VALUES ({', '.join(given_values.values())})"
        return both, both
    if draw(st.integers(0, 2)) == 0:
        return f"{head} THEN DELETE", f"{head} THEN DELETE"
    if role == "matched" and draw(st.booleans()):
        every = ", ".join(f"{name} = s.{name}" for name in TARGET)
        return f"{head} THEN UPDATE SET *", f"{head} THEN UPDATE SET {every}"
    pairs = ", ".join(f"{name} = {value}" for name, value in draw(assigned(sides)).items())
    return f"{head} THEN UPDATE SET {pairs}", f"{head} THEN UPDATE SET {pairs}"


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    keys = draw(st.sampled_from(KEYS))
    newest = draw(st.integers(0, 3)) == 0
    using, of_table = "s", draw(st.booleans())
    filtered = f" WHERE {draw(nested(ON_SOURCE))}" if draw(st.integers(0, 3)) == 0 else ""
    if newest:
        number = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(keys)} ORDER BY seq DESC NULLS LAST) AS rn"
        last = f" AND ({draw(nested(ON_SOURCE))})" if draw(st.integers(0, 3)) == 0 else ""
        first = filtered if of_table else ""
        using = f"(SELECT * FROM (SELECT *, {number} FROM s{first}) AS s WHERE rn = 1{last})"
    elif filtered or draw(st.booleans()):
        using = f"(SELECT * FROM s{filtered})"
    parts = [draw(st.sampled_from([f"t.{key} = s.{key}", f"s.{key} = t.{key}"])) for key in keys]
    if draw(st.integers(0, 3)) == 0:
        parts.append(draw(nested(ON_TARGET)))
    if draw(st.integers(0, 3)) == 0:
        parts.append(draw(st.one_of(ON_SOURCE, ACROSS.filter(lambda text: " = " not in text))))
    whens: list[tuple[str, str]] = []
    for role in ("matched", "not matched", "by source"):
        count = draw(st.integers(0, 2))
        whens += [draw(clause(role, conditional=True)) for _ in range(count)]
        whens += [draw(clause(role, conditional=False))] if draw(st.booleans()) else []
    if not whens:
        whens = [draw(clause("matched", conditional=False))]
    inserts = any("INSERT" in one for one, _ in whens)
    refused = "USING" if newest and inserts else ""
    start = "{}MERGE INTO t USING {} AS s ON " + " AND ".join(parts) + " "
    spark, duck = (" ".join(texts) for texts in zip(*whens, strict=True))
    plain = start.format("", using)
    named = start.format(f"WITH changes AS {using} ", "changes") if using != "s" and draw(st.booleans()) else plain
    return Statement(named + spark, plain + duck, keys, repeats=newest, refused=refused, of_table=of_table)


def sources(keys: tuple[str, ...], *, repeats: bool) -> st.SearchStrategy[list[dict[str, object]]]:
    """Rows of the source: no key twice unless ``repeats``, whose rows then have a sequence of their own."""
    row = st.fixed_dictionaries({name: st.sampled_from(VALUES[kind]) for name, kind in SOURCE.items()})
    unique = None if repeats else lambda one: tuple(one[key] for key in keys)
    rows = st.lists(row, max_size=8, unique_by=unique) if unique else st.lists(row, max_size=8)
    return rows.map(lambda found: [{**one, "seq": number} for number, one in enumerate(found)])


def translated(statement: Statement, **options: Any) -> Translation:
    paths = () if statement.of_table else ("feed/*.parquet",)
    chosen = Chosen(dialect=find_dialect("spark"), paths=paths, zone="UTC", **options)
    return translate(statement.spark, chosen)


@pytest.mark.timeout(7200)
@settings(max_examples=cases(50, 2000), phases=[Phase.generate])
@given(st.data())
def test_a_translated_statement_does_what_the_statement_does(bench: Bench, data: st.DataObject) -> None:
    statement = data.draw(statements())
    rows = data.draw(sources(statement.keys, repeats=statement.repeats))
    found = translated(statement)
    if statement.refused == "USING" and found.refused:
        assert found.refused[0].startswith("USING: of rows with a null key the statement inserts one"), found.refused
        rows = [row for row in rows if None not in [row[key] for key in statement.keys]]
        found = translated(statement, keys_are_set=True)
    assert found.manifest is not None, (statement.spark, found.refused)
    resource = parse(dict(found.manifest))
    assert isinstance(resource.spec, MergeJobSpec)
    assert validate_spec(resource.kind, resource.spec) is None
    event("merged")
    assert by_kernels(bench, resource.spec, rows) == by_duckdb(bench, statement, rows), (
        statement.spark,
        found.manifest,
    )


def by_duckdb(bench: Bench, statement: Statement, rows: Sequence[dict[str, object]]) -> Counter[str]:
    """The rows of the table after the statement."""
    with duckdb.connect() as connection:
        for name, held, columns in (("t", bench.rows, TARGET), ("s", rows, SOURCE)):
            connection.register("given", pa.Table.from_pylist(list(held), schema_of(columns)))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.execute(statement.duckdb)
        return counted(connection.sql("SELECT * FROM t").to_arrow_table().to_pylist())


def by_kernels(bench: Bench, spec: MergeJobSpec, rows: Sequence[dict[str, object]]) -> Counter[str]:
    """The rows of the table after the MergeJob."""
    columns = [MergeColumn(name=name, type=kind) for name, kind in SOURCE.items()]
    plan = selective_first(plan_merge(task_of(spec), target_schema(bench.files.schema), columns), bench.files)
    types = {one.name: kind for one in columns if (kind := key_type(one.type))}
    rule = SortRule(plan.keys, plan.sequence_by, types, plan.repeated_keys, plan.marks_several)
    given = read_source(spec, pa.Table.from_pylist(list(rows), schema_of(SOURCE))).select(list(plan.source_columns))
    path = Path(bench.table.location().removeprefix("file://")) / f"slice-{next(_TOKENS)}.parquet"
    slices = (write_slice(given, rule, str(path)),) if len(given) else ()
    changes = Changes(plan=plan, slices=slices, schema_id=bench.files.schema.schema_id)
    return counted(merged(bench, changes)[0])


def read_source(spec: MergeJobSpec, rows: pa.Table) -> pa.Table:
    """The rows of the source that the job reads."""
    if spec.source.table is None or spec.source.table.where is None:
        return rows
    predicate = check_types(parse_predicate(spec.source.table.where), SOURCE)
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    return rows.filter(evaluate_predicate(predicate, columns, rows.num_rows))


def task_of(spec: MergeJobSpec) -> MergeTask:
    """What the operator asks of a run, as far as these manifests go."""

    def clauses(listed: Sequence[Any], name: str) -> tuple[MergeClause, ...]:
        return tuple(
            MergeClause(action=MergeAction(str(one.action.value)), when=one.when, values=getattr(one, name))
            for one in listed
        )

    return MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=spec.source.paths or ()),
        keys=tuple(MergeKey(target=key.target, source=key.source) for key in spec.keys),
        when_matched=clauses(spec.when_matched, "set"),
        when_not_matched=clauses(spec.when_not_matched, "values"),
        when_not_matched_by_source=clauses(spec.when_not_matched_by_source, "set"),
        sequence_by=spec.sequence_by,
        target_where=spec.target_where,
        time_zone=spec.time_zone,
    )


def counted(rows: Sequence[dict[str, object]]) -> Counter[str]:
    typed = pa.Table.from_pylist(list(rows), schema_of(TARGET)).to_pylist()
    return Counter(repr(row) for row in typed)
