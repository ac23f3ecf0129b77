"""Queries on keys and included columns are answered from the index, by the driver or by tasks: same rows, all types."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
import skipstone
from pyiceberg.types import DoubleType, LongType
from pyspark.sql import SparkSession
from skipstone.query.plans import cost
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing import indexscan
from skipstone.tables.arrow import arrow_schema
from skipstone_core.indexing import use as index_use

from tests.spark.index_bed import index_on, local
from tests.spark.kept import Kept
from tests.spark.plans_bed import TABLE, Bed, answer, open_bed, staged
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.spark.test_plans_driver import PLAIN, SCHEMA, filled, row

HELD = [name for name in PLAIN.split(", ") if name != "k"]
BY_K = index_on("k", include=HELD)
#: A covering index answers likewise: its entries lie in buckets.
BY_TEXT = index_on("text", "small", name="by_text", include=["single", "id"], buckets=3)
EARLY = f"select {PLAIN} from {TABLE} where k < 40"


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Three files under both indexes."""
    made = filled(open_bed(spark, tmp_path_factory.mktemp("lake")))
    made.reindex(BY_K, BY_TEXT)
    made.lake.catalog.close()
    return Kept(made.lake.root, tmp_path_factory.mktemp("kept"))


@pytest.fixture(autouse=True)
def _at_any_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "WORTHWHILE_PART", 1e9)
    monkeypatch.setattr(index_use, "SCAN_ROWS_PART", 1e9)


#: Rows that the driver reads at most: none, fewer than the queries give, as usual.
@pytest.fixture(params=[0, 20, None], ids=["tasks", "too many", "driver"])
def bed(spark: SparkSession, kept: Kept, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """The lake, to be changed."""
    made = open_bed(spark, kept.restored(), driver_rows=request.param)
    yield made
    made.lake.catalog.close()


@pytest.fixture
def tasks(spark: SparkSession, kept: Kept) -> Iterator[Bed]:
    """The lake in a session whose driver reads no rows."""
    made = open_bed(spark, kept.restored())
    yield made
    made.lake.catalog.close()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (f"select {PLAIN} from {TABLE} where k between 0 and 400", 401),
        (f"select * from (select {PLAIN} from {TABLE}) where k < 27", 27),
        (f"select k, double, single from {TABLE} where k < 100 and (isnan(single) or double <= 0.0 or k > 70)", 32),
        (f"select id, single from {TABLE} where text like 'text4%'", 111 * 6),
        (f"select count(*) from {TABLE} where k > 1500 and money is not null group by small % 30", 30),
        (f"select a.k, b.text from {TABLE} a join {TABLE} b on a.k = b.k + 1 where a.k < 50 and b.k < 50", 49),
        (f"select id from {TABLE} where text = 'text7' or text like 'text8%'", 12 * 6),
    ],
)
def test_a_query_opens_no_file_of_the_table(bed: Bed, text: str, rows: int) -> None:
    bed.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    found = bed.query(text)
    for relation in found.explanation.relations:
        assert (staged(relation), relation.refusal) == (0, None), found.explanation
        assert (relation.scan is None) == bool(relation.driver and relation.driver.takes_answer)
    assert len(found.answer) == rows


def test_rows_of_files_that_the_index_misses_stand_beside_those_that_it_holds(bed: Bed) -> None:
    late = [row(number) for number in range(30)]
    bed.lake.table().append(pa.Table.from_pylist(late, schema=arrow_schema(SCHEMA)))
    found = bed.query(EARLY)
    assert (len(found.answer), found.only.plan and found.only.plan.funnel.read) == (70, 1)


#: Rows of a table by its index, some of which a semi join keeps; the query names two tables.
SEMI = "select {} from {} a where k < 40 and exists (select 1 from {} b where b.small = a.small and b.id <> a.id)"


@pytest.mark.parametrize("synced", [True, False], ids=["all", "two of three"])
def test_the_other_side_of_a_semi_join_is_read_once(bed: Bed, *, synced: bool) -> None:
    if not synced:
        bed.lake.table().append(pa.Table.from_pylist([row(7)], schema=arrow_schema(SCHEMA)))
    found = bed.query(SEMI.format(PLAIN, TABLE, TABLE))
    assert found.plan.count("BatchScan") <= 2, found.plan
    first = found.explanation.relations[0]
    assert first.refusal is (None if synced or first.driver else Refusal.READ_TWICE), found.explanation


def test_entries_of_files_that_are_gone_are_left_out(bed: Bed) -> None:
    table = bed.lake.table()
    table.overwrite(pa.Table.from_pylist([row(5)], schema=arrow_schema(SCHEMA)), overwrite_filter="k < 1000")
    bed.reindex(BY_K)
    for number in range(3):
        bed.lake.table().append(pa.Table.from_pylist([row(number)], schema=arrow_schema(SCHEMA)))
    bed.reindex(BY_K)
    assert len(bed.query(EARLY).answer) == 4
    assert len(bed.query(f"select small from {TABLE} where k < 1020").answer) == 24


def test_rows_deleted_by_position_are_left_out_and_files_with_other_deletes_are_read(bed: Bed) -> None:
    first = next(task.file for task in bed.lake.table().scan(row_filter="k = 7").plan_files())
    add_position_delete(bed.lake.table(), first, range(2, 10))
    found = bed.query(EARLY)
    assert (len(found.answer), staged(found.only)) == (32, 0), found.explanation
    add_equality_delete(bed.lake.table(), {"k": [11, 1011]})
    found = bed.query(f"select {PLAIN} from {TABLE} where k < 40 or k between 1000 and 1040 or k > 2990")
    assert len(found.answer) == 31 + 40 + 9
    assert found.only.plan is not None
    assert found.only.plan.answer is None


DIVIDED = "select k, 100 / (k - 3) from {t} where k < 40 and k <> 3 or k > 2990"


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("select k from {t} where k < 40 and 100 / (k - 3) < 5 or k between 2000 and 2010", 1),
        ("select k from (select k, 100 / (k - 3) as x from {t} where k < 40 or k > 2990) where x < 5", 1),
        ("select k from {t} where 100 / (k - 1500) < 5 and k > 2000", 0),
        ("select k from {t} where k % 7 = 3 and k < 40 or k > 2990", 0),
        (f"select k from (select 0 as k, 1 as x union all {DIVIDED}) where x < 5", 1),
        (f"select 0 as k, 1 as x union all {DIVIDED}", 0),
    ],
)
def test_a_condition_that_fails_on_rows_which_spark_does_not_read_does_not_fail(
    tasks: Bed, text: str, files: int
) -> None:
    first = next(task.file for task in tasks.lake.table().scan(row_filter="k = 3").plan_files())
    add_position_delete(tasks.lake.table(), first, [3])
    found = tasks.query(text.format(t=TABLE))
    assert found.answer
    assert found.only.scan is not None
    assert staged(found.only) == files, found.explanation


def test_files_of_which_too_much_is_deleted_are_read(tasks: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "INDEX_SCAN_DELETED", 7)
    first = next(task.file for task in tasks.lake.table().scan(row_filter="k = 7").plan_files())
    add_position_delete(tasks.lake.table(), first, range(2, 10))
    found = tasks.query(f"select {PLAIN} from {TABLE} where k < 40 or k > 1990")
    assert (len(found.answer), staged(found.only)) == (32 + 1009, 1)


def test_the_files_whose_entries_count_are_named_in_the_shorter_way(
    tasks: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def condition() -> str | None:
        found = tasks.query(f"select k, small from {TABLE} where k >= 0 and small is not null").only.scan
        return found.condition if found else None

    for number in range(5):
        tasks.lake.table().append(pa.Table.from_pylist([row(5000 + number)], schema=arrow_schema(SCHEMA)))
    tasks.reindex(BY_K)
    assert condition() == "file_id between 0 and 7"
    tasks.lake.table().delete("k >= 5000 and k < 5002")
    assert condition() == "file_id between 0 and 7 and file_id not in (3, 4)"
    tasks.lake.table().delete("k >= 1000 and k < 5004")
    assert condition() == "file_id in (0, 7)"
    monkeypatch.setattr(cost, "INDEX_SCAN_NAMED_FILES", 1)
    assert condition() is None


def test_a_column_widened_after_some_files_keeps_its_values(bed: Bed) -> None:
    with bed.lake.table().update_schema() as update:
        update.update_column("small", LongType()).update_column("single", DoubleType())
        update.rename_column("money", "cash")
    late = arrow_schema(bed.lake.table().schema())
    changed = [{**row(n), "small": 2**40, "single": 0.1, "cash": None} for n in range(30)]
    bed.lake.table().append(pa.Table.from_pylist(changed, schema=late))
    bed.reindex(BY_K)
    text = f"select k, small, single, cash from {TABLE} %s where k < 40"
    assert len(bed.query(text % "").answer) == 70
    before = bed.lake.table().history()[-2].snapshot_id
    old = bed.query(text.replace("cash", "money") % f"version as of {before}")
    assert (len(old.answer), staged(old.only)) == (40, 0), old.explanation


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_index_lost_after_planning_leaves_its_files_to_tasks(tasks: Bed, *, is_gone: bool) -> None:
    assert tasks.query(EARLY).only.scan  # its footers are remembered now
    for entry in tasks.lake.index_table(BY_K).entries:
        if is_gone:
            local(entry.path).unlink()
        else:
            local(entry.path).write_bytes(b"PAR1")
    assert len(tasks.query(EARLY).answer) == 40


def test_a_session_may_keep_its_tasks_from_indexes(tasks: Bed) -> None:
    tasks.spark.conf.set("skipstone.indexScans", "false")
    found = tasks.query(EARLY)
    assert (found.only.scan, found.refusals) == (None, [Refusal.INDEX_NOT_USED])


def test_an_index_dropped_while_a_query_is_planned_is_not_read(tasks: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = indexscan.plan_index_scan

    def drop_then_plan(*given: object) -> object:
        tasks.lake.catalog.drop_table(tasks.lake.index_table(BY_K).identifier)
        return plan(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("skipstone.query.plans.replacing.choice.plan_index_scan", drop_then_plan)
    df = skipstone.sql(tasks.spark, EARLY)
    assert len(answer(df)) == 40


def test_explain_says_who_reads_the_index(tasks: Bed) -> None:
    said = str(tasks.query(EARLY).explanation)
    assert "read by tasks from the index alone: 1 files, by t__si_idx" in said


@pytest.mark.parametrize(("column", "is_cheaper"), [("k", True), (PLAIN, False)])
def test_tasks_read_what_costs_less(
    tasks: Bed, monkeypatch: pytest.MonkeyPatch, column: str, *, is_cheaper: bool
) -> None:
    monkeypatch.setattr(index_use, "WORTHWHILE_PART", 0.5)
    monkeypatch.setattr(index_use, "OPEN_BYTES", 0)
    found = tasks.query(f"select {column} from {TABLE} where k >= 0")
    assert (found.only.scan is not None) == is_cheaper, found.explanation
    monkeypatch.setattr(index_use, "SCAN_ROWS_PART", 0.9)
    assert tasks.query(f"select {column} from {TABLE} where k >= 0").only.scan is None


def test_an_answer_is_weighed_against_nothing_when_the_driver_reads_all_hits(
    spark: SparkSession, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "DRIVER_ANSWER_BYTES", 0)
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.4)
    made = open_bed(spark, kept.restored(), driver_rows=None)
    found = made.query(f"select k, id from {TABLE} where k = 7")
    (relation,) = found.explanation.relations
    assert (relation.refusal, relation.scan) == (None, None), found.explanation
    assert relation.driver is not None and relation.driver.ordinals
    assert len(found.answer) == 1
    made.lake.catalog.close()
