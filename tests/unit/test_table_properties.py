"""Properties of Tables: what is listed has a checked value, and what is wrong is said in a sentence."""

from __future__ import annotations

import pytest
from skipstone_core.filter_sizes import FilterSize
from skipstone_core.table_properties import COLUMN_PROPERTIES, PROPERTIES, filter_sizes, find_ignored, find_problems

COLUMNS = {"id": "long", "ok": "boolean", "a.b": "string"}
GOOD = [
    ("write.merge.mode", "merge-on-read"),
    ("write.merge.mode", "Copy-On-Write"),
    ("write.parquet.row-group-limit", "1"),
    ("write.parquet.dict-size-bytes", "65536"),
    ("write.parquet.compression-codec", "ZSTD"),
    ("write.parquet.compression-level", "3"),
    ("write.metadata.metrics.default", "truncate(16)"),
    ("write.metadata.metrics.column.a.b", "counts"),
    ("write.parquet.bloom-filter-enabled.column.id", "true"),
    ("write.parquet.bloom-filter-fpp.column.id", "0.001"),
    ("write.parquet.bloom-filter-fpp.column.id", "1E-5"),
    ("write.parquet.bloom-filter-ndv.column.id", "100000"),
    ("write.parquet.bloom-filter-max-bytes", "65536"),
    ("comment", "anything at all"),
]
BAD = [
    ("write.merge.mode", "merge_on_read", "'merge_on_read' is not known: write copy-on-write or merge-on-read"),
    ("write.parquet.row-group-limit", "banana", "'banana' is not a whole number from 1 to 2147483647: write one"),
    ("write.parquet.row-group-limit", "9" * 400, "…' is not a whole number from 1 to 2147483647: write one"),
    ("write.parquet.row-group-limit", "0", "'0' is not a whole number"),
    ("write.parquet.row-group-limit", "-1", "'-1' is not a whole number"),
    ("write.parquet.row-group-limit", "1_000", "'1_000' is not a whole number"),
    ("write.parquet.row-group-limit", "\u0661", "is not a whole number"),
    ("write.parquet.row-group-limit", "5 ", "'5 ' is not a whole number"),
    ("write.metadata.delete-after-commit.enabled", " true", "' true' is not known: write true or false"),
    ("write.merge.mode", "merge-on-read ", "'merge-on-read ' is not known"),
    ("write.metadata.metrics.default", "full ", "write none, counts, full or truncate(n)"),
    ("write.metadata.metrics.default", "truncate( 16 )", "write none, counts, full or truncate(n)"),
    ("write.parquet.compression-codec", "lzma", "'lzma' is not known: write zstd, gzip"),
    ("write.parquet.compression-level", "23", "'23' is not a whole number from 0 to 22"),
    ("write.parquet.compression-level", "0", "'0' is not a whole number from 1 to 22: write one for the codec zstd"),
    ("write.metadata.metrics.default", "truncate(0)", "write none, counts, full or truncate(n)"),
    ("write.metadata.metrics.column.id", "some", "write none, counts, full or truncate(n)"),
    ("write.metadata.metrics.column.nope", "full", "the table has no column 'nope': name one of spec.columns"),
    ("write.parquet.bloom-filter-enabled.column.id", "yes", "'yes' is not known: write true or false"),
    ("write.parquet.bloom-filter-enabled.column.nope", "true", "the table has no column 'nope'"),
    ("write.parquet.bloom-filter-enabled.column.ok", "true", "is a boolean, which has no bloom filter"),
    ("write.parquet.bloom-filter-fpp.column.id", "1", "'1' is not a number between 0 and 1: write one, such as 0.01"),
    ("write.parquet.bloom-filter-fpp.column.id", "0.0", "'0.0' is not a number between 0 and 1"),
    ("write.parquet.bloom-filter-fpp.column.id", "1e-9999", "is not a number between 0 and 1"),
    ("write.parquet.bloom-filter-fpp.column.id", "nan", "'nan' is not a number between 0 and 1"),
    ("write.parquet.bloom-filter-fpp.column.ok", "0.1", "is a boolean, which has no bloom filter"),
    ("write.parquet.bloom-filter-ndv.column.id", "0", "'0' is not a whole number from 1"),
    ("write.parquet.bloom-filter-ndv.column.nope", "5", "the table has no column 'nope'"),
    ("write.parquet.bloom-filter-max-bytes", "1 MiB", "'1 MiB' is not a whole number from 1 to 134217728"),
    ("commit.retry.num-retries", "4", "not one of the properties that the resources reference lists: remove it"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_good_values_pass(name: str, value: str) -> None:
    assert list(find_problems({name: value}, COLUMNS)) == []


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_bad_values_are_refused_in_a_sentence(name: str, value: str, message: str) -> None:
    (problem,) = find_problems({name: value}, COLUMNS)
    assert problem.name == name
    assert message in problem.message
    assert len(problem.message) < 200


def test_a_level_needs_a_codec_that_has_levels() -> None:
    properties = {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "3"}
    (problem,) = find_problems(properties, COLUMNS)
    assert "the codec snappy has no levels: remove it" in problem.message


def test_every_property_but_the_comment_has_a_check_that_refuses_something() -> None:
    checks = {**PROPERTIES, **COLUMN_PROPERTIES}
    assert [name for name, check in checks.items() if check("\x00") is None] == ["comment"]


FOLLOWED = {
    "comment": "mine",
    "owner": "spark",
    "write.data.path": "/elsewhere",
    "write.format.default": "PARQUET",
    "write.merge.isolation-level": "snapshot",
    "write.metadata.metrics.default": "full",
    "write.object-storage.enabled": "false",
    "write.parquet.bloom-filter-adaptive-enabled": "true",
    "write.update.mode": "merge-on-read",
    "write.spark.fanout.enabled": "true",
    "write.delete.granularity": "partition",
}
IGNORED = {
    "commit.retry.num-retries": "9",
    "write.distribution-mode": "hash",
    "write.format.default": "orc",
    "write.merge.mod": "merge-on-read",
    "write.metadata.metrics.column.nope": "full",
    "write.metadata.metrics.default": "some",
    "write.parquet.bloom-filter-enabled.column.ok": "true",
    "write.parquet.bloom-filter-fpp.column.id": "1.5",
    "write.parquet.compression-level": "25",
    "write.wap.enabled": "TRUE",
}


def test_properties_of_a_foreign_table_are_followed_or_named() -> None:
    assert find_ignored(FOLLOWED, COLUMNS, deletes=False) == []
    assert find_ignored(IGNORED, COLUMNS, deletes=False) == sorted(IGNORED)
    assert find_ignored(FOLLOWED, COLUMNS, deletes=True) == ["write.delete.granularity"]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_a_table_may_declare_is_never_named_as_ignored(name: str, value: str) -> None:
    assert find_ignored({name: value}, COLUMNS, deletes=True) == []


def test_sizes_of_filters_are_read_by_column_and_what_cannot_be_used_counts_as_not_set() -> None:
    prefix = "write.parquet.bloom-filter"
    properties = {
        f"{prefix}-enabled.column.id": "true",
        f"{prefix}-enabled.column.a.b": "TRUE",
        f"{prefix}-enabled.column.ok": "false",
        f"{prefix}-fpp.column.id": "0.2",
        f"{prefix}-ndv.column.id": "many",
        f"{prefix}-ndv.column.a.b": "70",
        f"{prefix}-max-bytes": "4096",
    }
    assert filter_sizes(properties, COLUMNS) == {
        "id": FilterSize(rate=0.2, most_bytes=4096),
        "a.b": FilterSize(most_bytes=4096, distinct=70),
    }
    assert filter_sizes({f"{prefix}-enabled.column.id": "true", f"{prefix}-max-bytes": "-1"}, COLUMNS) == {
        "id": FilterSize()
    }


def test_a_filter_is_made_for_the_values_that_its_bytes_can_tell() -> None:
    assert FilterSize().values(1000) == 1000
    assert FilterSize(distinct=7).values(1000) == 7
    assert FilterSize(most_bytes=1024).values(10**6) == pytest.approx(1024 * 8 / 9.7, rel=0.1)
    assert FilterSize(rate=1e-300, most_bytes=1).values(10**6) == 1
