"""Entries of a covering index lie in the bucket that Spark's own hash of their keys gives, however they got there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from skipstone.indexes.buckets import Buckets, key_hashes
from skipstone.indexes.definition import stored_definition
from skipstone.indexes.keys import stored_keys
from skipstone.indexes.tables import IndexFile
from skipstone_core.contract.requests import IndexRef
from skipstone_core.errors import BadSpec
from skipstone_core.indexing import indexes as index_rules
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.unit.query_values import KINDS, random_values

BUCKETS = 4
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
BY_KEYS = index_on("k", "s", include=["n"], buckets=BUCKETS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def rows(seed: int, count: int = 100) -> pa.Table:
    random = Random(seed)
    keys = [None if random.random() < 0.1 else random.randrange(-50, 50) for _ in range(count)]
    texts = [None if random.random() < 0.1 else "\u20ac" * random.randrange(9) for _ in range(count)]
    return pa.table({"k": keys, "s": texts, "n": range(count)}, schema=SCHEMA)


def files_of(lake: Lake, index: IndexRef = BY_KEYS) -> tuple[IndexFile, ...]:
    return lake.index_table(index).entries


def assert_in_their_buckets(lake: Lake, index: IndexRef = BY_KEYS) -> None:
    """Every row has one entry, and each that lies in a bucket is in its own."""
    lake.assert_every_row_once(index)
    entries = lake.index_table(index).table.scan("kind = 'entry' and bucket is not null").to_arrow().combine_chunks()
    keys = [pa.concat_arrays([pa.nulls(0, column.type), *column.chunks]) for column in entries.select(["k0", "k1"])]
    found = Buckets(BUCKETS, ("long", "string")).of(keys)
    assert found.tolist() == entries["bucket"].to_pylist()


#: Storage types of the columns that can be keys of a covering index.
HASHED = {
    **{name: name for name in ("boolean", "long", "date", "timestamp", "timestamptz", "string", "binary")},
    "int": "long",
    "decimal": "decimal(2)",
}


def test_keys_are_hashed_as_spark_hashes_them(spark: SparkSession) -> None:
    random, count = Random(7), 300
    drawn = {name: pa.array(random_values(random, KINDS[name], count), KINDS[name].type) for name in HASHED}
    keys = {name: stored_keys(drawn[name], storage) for name, storage in HASHED.items()}
    view = spark.createDataFrame(pa.table({**drawn, "int": keys["int"]}))
    for names in (*((name,) for name in HASHED), ("string", "long"), ("binary", "date", "int"), tuple(HASHED)):
        found = key_hashes([keys[name] for name in names], [HASHED[name] for name in names])
        expected = view.selectExpr(f"hash({', '.join(f'`{name}`' for name in names)})").collect()
        assert found.view(np.int32).tolist() == [row[0] for row in expected], names


@pytest.mark.parametrize("word", ["", "a", "ab", "abc", "abcd", "abcde", "\x80\x7f\U0001f600" * 40])
def test_texts_of_any_length_are_hashed_wherever_they_stand(spark: SparkSession, word: str) -> None:
    texts = pa.array(["x" * 7, None, word, "y"])
    (expected,) = spark.createDataFrame([(word,)], "s string").selectExpr("hash(s)").first() or ()
    for keys, at in ((texts, 2), (texts.slice(2), 0), (texts.slice(1, 2), 1)):
        assert key_hashes([keys], ["string"]).view(np.int32)[at] == expected


def test_a_build_writes_each_bucket_into_files_of_its_own(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    for seed in range(3):
        table.append(rows(seed))
    lake.reindex(BY_KEYS)
    assert Counter(file.bucket for file in files_of(lake)) == dict.fromkeys(range(BUCKETS), 1)
    assert_in_their_buckets(lake)


def test_small_segments_are_one_file_until_they_are_merged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rules, "ROWS_PER_BUCKET", 40)
    table = lake.create(SCHEMA)
    table.append(rows(0, 1000))
    lake.reindex(BY_KEYS)
    for seed in range(1, 8):
        table.append(rows(seed, 30))
        lake.reindex(BY_KEYS)
    assert [file.bucket for file in files_of(lake)].count(None) == 7
    assert_in_their_buckets(lake)
    table.append(rows(9, 30))
    lake.reindex(BY_KEYS)
    assert None not in {file.bucket for file in files_of(lake)}
    assert_in_their_buckets(lake)


def test_the_number_of_files_does_not_grow_with_the_number_of_segments(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    most = 0
    for seed in range(40):
        table.append(rows(seed, 30))
        lake.reindex(BY_KEYS)
        most = max(most, len(files_of(lake)))
    assert most <= 2 * 8 * BUCKETS
    assert_in_their_buckets(lake)


def test_stale_entries_are_removed_and_the_others_stay_in_their_buckets(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    for seed in range(4):
        table.append(rows(seed))
    lake.reindex(BY_KEYS)
    table.overwrite(rows(9, 20))
    for snapshot in table.metadata.snapshots[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    lake.reindex(BY_KEYS)
    assert sum(file.records for file in files_of(lake)) == 20
    assert_in_their_buckets(lake)


def test_the_definition_is_read_back_with_its_buckets(lake: Lake) -> None:
    lake.create(SCHEMA).append(rows(0))
    lake.reindex(BY_KEYS)
    index = lake.index_table(BY_KEYS)
    assert index.definition.buckets == BUCKETS
    assert stored_definition({**index.table.properties, "skipstone.index.buckets": "8"}) is None


@pytest.mark.parametrize("kind", ["float", "double", "uuid", "time", "wide"])
def test_a_key_by_which_spark_does_not_shuffle_so_is_refused(lake: Lake, kind: str) -> None:
    types: dict[str, pa.DataType] = {
        "float": pa.float32(),
        "double": pa.float64(),
        "uuid": pa.uuid(),
        "time": pa.time64("us"),
        "wide": pa.decimal128(19, 2),
    }
    lake.create(pa.schema([("k", types[kind])]))
    with pytest.raises(BadSpec) as error:
        lake.reindex(index_on("k", buckets=BUCKETS))
    assert error.value.field == "spec.columns"
    assert error.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    assert "by which rows are not divided into buckets; create the index again with columns of" in str(error.value)


@pytest.mark.parametrize("buckets", [1, 1025])
def test_a_number_of_buckets_out_of_range_is_refused(lake: Lake, buckets: int) -> None:
    lake.create(SCHEMA)
    with pytest.raises(BadSpec, match=f"{buckets} buckets given, set 2 to 1024") as error:
        lake.reindex(index_on("k", buckets=buckets))
    assert error.value.field == "spec.buckets"
