"""`skipstone sql2merge`: what statements become, what is refused by which sentence, and that the ways out work."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from skipstone_cli.commands import sql2merge
from skipstone_cli.commands.sql2merge import Options, run_sql2merge
from skipstone_cli.errors import CliError, ExitCode
from skipstone_cli.output.screen import Screen
from skipstone_cli.translating import jobs
from skipstone_cli.translating.dialects import find_dialect
from skipstone_cli.translating.jobs import Chosen, Translation, translate
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.kinds import parse
from skipstone_operator.resources.rules import limits

from tests.docs.blocks import blocks_of
from tests.unit.merge_shapes import SHAPES, Shape

PAGE = "docs/guide/merge-into.md"
UPDATE = "WHEN MATCHED THEN UPDATE SET a = s.a"
INSERT = "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
DELETE = "WHEN NOT MATCHED BY SOURCE THEN DELETE"


def merge(
    clauses: str,
    *,
    on: str = "t.id = s.id",
    using: str = "s",
    dialect: str = "spark",
    before: str = "",
    into: str = "t",
    **options: Any,
) -> Translation:
    """What a statement becomes; its manifest, if any, is one that the operator takes."""
    given: dict[str, Any] = {"paths": ("feed/*.parquet",), **options}
    found = translate(
        f"{before}MERGE INTO {into} USING {using} ON {on} {clauses}", Chosen(dialect=find_dialect(dialect), **given)
    )
    if found.manifest is not None:
        resource = parse(dict(found.manifest))
        assert validate_spec(resource.kind, resource.spec) is None
    assert bool(found.refused) == (found.manifest is None)
    return found


def spec(*arguments: Any, **options: Any) -> dict[str, Any]:
    found = merge(*arguments, **options)
    assert found.manifest is not None, found.refused
    return dict(found.manifest["spec"])


@pytest.mark.parametrize(
    ("into", "table", "branch"),
    [
        ("lake.d.orders.branch_dev AS t", "orders", {"name": "dev"}),
        ("lake.d.orders.`branch_2026-01` AS t", "orders", {"name": "2026-01"}),
        ("lake.d.orders.branch_main AS t", "orders", None),
        ("branch_dev AS t", "branch-dev", None),
        ("lake.d.orders AS t", "orders", None),
    ],
)
def test_a_branch_in_the_name_of_the_table_is_the_branch_of_the_job(into: str, table: str, branch: object) -> None:
    found = spec(UPDATE, into=into, table=table)
    assert (found["tableRef"], found.get("branch")) == ({"name": table}, branch)


@pytest.mark.parametrize(
    ("on", "keys", "where"),
    [
        ("t.c.id = s.id", [("c.id", "id")], None),
        ("t.c.id = s.c.id AND t.c.day = s.day", [("c.id", "c.id"), ("c.day", "day")], None),
        ("t.id = s.id AND t.c.day = s.day", [("id", "id")], "target.c.day = source.day"),
    ],
)
def test_fields_of_structs_are_keys_where_no_column_is(on: str, keys: list[tuple[str, str]], where: str | None) -> None:
    found = spec(UPDATE, on=on)
    assert [(key["target"], key["source"]) for key in found["keys"]] == keys
    assert found.get("targetWhere") == where


def test_the_statement_of_the_guide_becomes_the_manifest_of_the_guide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console, statement, manifest = blocks_of(PAGE)[:3]
    file = tmp_path / "orders.sql"
    file.write_text(statement.text)
    options = Options(file=str(file), paths=["feeds/orders/*.parquet"], zone="UTC", keys_are_set=True)
    assert run_sql2merge(Screen(), options) is ExitCode.FINE
    out, err = capsys.readouterr()
    assert out == manifest.text
    assert err == "".join(console.text.splitlines(keepends=True)[1:])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("s.a", "source.a"),
        ("t.a", "target.a"),
        ("s.`order`.`x y`", "source.order.`x y`"),
        ("s.`date`", "source.`date`"),
        ("NULL", "null"),
        ("-3", "-3"),
        ("10L", "10"),
        ("1.50BD", "1.50"),
        ("'x'", "'x'"),
        ("DATE '2026-01-02'", "date '2026-01-02'"),
        ("TIMESTAMP '2026-01-02 03:04:05'", "timestamp '2026-01-02 03:04:05'"),
        ("(s.a + 1) * 2 - (t.b - s.c)", "(source.a + 1) * 2 - (target.b - source.c)"),
        ("s.a - s.b - s.c", "source.a - source.b - source.c"),
        ("-(s.a + 1) % 3", "-(source.a + 1) % 3"),
        ("nvl(s.a, 0)", "coalesce(source.a, 0)"),
        ("s.a || '-' || t.b", "source.a || '-' || target.b"),
        ("round(s.a)", "round(source.a, 0)"),
        ("cast(s.a AS DECIMAL(9, 2))", "cast(source.a as decimal(9,2))"),
        ("cast(s.a AS TIMESTAMP)", "cast(source.a as timestamptz)"),
        ("cast(s.a AS TIMESTAMP_NTZ)", "cast(source.a as timestamp)"),
        ("cast('1.55' AS DECIMAL(2, 1))", "cast('1.55' as decimal(2,1))"),
        ("cast(1.5 AS BIGINT)", "cast(1.5 as long)"),
    ],
)
def test_a_value_becomes_an_expression(value: str, text: str) -> None:
    found = spec(f"WHEN MATCHED THEN UPDATE SET x = {value}", zone="UTC")
    assert found["whenMatched"] == [{"action": "Update", "set": {"x": text}}]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("3 < s.a", "source.a > 3"),
        ("s.a <> t.a", "source.a != target.a"),
        ("NOT s.a IS NULL", "source.a IS NOT NULL"),
        ("s.ok IS NOT TRUE", "NOT (source.ok <=> true)"),
        ("s.ok AND (s.a = 1 OR s.b = 2)", "source.ok AND (source.a = 1 OR source.b = 2)"),
        ("s.a NOT LIKE 'x%'", "source.a NOT LIKE 'x%'"),
        ("NOT s.a NOT LIKE 'x%'", "NOT (source.a NOT LIKE 'x%')"),
        ("s.a <=> 1", "source.a <=> 1"),
        ("s.a IS DISTINCT FROM t.a", "NOT (source.a <=> target.a)"),
        ("s.a == 1", "source.a = 1"),
        ("s.a = NULL", "source.a = null"),
        ("s.a IN (1, NULL)", "source.a IN (1, null)"),
        ("s.a % 2 = 0 OR NULL", "source.a % 2 = 0 OR null"),
        ("(s.a + 1) * 2 > t.a", "(source.a + 1) * 2 > target.a"),
        ("coalesce(s.ok, false)", "coalesce(source.ok, false)"),
        ("s.a LIKE '%x_'", "source.a LIKE '%x_'"),
        ("endswith(s.a, 'x')", "source.a LIKE '%x'"),
        ("contains(s.a, '1%')", r"source.a LIKE '%1\%%'"),
        ("startswith(s.a, 'x')", "source.a LIKE 'x%'"),
    ],
)
def test_a_condition_becomes_a_when(condition: str, text: str) -> None:
    assert spec(f"WHEN MATCHED AND {condition} THEN DELETE")["whenMatched"] == [{"when": text, "action": "Delete"}]


def test_a_subquery_chooses_and_renames_columns() -> None:
    found = spec(f"WHEN MATCHED THEN UPDATE SET * {INSERT}", using="(SELECT u.key AS id, u.v.w AS a FROM d.u) s")
    assert found["keys"] == [{"target": "id", "source": "key"}]
    assert found["whenMatched"] == [{"action": "Update", "set": {"id": "source.key", "a": "source.v.w"}}]
    assert found["whenNotMatched"] == [{"action": "Insert", "values": {"id": "source.key"}}]


def test_the_newest_row_of_a_key_is_told_by_qualify_too() -> None:
    using = "(SELECT * FROM u QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC NULLS LAST) = 1) s"
    assert spec(UPDATE, using=using, dialect="snowflake")["sequenceBy"] == "seq"
    refused = merge(UPDATE, using=using.replace(" NULLS LAST", ""), dialect="snowflake").refused
    assert refused[0].startswith("USING: ")
    assert "NULLS LAST" in refused[0]


def test_conditions_of_on_beside_keys_go_where_they_mean_the_same() -> None:
    found = spec(UPDATE, on="t.id = s.id AND (t.a = 1 OR t.b = 2) AND s.x > 0 AND t.v < s.v")
    assert found["targetWhere"] == "(target.a = 1 OR target.b = 2) AND source.x > 0 AND target.v < source.v"
    assert "when" not in found["whenMatched"][0]
    found = spec(f"{UPDATE} {INSERT}", on="t.id = s.id AND t.b <=> s.b AND t.v % 2 = s.v + 1")
    assert found["keys"] == [{"target": "id", "source": "id"}]
    assert found["targetWhere"] == "target.b <=> source.b AND target.v % 2 = source.v + 1"


def test_fields_of_structs_of_the_table_are_paths() -> None:
    found = spec(
        "WHEN MATCHED AND t.s.`in`.c > 1 THEN UPDATE SET t.s.a = s.a, t.s.`in`.d = t.s.`in`.d || '-' "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        on="t.id = s.id AND t.s.a = s.a",
    )
    assert found["keys"] == [{"target": "id", "source": "id"}]
    assert found["targetWhere"] == "target.s.a = source.a"
    assert found["whenMatched"] == [
        {
            "when": "target.s.`in`.c > 1",
            "action": "Update",
            "set": {"s.a": "source.a", "s.in.d": "target.s.`in`.d || '-'"},
        }
    ]


def test_default_is_a_value_of_a_column() -> None:
    found = spec("WHEN MATCHED THEN UPDATE SET a = DEFAULT WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, DEFAULT)")
    assert found["whenMatched"][0]["set"] == {"a": "default"}
    assert found["whenNotMatched"][0]["values"] == {"id": "source.id", "a": "default"}


def test_the_source_is_a_table_where_no_files_are_named() -> None:
    for using, table in (
        ("lake.d.Updates s", {"name": "updates"}),
        ("lake.d.u.branch_audit s", {"name": "u", "ref": "audit"}),
        ("lake.d.u.tag_eod s", {"name": "u", "ref": "eod"}),
        ("lake.d.u.snapshot_id_12 s", {"name": "u", "snapshot": "12"}),
        ("lake.d.u VERSION AS OF 12 s", {"name": "u", "snapshot": "12"}),
        ("u VERSION AS OF 'eod' s", {"name": "u", "ref": "eod"}),
        ("t s", {"name": "t"}),
        ("(SELECT * FROM u WHERE a > 1 AND (b = 'x' OR c)) s", {"name": "u", "where": "a > 1 AND (b = 'x' OR c)"}),
        (
            "(SELECT id, x AS a FROM (SELECT * FROM u WHERE x > 1) WHERE x < 9) s",
            {"name": "u", "where": "x > 1 AND x < 9"},
        ),
    ):
        found = merge(UPDATE, using=using, paths=())
        assert found.manifest is not None
        assert found.manifest["spec"]["source"] == {"table": table}
        assert found.notes[0] == (
            f"the source is the Table {table['name']!r}; if its rows are in files, name them with --path"
        )
        assert "targetWhere" not in found.manifest["spec"]
    assert spec(UPDATE, using="u s", paths=(), source_table="feed")["source"] == {"table": {"name": "feed"}}


def test_conditions_of_a_subquery_are_repeated_for_files_and_for_fields() -> None:
    using = "(SELECT id, x AS a FROM u WHERE u.x > 1 OR u.c.d) s"
    for paths in (("f.parquet",), ()):
        clauses = f"{UPDATE} WHEN NOT MATCHED AND s.a < 5 OR s.a = 7 THEN INSERT (id) VALUES (s.id) {DELETE}"
        found = spec(clauses, using=using, paths=paths, on="t.id = s.id AND t.day > 3")
        assert found["targetWhere"] == "(source.x > 1 OR source.c.d) AND target.day > 3"
        assert found["whenMatched"] == [{"action": "Update", "set": {"a": "source.x"}}]
        kept = "(source.x > 1 OR source.c.d) AND (source.x < 5 OR source.x = 7)"
        assert found["whenNotMatched"] == [{"when": kept, "action": "Insert", "values": {"id": "source.id"}}]
        assert found["whenNotMatchedBySource"] == [{"action": "Delete"}]


def test_conditions_around_the_newest_row_apply_in_their_order() -> None:
    numbered = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) AS n FROM u WHERE a > 1)"
    for using, where in (
        (f"(SELECT * FROM {numbered} WHERE n = 1 AND b = 2) s", "source.b = 2"),
        (f"(SELECT * FROM (SELECT * FROM {numbered} WHERE b = 2) WHERE n = 1) s", "source.b = 2"),
        (f"(SELECT * FROM (SELECT * FROM {numbered} WHERE n = 1) WHERE b = 2) s", "source.b = 2"),
        ("(SELECT * FROM u WHERE a > 1 QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) = 1) s", None),
    ):
        found = spec(UPDATE, using=using, paths=(), dialect="databricks")
        assert (found["source"], found["sequenceBy"]) == ({"table": {"name": "u", "where": "a > 1"}}, "seq"), using
        assert found.get("targetWhere") == where


def test_queries_of_with_stand_for_their_names() -> None:
    before = "WITH u AS (SELECT id, x AS a FROM u WHERE x > 1), v AS (SELECT * FROM u AS w WHERE w.a < 5) "
    found = spec("WHEN MATCHED THEN UPDATE SET *", before=before, using="v AS s", paths=())
    assert found["source"] == {"table": {"name": "u", "where": "x > 1 AND x < 5"}}
    assert found["whenMatched"] == [{"action": "Update", "set": {"id": "source.id", "a": "source.x"}}]


def test_names_without_alias_are_of_the_source_if_its_columns_are_listed() -> None:
    using = "(SELECT key AS sid, x AS b FROM u)"
    clauses = "WHEN MATCHED AND b > z THEN UPDATE SET a = b, y = z + 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (sid)"
    found = spec(clauses, using=using, on="id = sid AND z > 2")
    assert found["keys"] == [{"target": "id", "source": "key"}]
    assert found["targetWhere"] == "target.z > 2"
    assert found["whenMatched"] == [
        {"when": "source.x > target.z", "action": "Update", "set": {"a": "source.x", "y": "target.z + 1"}}
    ]
    assert found["whenNotMatched"] == [{"action": "Insert", "values": {"id": "source.key"}}]


def test_a_value_that_depends_on_conditions_becomes_a_clause_for_each_case() -> None:
    found = spec(
        "WHEN MATCHED AND t.a = 0 OR t.b "
        "THEN UPDATE SET a = CASE WHEN s.x = 1 OR s.y THEN 1 WHEN s.x > 5 THEN s.x END, "
        "b = if(s.x > 5, 'many', 'few'), c = s.c WHEN MATCHED THEN UPDATE SET a = nullif(s.x, 0) "
        "WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, CASE s.x WHEN 1 THEN nvl2(s.y, 1, 2) ELSE 3 END)"
    )
    first, fifth = "(target.a = 0 OR target.b)", "source.x > 5"
    either = "(source.x = 1 OR source.y)"
    assert [(clause.get("when"), clause["set"]) for clause in found["whenMatched"]] == [
        (f"{first} AND {either} AND {fifth}", {"a": "1", "b": "'many'", "c": "source.c"}),
        (f"{first} AND {either}", {"a": "1", "b": "'few'", "c": "source.c"}),
        (f"{first} AND {fifth}", {"a": "source.x", "b": "'many'", "c": "source.c"}),
        ("target.a = 0 OR target.b", {"a": "null", "b": "'few'", "c": "source.c"}),
        ("source.x = 0", {"a": "null"}),
        (None, {"a": "source.x"}),
    ]
    assert [(clause.get("when"), clause["values"]["a"]) for clause in found["whenNotMatched"]] == [
        ("source.x = 1 AND source.y IS NOT NULL", "1"),
        ("source.x = 1", "2"),
        (None, "3"),
    ]


def test_a_struct_that_the_statement_makes_gives_its_fields_values() -> None:
    found = merge("WHEN MATCHED THEN UPDATE SET t.s = named_struct('a', 1, 'in', named_struct('c d', s.x)), b = s.b")
    assert found.manifest is not None
    assert found.manifest["spec"]["whenMatched"] == [
        {"action": "Update", "set": {"s.a": "1", "s.in.c d": "source.x", "b": "source.b"}}
    ]
    assert found.notes[-1] == (
        "the table must not have other fields than those that the statement names in its structs"
    )


#: What becomes of rows that a subquery makes.
WRITTEN = ") that a MergeJob does not have: write the rows that it selects to files"
NEWEST = "(SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) AS n FROM u) WHERE n = 1) s"
ADDING = "MERGE WITH SCHEMA EVOLUTION INTO t USING s ON t.id = s.id "
STARS = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        (ADDING + STARS, ""),
        (f"/* merge with schema evolution into */ {ADDING.lower()}{STARS}", ""),
        (ADDING + "WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET a = s.a, op = s.op", ""),
        (ADDING + f"WHEN MATCHED AND t.id = 1 AND s.id > 0 THEN DELETE {STARS}", ""),
        (ADDING + f"WHEN MATCHED AND s.op = 'D' THEN DELETE {STARS}", "add the column 'op'"),
        (ADDING.replace("ON t.id", "ON s.v > 1 AND t.id") + STARS, "add the column 'v'"),
        (ADDING.replace("= s.id", "= s.key") + "WHEN MATCHED THEN UPDATE SET *", "add the column 'key'"),
        (ADDING.replace("USING s", f"USING {NEWEST}") + "WHEN MATCHED THEN UPDATE SET *", "add the column 'seq'"),
        (ADDING + "WHEN MATCHED THEN UPDATE SET a = named_struct('b', 1)", "can add fields"),
    ],
)
def test_columns_are_added_as_with_schema_evolution_does(statement: str, refused: str) -> None:
    found = translate(statement, Chosen(dialect=find_dialect("spark"), paths=("x.parquet",)))
    if refused:
        assert refused in " ".join(found.refused)
        assert ": name the " in found.refused[0]
    else:
        assert found.manifest is not None
        assert found.manifest["spec"]["schemaEvolution"] == "AddColumns"
        assert parse(dict(found.manifest)).spec is not None


def test_words_in_a_text_do_not_add_columns() -> None:
    found = spec("WHEN MATCHED THEN UPDATE SET a = 'merge with schema evolution into'")
    assert "schemaEvolution" not in found
    assert found["whenMatched"][0]["set"] == {"a": "'merge with schema evolution into'"}


DIALECTS = ("spark", "delta", "iceberg", "databricks", "trino", "snowflake", "bigquery")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_the_clauses(dialect: str) -> None:
    found = spec(
        "WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET a = s.a + 1, b = coalesce(s.b, t.b) "
        "WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.a) WHEN NOT MATCHED BY SOURCE AND t.a > 5 THEN DELETE",
        dialect=dialect,
    )
    assert found["whenMatched"][1]["set"] == {"a": "source.a + 1", "b": "coalesce(source.b, target.b)"}
    assert found["whenNotMatched"] == [{"action": "Insert", "values": {"id": "source.id", "a": "source.a"}}]
    assert found["whenNotMatchedBySource"] == [{"when": "target.a > 5", "action": "Delete"}]


#: What is refused, the part and words of the sentence, and what is changed to follow its way out.
WAYS_OUT: tuple[tuple[dict[str, Any], str, str, dict[str, Any]], ...] = (
    ({"on": "t.id <=> s.id"}, "ON", "lets null equal null", {"on": "t.id = s.id"}),
    ({"on": "t.id <=> s.id"}, "ON", "with --keys-not-null", {"keys_are_set": True}),
    ({"on": "t.id = cast(s.id AS INT)"}, "ON", "compares what is computed", {"on": "t.id = s.id"}),
    ({"on": "upper(t.id) = s.id"}, "ON", "compares what is computed", {"on": "t.id = s.id"}),
    ({"on": "t.id > s.id"}, "ON", "no column of the table equals", {"on": "t.id = s.id"}),
    ({"on": "t.id = s.id AND t.id = s.x"}, "ON", "equals two source columns", {"on": "t.id = s.id"}),
    ({"on": "id = s.id"}, "ON", "whose column it is", {"on": "t.id = s.id"}),
    ({"paths": (), "using": "My_Feed s"}, "USING", "with --source-table, or what", {"source_table": "my-feed"}),
    ({"paths": (), "using": "My_Feed s"}, "USING", "--path or", {"paths": ("feed/a.parquet",)}),
    ({"paths": (), "using": "c.d.u.files s"}, "USING", "is not a table in a namespace", {"using": "c.d.u s"}),
    ({"paths": (), "using": "d.u.tag_x s"}, "USING", "with it", {"using": "c.d.u.tag_x s"}),
    ({"paths": (), "using": "c.d.u.snapshot_id_x s"}, "USING", "write its id", {"using": "c.d.u.snapshot_id_7 s"}),
    (
        {"paths": (), "using": "u TIMESTAMP AS OF '2026-01-01' s"},
        "USING",
        "write VERSION AS OF with the id",
        {"using": "u VERSION AS OF 'audit' s"},
    ),
    ({"using": "(SELECT id, upper(a) AS a FROM u) s"}, "USING", "is computed", {"using": "(SELECT id, a FROM u) s"}),
    ({"using": "(SELECT * FROM u WHERE upper(a) = 'X') s"}, "USING", "is not an expression", {"using": "u s"}),
    (
        {"using": NEWEST.replace("FROM u", "FROM u WHERE a > 1")},
        "USING",
        "selects rows before the newest of each key is chosen: write the rows",
        {"paths": ()},
    ),
    (
        {"using": NEWEST.replace("FROM u", "FROM u WHERE u.c.x > 1"), "paths": ()},
        "USING",
        "selects rows before the newest of each key is chosen: write the rows",
        {"using": NEWEST},
    ),
    ({"using": NEWEST.replace("n = 1", "n = 2")}, "USING", "first row of each key: write = 1", {"using": NEWEST}),
    ({"using": "(SELECT * FROM u JOIN v ON u.id = v.id) s"}, "USING", f"JOINS{WRITTEN}", {"using": "u s"}),
    ({"using": "(SELECT DISTINCT * FROM u) s"}, "USING", f"DISTINCT{WRITTEN}", {"using": "u s"}),
    ({"using": "(SELECT id FROM u GROUP BY id) s"}, "USING", f"GROUP{WRITTEN}", {"using": "u s"}),
    ({"using": "(SELECT * FROM u LIMIT 5) s"}, "USING", f"LIMIT{WRITTEN}", {"using": "u s"}),
    ({"using": "(VALUES (1)) s"}, "USING", "neither a table nor a SELECT", {"using": "u s"}),
    ({"using": "u VERSION AS OF 3 s"}, "USING", "files have no versions: write the rows", {"using": "u s"}),
    ({"using": "u VERSION AS OF 3 s"}, "USING", "files have no versions: write the rows", {"paths": ()}),
    ({"using": "u TABLESAMPLE (10 PERCENT) s"}, "USING", f"SAMPLE{WRITTEN}", {"using": "u s"}),
    (
        {"before": "WITH RECURSIVE s AS (SELECT * FROM v) "},
        "The statement",
        f"RECURSIVE{WRITTEN}",
        {"before": "WITH s AS (SELECT * FROM v) "},
    ),
    (
        {"before": "WITH s(id, a) AS (SELECT x, y FROM v) "},
        "The statement",
        "name the columns in its SELECT",
        {"before": "WITH s AS (SELECT x AS id, y AS a FROM v) "},
    ),
    ({"using": NEWEST.replace("DESC", "ASC")}, "USING", "does not keep the greatest", {"using": NEWEST}),
    ({"using": NEWEST.replace("BY id", "BY a")}, "USING", "other columns than the keys", {"using": NEWEST}),
    ({"using": NEWEST, "clauses": INSERT}, "USING", "--keys-not-null", {"keys_are_set": True}),
    (
        {"using": NEWEST, "clauses": INSERT},
        "USING",
        "AND s.id IS NOT NULL",
        {"clauses": INSERT.replace("MATCHED", "MATCHED AND s.id IS NOT NULL")},
    ),
    (
        {"using": NEWEST, "clauses": "WHEN MATCHED AND s.n = 1 THEN DELETE"},
        "WHEN MATCHED (1), condition",
        "'n' numbers the rows",
        {"clauses": UPDATE},
    ),
    (
        {"using": NEWEST.replace(" WHERE n = 1", ""), "on": "t.id = s.id AND s.n = 1"},
        "ON",
        "by WHERE n = 1 in the subquery, and leave it out here",
        {"using": NEWEST, "on": "t.id = s.id"},
    ),
    (
        {"clauses": "WHEN MATCHED AND t.a < TIMESTAMP_NTZ '2026-01-02 00:00:00+05:00' THEN DELETE", "zone": "UTC"},
        "WHEN MATCHED (1), condition",
        "without an offset",
        {"clauses": "WHEN MATCHED AND t.a < TIMESTAMP_NTZ '2026-01-02 00:00:00' THEN DELETE"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = round(s.a, 2)", "dialect": "trino"},
        "WHEN MATCHED (1), a",
        "rules of trino",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN NOT MATCHED THEN INSERT VALUES (s.id)"},
        "WHEN NOT MATCHED (1)",
        "name them",
        {"clauses": INSERT},
    ),
    (
        {"clauses": "WHEN NOT MATCHED THEN INSERT *", "on": "t.id = s.key"},
        "WHEN NOT MATCHED",
        "name the columns and their values",
        {"clauses": "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.key)"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = upper(s.a)"},
        "WHEN MATCHED (1), a",
        "work it out",
        {"clauses": UPDATE},
    ),
    ({"clauses": "WHEN MATCHED THEN UPDATE SET a = a"}, "WHEN MATCHED (1), a", "write s.a or t.a", {"clauses": UPDATE}),
    (
        {"clauses": "WHEN NOT MATCHED THEN INSERT (id, t.a.b) VALUES (s.id, s.a)"},
        "WHEN NOT MATCHED (1)",
        "give the whole column a value",
        {"clauses": "WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.a)"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = try_cast(s.a AS INT)"},
        "WHEN MATCHED (1), a",
        "is null where the cast fails",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = cast(s.a AS SMALLINT)"},
        "WHEN MATCHED (1), a",
        "cast to boolean, int",
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = cast(s.a AS INT)"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = current_date()"},
        "WHEN MATCHED (1), a",
        "a clock",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = coalesce(CASE WHEN s.a = 1 THEN 2 END, 3)"},
        "WHEN MATCHED (1), a",
        "make it the whole value of a column",
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = CASE WHEN s.a = 1 THEN 2 ELSE 3 END"},
    ),
    (
        {"clauses": "WHEN MATCHED AND if(s.a = 1, s.b, s.c) THEN DELETE"},
        "WHEN MATCHED (1), condition",
        "for each case",
        {"clauses": "WHEN MATCHED AND s.a = 1 AND s.b THEN DELETE"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET " + ", ".join(f"c{n} = nullif(s.c{n}, 0)" for n in range(7))},
        "WHEN MATCHED (1)",
        "make more than 64 clauses",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = nullif(s.a, upper(s.b))"},
        "WHEN MATCHED (1), a",
        "is not an expression that a MergeJob has",
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = nullif(s.a, s.b)"},
    ),
    (
        {"clauses": "WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, named_struct('b', s.b))"},
        "WHEN NOT MATCHED (1), a",
        "makes a struct",
        {"clauses": "WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.a)"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a.b = 1, a = named_struct('b', 2)"},
        "WHEN MATCHED (1)",
        "the field 'a.b' gets two values",
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = named_struct('b', 2)"},
    ),
    (
        {"clauses": "WHEN MATCHED AND upper(s.a) = 'X' THEN DELETE"},
        "WHEN MATCHED (1), condition",
        "is not an expression that a MergeJob has",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = DEFAULT + 1"},
        "WHEN MATCHED (1), a",
        "write it alone",
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = DEFAULT"},
    ),
    (
        {"clauses": "WHEN MATCHED AND s.a LIKE t.a THEN DELETE"},
        "WHEN MATCHED (1), condition",
        "has no plain text as its pattern",
        {"clauses": "WHEN MATCHED AND s.a LIKE '%x' THEN DELETE"},
    ),
    (
        {"clauses": "WHEN MATCHED AND s.a IN (SELECT 1) THEN DELETE"},
        "WHEN MATCHED (1), condition",
        "asks another table",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN MATCHED AND t.d = DATE '2026-01-02' THEN DELETE"},
        "WHEN MATCHED (1), condition",
        "--time-zone",
        {"zone": "UTC"},
    ),
    (
        {"clauses": f"{UPDATE} WHEN MATCHED THEN DELETE"},
        "WHEN",
        "put that one last",
        {"clauses": f"WHEN MATCHED AND s.a = 1 THEN DELETE {UPDATE}"},
    ),
    (
        {"clauses": "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = s.a"},
        "WHEN NOT MATCHED BY SOURCE (1), a",
        "has no row here",
        {"clauses": "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = t.b"},
    ),
    ({"clauses": "WHEN MATCHED THEN UPDATE SET a = 'x\\ny'"}, "The statement", "has an escape", {"clauses": UPDATE}),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = 'it''s'"},
        "The statement",
        "behind another text",
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = 'it\\'s'"},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = s.a / 2", "dialect": "trino"},
        "WHEN MATCHED (1), a",
        "other digits in trino",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN MATCHED THEN UPDATE SET a = cast(s.a AS INT64)", "dialect": "bigquery"},
        "WHEN MATCHED (1), a",
        "rules of bigquery",
        {"clauses": UPDATE},
    ),
    (
        {"clauses": "WHEN NOT MATCHED THEN INSERT ROW", "dialect": "bigquery"},
        "WHEN NOT MATCHED (1)",
        "name them",
        {"clauses": INSERT},
    ),
    (
        {"clauses": "WHEN NOT MATCHED THEN INSERT VALUES (1, 2)", "dialect": "bigquery"},
        "WHEN NOT MATCHED (1)",
        "name",
        {"clauses": INSERT},
    ),
    (
        {"into": "d.orders.branch_dev AS t", "table": "orders"},
        "MERGE INTO",
        "name the table without its catalog, or the branch with it",
        {"into": "lake.d.orders.branch_dev AS t"},
    ),
    ({"table": "My_Table"}, "MERGE INTO", "--table", {"table": "my-table"}),
    ({"paths": (), "using": "My_Feed s"}, "USING", "or --delta", {"delta": "lake/s"}),
    ({"using": "s VERSION AS OF 3"}, "USING", "with --delta", {"paths": (), "delta": "lake/s"}),
    (
        {"using": "s TIMESTAMP AS OF '2026-01-01'", "paths": (), "delta": "lake/s"},
        "USING",
        "write VERSION AS OF 12",
        {"using": "s VERSION AS OF 12"},
    ),
    (
        {"clauses": "WHEN MATCHED AND " + " OR ".join(["s.a = 1"] * 600) + " THEN DELETE"},
        "The statement",
        "at most 4096 bytes",
        {"clauses": UPDATE},
    ),
)


@pytest.mark.parametrize(("given", "part", "words", "change"), WAYS_OUT, ids=lambda one: str(one)[:50])
def test_what_is_refused_is_named_with_a_way_out_that_works(
    given: dict[str, Any], part: str, words: str, change: dict[str, Any]
) -> None:
    whole = {"clauses": UPDATE, **given}
    clauses = whole.pop("clauses")
    (sentence,) = merge(clauses, **whole).refused
    assert sentence.startswith(f"{part}: ")
    assert words in sentence
    assert ": " in sentence.removeprefix(f"{part}: ")
    assert not sentence.endswith(".")
    followed = {"clauses": UPDATE, **given, **change}
    clauses = followed.pop("clauses")
    assert merge(clauses, **followed).manifest is not None


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.text[:60])
def test_shapes_of_other_suites_are_translated_or_refused_by_a_sentence(shape: Shape) -> None:
    chosen = Chosen(dialect=find_dialect("spark"), paths=("feed.parquet",), keys_are_set=shape.keys_are_set)
    found = translate(shape.text, chosen)
    assert bool(found.refused) == bool(shape.refused), found.refused
    assert shape.refused in " ".join(found.refused)
    if found.manifest is not None:
        resource = parse(dict(found.manifest))
        assert validate_spec(resource.kind, resource.spec) is None


def test_every_part_that_is_refused_is_named() -> None:
    found = merge(
        "WHEN MATCHED AND f(s.x) THEN UPDATE SET a = g(s.a), b = s.b, c = h(1) WHEN NOT MATCHED THEN INSERT ROW"
    )
    parts = [sentence.partition(": ")[0] for sentence in found.refused]
    assert parts == [
        "WHEN MATCHED (1), condition",
        "WHEN MATCHED (1), a",
        "WHEN MATCHED (1), c",
        "WHEN NOT MATCHED (1)",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are 0 statements: give one"),
        ("SELECT 1", "the statement is SELECT: give a MERGE INTO"),
        ("MERGE INTO t USING s", "is not SQL of spark"),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE; SELECT 1", "there are 2 statements"),
        ("WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE", "from no table"),
        ("WITH s AS (SELECT * FROM s) MERGE INTO t USING s ON 1 = 1 WHEN MATCHED THEN DELETE", "by keys"),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * EXCEPT (a)", "EXCEPT"),
        ("MERGE INTO o.t USING p.t ON t.id = t.id WHEN MATCHED THEN DELETE", "two aliases"),
    ],
)
def test_what_is_not_one_merge_is_refused(text: str, words: str) -> None:
    found = translate(text, Chosen(dialect=find_dialect("spark"), paths=("x.parquet",)))
    assert found.manifest is None
    assert words in " ".join(found.refused)


def test_bounds_are_those_of_the_resource() -> None:
    ours = {name: getattr(jobs, name) for name in vars(limits) if name.startswith("MAX_") and hasattr(jobs, name)}
    ours |= {name: getattr(sql2merge, name) for name in ("MAX_PATHS", "MAX_PATH")}
    assert len(ours) == 8
    assert ours == {name: getattr(limits, name) for name in ours}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dialect": "oracle"}, "--dialect is 'oracle': use spark,"),
        ({"paths": ["/abs/a.parquet"]}, "--path is '/abs/a.parquet': write a path below"),
        ({"paths": ["s3://b/a.parquet"]}, "--path is"),
        ({"paths": ["a/../b"]}, "--path is"),
        ({"paths": ["a"] * 65}, "--path is given 65 times"),
        ({"format": "xml"}, "--format is 'xml': use Csv,"),
        ({"location": "Bad Name"}, "--location is"),
        ({"columns": ["id=long"]}, "--column is for the formats Csv and Json, and for --hive-partitions"),
        ({"are_folders": True, "format": "Csv"}, "--hive-partitions is for the format Parquet only"),
        ({"are_folders": True}, "--hive-partitions is for files: name these with --path"),
        ({"delta": "/lake/events"}, "--delta is '/lake/events': write a path below the root"),
        ({"delta": "lake", "paths": ["a"]}, "--delta names a table, which --path does not describe"),
        ({"delta": "lake", "are_folders": True}, "which --hive-partitions does not describe"),
        ({"location": "landing"}, "--location is for files: name these with --path"),
        ({"columns": ["id=long"], "format": "Csv"}, "--column is for files: name these with --path"),
        ({"source_table": "No Name"}, "No Name"),
        ({"source_table": "feed", "paths": ["a"]}, "--source-table and --path both name the rows"),
        ({"source_table": "feed", "delta": "a"}, "--source-table and --delta both name the rows"),
        ({"columns": ["id=number"], "format": "Csv"}, "--column has id=number: write"),
        ({"zone": "Mars/Base"}, "--time-zone is 'Mars/Base': name a time zone"),
        ({"table": "No Name"}, "No Name"),
        ({"file": "no-such.sql"}, "no-such.sql cannot be read"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CliError) as refused:
        run_sql2merge(Screen(), Options(**{"file": "-", **options}))
    assert words in str(refused.value)


def test_a_source_in_json_gets_its_types(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"MERGE INTO d.t USING s ON t.id = s.id {UPDATE}"))
    options = Options(
        file="-", paths=["a", "b"], format="json", columns=["x=decimal(9,2)"], location="landing", name="m"
    )
    assert run_sql2merge(Screen(), options) is ExitCode.FINE
    manifest = yaml.safe_load(capsys.readouterr().out)
    assert manifest["metadata"] == {"name": "m"}
    assert manifest["spec"]["source"] == {
        "format": "Json",
        "location": "landing",
        "paths": ["a", "b"],
        "columns": [{"name": "x", "type": "decimal(9,2)"}],
    }
    resource = parse(manifest)
    assert validate_spec(resource.kind, resource.spec) is None


@pytest.mark.parametrize(
    ("using", "options", "source", "note"),
    [
        ("s", {"delta": "lake/s"}, {"delta": {"path": "lake/s"}}, "the Delta table must hold the rows of 's'"),
        (
            "delta.`/mnt/lake/s` VERSION AS OF 12 AS s",
            {"delta": "lake/s", "location": "mnt"},
            {"location": "mnt", "delta": {"path": "lake/s", "version": "12"}},
            "the Delta table must hold",
        ),
        (
            "s",
            {"paths": ["lake/s"], "are_folders": True, "columns": ["day=date"]},
            {
                "format": "Parquet",
                "paths": ["lake/s"],
                "hivePartitions": {"columns": [{"name": "day", "type": "date"}]},
            },
            "is text otherwise: some engines infer another type",
        ),
        (
            "parquet.`/mnt/lake/s` s",
            {"paths": ["lake/s"], "are_folders": True},
            {"format": "Parquet", "paths": ["lake/s"], "hivePartitions": {}},
            "the files must hold the rows of '/mnt/lake/s'",
        ),
    ],
)
def test_a_delta_table_and_folders_of_values_are_sources(  # noqa: PLR0917 - what pytest gives
    using: str,
    options: dict[str, Any],
    source: dict[str, Any],
    note: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"MERGE INTO d.t USING {using} ON t.id = s.id {UPDATE}"))
    assert run_sql2merge(Screen(), Options(file="-", dialect="delta", **options)) is ExitCode.FINE
    printed = capsys.readouterr()
    manifest = yaml.safe_load(printed.out)
    assert manifest["spec"]["source"] == source
    assert note in printed.err
    resource = parse(manifest)
    assert validate_spec(resource.kind, resource.spec) is None


def test_the_command_ends_with_2_and_prints_nothing_if_a_part_is_refused() -> None:
    words = [sys.executable, "-m", "skipstone_cli", "sql2merge", "--path", "x.parquet"]
    statement = f"MERGE INTO t USING s ON t.id <=> s.id {UPDATE}"
    done = subprocess.run(
        words, input=statement, capture_output=True, text=True, check=False, timeout=300, env={**os.environ}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("skipstone: ON: 't.id IS NOT DISTINCT FROM s.id' lets null equal null")
