"""What is not rewritten keeps its answer and says why, by a code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import skipstone
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from skipstone.query.plans.refusals import Refusal

from tests.spark.plans_bed import BY_K, TABLE, Bed, answer, bed, filled, kept, module_bed
from tests.spark.secondengine import second_spark

__all__ = ["bed", "filled", "kept", "module_bed"]

#: Code, and the query that meets it; t stands for the table.
RELATIONS: dict[str, tuple[Refusal, str]] = {
    "metadata table": (Refusal.METADATA_TABLE, "select count(*) from t.files where record_count = 100"),
    "changelog": (Refusal.CHANGELOG_TABLE, "select * from t.changes where k = 7"),
    "sample below the condition": (
        Refusal.SAMPLED,
        "select * from (select * from t tablesample (50 percent) repeatable (3)) where k = 7",
    ),
    "sample above the condition": (
        Refusal.SAMPLED,
        "select * from (select * from t where k in (7, 14)) tablesample (50 percent) repeatable (3)",
    ),
    "non-deterministic conjunct": (Refusal.NON_DETERMINISTIC, "select * from t where k = 7 and rand(3) < 2"),
    "non-deterministic column": (
        Refusal.NON_DETERMINISTIC,
        "select *, monotonically_increasing_id() < 0 from t where k = 7",
    ),
    "limit below the condition": (
        Refusal.LIMITED,
        "select count(*) <= 400 from (select * from t limit 300) where k = 7",
    ),
    "offset below the condition": (
        Refusal.LIMITED,
        "select count(*) <= 400 from (select * from t order by n offset 300) where k = 7",
    ),
    "null-supplying side": (
        Refusal.OUTER_JOIN,
        "select b.n from (select id from range(5)) a left join t b on a.id = b.n where b.k is null",
    ),
    "full outer join": (
        Refusal.OUTER_JOIN,
        "select b.n from (select id from range(5)) a full join t b on a.id = b.n where coalesce(b.k, 7) = 7",
    ),
    "no condition": (Refusal.NO_CONDITION, "select count(*) from t"),
    "condition on an aggregate": (Refusal.NO_CONDITION, "select n, count(*) from t group by n having count(*) = 7"),
    "a computed column": (
        Refusal.CONDITION,
        "with c as (select *, k as x from t) select n from c where x + 0 = 7",
    ),
    "collation": (Refusal.COLLATED, "select * from t where g = 'G13' collate utf8_lcase"),
    "cast": (Refusal.CAST, "select * from t where cast(g as binary) = x'673133'"),
    "function": (Refusal.CONDITION, "select * from t where k % 100 = 7"),
    "one arm without": (Refusal.CONDITION, "select * from t where k = 7 or n % 100 = 7"),
    "not equal": (Refusal.CONDITION, "select * from t where k <> 7"),
    "not in": (Refusal.CONDITION, "select * from t where k not in (7, 14)"),
    "not in with null": (Refusal.CONDITION, "select * from t where k not in (7, null)"),
    "not like": (Refusal.CONDITION, "select * from t where g not like 'g1%'"),
    "bytes that are not text": (Refusal.CONDITION, "select * from t where g = cast(x'ff' as string)"),
    "a column that no index leads with": (Refusal.INDEX_NOT_USED, "select * from t where n > 150"),
    "everything is hit": (Refusal.INDEX_NOT_USED, "select * from t where k >= 0"),
}


@pytest.mark.parametrize(("code", "text"), RELATIONS.values(), ids=RELATIONS.keys())
def test_a_relation_is_left_as_it_is(module_bed: Bed, code: Refusal, text: str) -> None:
    found = module_bed.query(
        text.replace(" t", f" {TABLE}", 1).replace("from t", f"from {TABLE}").replace("join t ", f"join {TABLE} ")
    )
    assert found.refusals == [code]
    assert found.explanation.relations[0].refusal is code


def test_every_code_says_a_sentence() -> None:
    assert all(code.sentence.endswith(".") for code in Refusal)


def keyed(bed: Bed) -> DataFrame:
    """A query that an index serves."""
    return bed.spark.sql(f"select n from {TABLE} where k = 7")


def test_a_session_switches_indexes_off(module_bed: Bed) -> None:
    module_bed.spark.conf.set("skipstone.enabled", "false")
    try:
        df = keyed(module_bed)
        assert skipstone.rewrite(df) is df
        assert skipstone.explain(df).refusal is Refusal.SWITCHED_OFF
    finally:
        module_bed.spark.conf.unset("skipstone.enabled")
    assert skipstone.explain(keyed(module_bed)).is_rewritten


def test_a_query_switches_indexes_off(module_bed: Bed) -> None:
    plain = skipstone.no_index(keyed(module_bed))
    assert skipstone.rewrite(plain) is plain
    assert skipstone.explain(plain).refusal is Refusal.SWITCHED_OFF
    df = keyed(module_bed)
    assert skipstone.no_index(skipstone.rewrite(df)) is df


def test_a_query_that_cannot_be_planned_is_left_as_it_is(module_bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    """Spark does not move a subquery of a select list below a union, whoever wrote the union."""
    union = f"(select n from {TABLE} where k = 7 union all select n from {TABLE} where k = 14)"
    df = module_bed.spark.sql(f"select *, exists (select 1 from {TABLE} b where b.k = 21 and b.n = u.n) from {union} u")
    assert skipstone.rewrite(df) is df
    assert {one.refusal for one in skipstone.explain(df).relations} == {Refusal.CANNOT_PLAN}
    assert "CannotPlan: the query runs without indexes" in caplog.text


def test_a_stream_is_left_as_it_is(module_bed: Bed) -> None:
    stream = module_bed.spark.readStream.table(TABLE).where("k = 7")
    assert skipstone.rewrite(stream) is stream
    assert skipstone.explain(stream).refusal is Refusal.STREAMING


def test_a_recursive_query_is_left_as_it_is(module_bed: Bed) -> None:
    text = f"""with recursive r(n) as (select n from {TABLE} where k = 7 union all select n + 1 from r where n < 4)
               select n from r"""
    df = skipstone.sql(module_bed.spark, text)
    assert [row.n for row in df.orderBy("n").collect()] == [1, 2, 3, 4]
    assert skipstone.explain(df).refusal is Refusal.RECURSIVE


def test_what_a_script_gave_is_read_by_nothing(module_bed: Bed) -> None:
    df = skipstone.sql(module_bed.spark, f"begin declare x int default 7; select n from {TABLE} where k = x; end")
    assert skipstone.explain(df).refusal is Refusal.LOCAL_ROWS
    assert len(df.collect()) == 1


COMMANDS = {
    "insert": "insert into {t} select k, g, n + 1000 from {t} where k = 7",
    "with": "with c as (select * from {t} where k = 7) insert into {t} select k, g, n + 1000 from c",
    "delete": "delete from {t} where k = 7",
    "update": "update {t} set n = n + 1000 where k = 7",
    "merge": "merge into {t} using (select k, n from {t} where k = 7) s on t.k = s.k when matched then delete",
}


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_runs_once(filled: Bed, text: str) -> None:
    before = len(filled.lake.table().snapshots())
    done = skipstone.sql(filled.spark, text.format(t=TABLE))
    assert skipstone.explain(done).refusal is Refusal.COMMAND
    assert len(filled.lake.table().snapshots()) == before + 1
    assert filled.spark.table(TABLE).count() in (399, 400, 401)


def test_a_cached_relation_stays_cached(filled: Bed) -> None:
    cached = filled.spark.table(TABLE).cache()
    try:
        found = filled.check(cached.where("k = 7"))
        assert found.refusals == [Refusal.CACHED]
        assert "InMemory" in found.plan
    finally:
        cached.unpersist()
    assert filled.check(filled.spark.table(TABLE).where("k = 7")).files_read == [1]


def test_a_table_read_by_its_path_has_no_catalog(filled: Bed) -> None:
    df = filled.spark.read.format("iceberg").load(filled.lake.table().metadata_location).where("k = 7")
    assert filled.check(df).refusals == [Refusal.NO_CATALOG]


def test_an_incremental_read_is_left_as_it_is(filled: Bed) -> None:
    first, *_, last = (str(snapshot.snapshot_id) for snapshot in filled.lake.table().snapshots())
    reader = filled.spark.read.option("start-snapshot-id", first).option("end-snapshot-id", last)
    found = filled.check(reader.table(TABLE).where("k = 7"))
    assert found.refusals == [Refusal.READ_OPTION]
    assert "end-snapshot-id" in found.only.detail


def test_a_branch_to_be_published_is_left_as_it_is(filled: Bed) -> None:
    filled.spark.sql(f"alter table {TABLE} set tblproperties ('write.wap.enabled' = 'true')")
    filled.spark.conf.set("spark.wap.branch", "audit")
    assert filled.check(keyed(filled)).refusals == [Refusal.READ_OPTION]


def test_row_lineage_is_left_as_it_is(bed: Bed) -> None:
    bed.spark.sql(f"create table {TABLE} (k bigint, n int) using iceberg tblproperties ('format-version' = '3')")
    for start in (0, 100):
        bed.spark.sql(f"insert into {TABLE} select id * 7 % 100, id + {start} from range(100)")
    bed.reindex(BY_K)
    assert bed.query(f"select _row_id, n from {TABLE} where k = 7").refusals == [Refusal.ROW_LINEAGE]
    for named in ("_pos", "_file", "_spec_id", "_deleted", "_partition", "_pos, _file, _spec_id, _deleted, _partition"):
        assert bed.query(f"select {named}, n from {TABLE} where k = 7").files_read, named
    assert bed.query(f"select n from {TABLE} where k = 7 and _pos >= 0 and _file is not null").files_read
    joined = f"select a.n, b._pos from {TABLE} a join {TABLE} b on a.k = b.k and a._file = b._file where a.k = 7"
    assert len(bed.query(joined).files_read) == 2
    for text in (
        f"select n from {TABLE} where k = 7 and _row_id >= 0",
        f"select n, _pos from {TABLE} where k = 7 and n in (select _row_id from {TABLE})",
        f"select n, (select max(u.n) from {TABLE} u where u.n = t._row_id) from {TABLE} t where k = 7",
    ):
        assert Refusal.ROW_LINEAGE in bed.query(text).refusals, text


def test_tables_without_rows_and_without_indexes(bed: Bed) -> None:
    bed.spark.sql(f"create table {TABLE} (k bigint, n int) using iceberg")
    assert bed.check(keyed(bed)).refusals == [Refusal.EMPTY]
    bed.spark.sql(f"insert into {TABLE} values (7, 1)")
    assert bed.check(keyed(bed)).refusals == [Refusal.NO_INDEX]


def test_hits_in_every_file_are_left_to_spark_however_few_they_are(bed: Bed) -> None:
    bed.fill(properties={"write.parquet.row-group-limit": "10"})
    bed.reindex(BY_K)
    found = bed.query(f"select * from {TABLE} where k in (0, 100, 200, 300)")
    assert found.refusals == [Refusal.NOT_NARROWING]
    assert len(found.answer) == 4


def test_an_encrypted_table_is_left_as_it_is(filled: Bed) -> None:
    filled.spark.sql(f"alter table {TABLE} set tblproperties ('encryption.key-id' = 'key')")
    assert skipstone.explain(keyed(filled)).relations[0].refusal is Refusal.ENCRYPTED


def test_every_code_is_shown_by_a_test_and_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "indexes.md").read_text()
    tests = "".join(
        (Path(__file__).parent / f"test_plans_{name}.py").read_text()
        for name in ("refusals", "lists", "connect", "layouts", "included", "pandas", "rules", "hints")
    )
    for code in Refusal:
        assert f"Refusal.{code.name}" in tests, code
        assert f"| `{code.value}` | {code.sentence} |" in guide, code


def test_columns_of_a_branch_that_are_others_now(filled: Bed) -> None:
    filled.lake.table().manage_snapshots().create_branch(
        filled.lake.table().current_snapshot().snapshot_id, "old"
    ).commit()
    assert filled.query(f"select n from {TABLE}.branch_old where k = 7").files_read == [1]
    for statement in ("drop column k", "add column k bigint"):
        filled.spark.sql(f"alter table {TABLE} {statement}")
    found = filled.query(f"select n from {TABLE}.branch_old where k = 7")
    assert found.refusals == [Refusal.SCHEMA_DIFFERS]


def test_metadata_that_is_gone_leaves_the_query_to_spark(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    bed.fill()  # metadata that was never read before
    bed.reindex(BY_K)
    keeping = second_spark(bed.spark, bed.lake.warehouse)
    keeping.conf.set("spark.sql.catalog.skipstone.cache-enabled", "true")
    df, known = keyed(bed), keyed(Bed(bed.lake, keeping))
    expected = answer(df)
    assert answer(known) == expected
    location = bed.lake.table().metadata_location.removeprefix("file://")
    hidden = _hide(location)
    try:
        assert skipstone.rewrite(df) is df
        assert skipstone.rewrite(known) is known
        assert [answer(df), answer(known)] == [expected, expected]
        assert skipstone.explain(df).refusal is Refusal.FAILED
        assert "Failed: the query runs without indexes" in caplog.text
        assert skipstone.explain(known).relations[0].refusal is Refusal.FAILED
        assert "Failed: skipstone.ns.t is read without indexes" in caplog.text
    finally:
        hidden()


def _hide(location: str) -> Callable[[], object]:
    moved = Path(location).rename(f"{location}.hidden")
    return lambda: moved.rename(location)


def test_what_depends_on_the_layout_is_told_from_what_does_not(module_bed: Bed) -> None:
    df = module_bed.spark.table(TABLE).where("k = 7")
    assert module_bed.check(df.withColumn("twice", F.col("n") * 2)).files_read == [2]
    unstable = F.udf(lambda n: n, "int").asNondeterministic()
    assert module_bed.check(df.withColumn("same", unstable("n"))).refusals == [Refusal.NON_DETERMINISTIC]
