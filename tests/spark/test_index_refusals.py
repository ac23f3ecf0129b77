"""Indexes that cannot be: wrong columns, no place to write, names taken. A sentence, and queries go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.errors import BadSpec, DependencyUnavailable, OutcomeUnknown
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on

WIDE = tuple(f"c{n}" for n in range(33))
K = index_on("k")


def rows() -> pa.Table:
    plain = {name: pa.array([1, 2, 3], pa.int32()) for name in WIDE}
    return pa.table(
        {
            "k": pa.array([1, 2, None], pa.int64()),
            "inner": pa.array([{"x": 1}, {"x": 2}, None], pa.struct([("x", pa.int64())])),
            "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
            "labels": pa.array([{"a": "b"}, {}, None], pa.map_(pa.string(), pa.string())),
            **plain,
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.create(rows().schema).append(rows())
    return made


def assert_queries_go_on(lake: Lake) -> None:
    assert lake.assert_exact("k = 2").num_rows == 1


@pytest.mark.parametrize(
    ("columns", "reason", "text"),
    [
        (("nope",), Reason.COLUMN_NOT_FOUND, "column 'nope' is not in the table"),
        (("K",), Reason.COLUMN_NOT_FOUND, "column 'K' is not in the table"),
        (("inner.x",), Reason.COLUMN_NOT_FOUND, "inside another column"),
        (("inner",), Reason.COLUMN_TYPE_UNSUPPORTED, "has no keys"),
        (("tags",), Reason.COLUMN_TYPE_UNSUPPORTED, "has no keys"),
        (("k", "labels"), Reason.COLUMN_TYPE_UNSUPPORTED, "'labels' is a map"),
        (("k", "k"), Reason.INVALID_SPEC, "named twice"),
        (WIDE, Reason.INVALID_SPEC, "33 columns given"),
        ((), Reason.INVALID_SPEC, "0 columns given"),
    ],
)
def test_columns_that_cannot_be_indexed_are_refused_with_a_sentence(
    lake: Lake, columns: tuple[str, ...], reason: Reason, text: str
) -> None:
    index = index_on(*columns)
    with pytest.raises(BadSpec, match=text) as error:
        lake.reindex(index)
    assert (error.value.reason, error.value.field) == (reason, "spec.columns")
    state = lake.state(index)
    assert (state.degraded, state.exists, state.segments_missing) == (reason, False, 1)
    assert_queries_go_on(lake)


@pytest.mark.parametrize(
    ("include", "reason", "text"),
    [
        (("nope",), Reason.COLUMN_NOT_FOUND, "column 'nope' is not in the table"),
        (("inner.x",), Reason.COLUMN_NOT_FOUND, "inside another column"),
        (
            ("tags",),
            Reason.COLUMN_TYPE_UNSUPPORTED,
            "cannot be included; create the index again with columns of simple types",
        ),
        (("c1", "c1"), Reason.INVALID_SPEC, "named twice"),
        (("c1", "k"), Reason.INVALID_SPEC, "'k' is among spec.columns already"),
        (WIDE, Reason.INVALID_SPEC, "33 columns given, name at most 32"),
    ],
)
def test_columns_that_cannot_be_included_are_refused_with_a_sentence(
    lake: Lake, include: tuple[str, ...], reason: Reason, text: str
) -> None:
    index = index_on("k", include=include)
    with pytest.raises(BadSpec, match=text) as error:
        lake.reindex(index)
    assert (error.value.reason, error.value.field) == (reason, "spec.include")
    state = lake.state(index)
    assert (state.degraded, state.exists, state.segments_missing) == (reason, False, 1)
    assert_queries_go_on(lake)


def test_the_most_columns_that_are_allowed_make_an_index(lake: Lake) -> None:
    widest = index_on(*WIDE[:32])
    lake.reindex(widest)
    assert lake.state(widest).segments_synced == 1
    assert lake.assert_exact(" and ".join(f"{name} = 2" for name in WIDE[:32])).num_rows == 1


def test_one_definition_under_two_names_makes_two_indexes_that_do_not_disturb_each_other(lake: Lake) -> None:
    twin = index_on("k", name="twin")
    for index in (K, twin):
        lake.reindex(index)
    assert [lake.state(index).segments_synced for index in (K, twin)] == [1, 1]
    assert lake.index_table(K).identifier != lake.index_table(twin).identifier
    assert_queries_go_on(lake)
    lake.catalog.drop_table(lake.index_table(twin).identifier)
    assert lake.state(K).segments_synced == 1
    assert_queries_go_on(lake)


def block_the_folder(lake: Lake) -> None:
    """A file where the folder of index tables should be: no account may write below it, root neither."""
    (lake.root / "indexes").write_text("read-only")


def refuse_tables(lake: Lake) -> None:
    """A catalog that lets nobody add tables."""
    add_trigger(lake, "insert")


def add_trigger(lake: Lake, change: str, when: str = "") -> None:
    refusal = "begin select raise(abort, 'not allowed'); end"
    with closing(sqlite3.connect(lake.root / "catalog.db")) as catalog, catalog:
        catalog.execute(f"create trigger refuse before {change} on iceberg_tables for each row {when} {refusal}")


@pytest.mark.parametrize(
    ("refuse", "reason"),
    [(block_the_folder, Reason.STORAGE_UNAVAILABLE), (refuse_tables, Reason.CATALOG_UNAVAILABLE)],
    ids=["storage", "catalog"],
)
def test_without_write_access_to_the_place_of_indexes_the_run_says_so_and_queries_go_on(
    tmp_path: Path, refuse: Callable[[Lake], None], reason: Reason
) -> None:
    lake = Lake(tmp_path, index_namespace="indexes")
    lake.create(rows().schema).append(rows())
    refuse(lake)
    with pytest.raises(DependencyUnavailable, match="cannot be created; let the Warehouse's account") as error:
        lake.reindex(K)
    assert error.value.reason is reason
    assert "indexes.t__si_idx" in str(error.value)
    state = lake.state(K)
    assert (state.exists, state.missing_segments, state.degraded) == (False, (1,), None)
    assert_queries_go_on(lake)


def test_access_lost_after_the_first_build_leaves_what_is_built_in_use(lake: Lake) -> None:
    lake.reindex(K)
    lake.table().append(rows())
    add_trigger(lake, "update", "when old.table_name like 't__si_%'")
    request = lake.request(K)
    with pytest.raises((DependencyUnavailable, OutcomeUnknown), match="not allowed"):
        run_reindex(request, Reporter(request), CommitPorts(pause=lambda _: None))
    state = lake.state(K)
    assert (state.segments_synced, state.missing_segments) == (1, (2,))
    assert not lake.plan("k = 2").indexes[0].is_broken
    assert lake.assert_exact("k = 2").num_rows == 2


def test_a_name_that_another_table_has_is_left_alone(lake: Lake) -> None:
    lake.reindex(K)
    identifier = lake.index_table(K).identifier
    lake.catalog.drop_table(identifier)
    foreign = lake.catalog.create_table(identifier, rows().schema)
    with pytest.raises(BadSpec, match="exists and is not an index table; rename or drop it") as error:
        lake.reindex(K)
    assert error.value.reason is Reason.RESOURCE_CONFLICT
    assert lake.catalog.load_table(identifier).metadata.table_uuid == foreign.metadata.table_uuid
    assert not lake.state(K).exists
    assert_queries_go_on(lake)
