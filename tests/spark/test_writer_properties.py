"""Table properties of how files are written: each does what it says, or is refused with a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType
from pyspark import SparkContext
from skipstone.files.writer import write_spec
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.errors import BadSpec
from skipstone_core.table_properties import find_problems

from tests.spark.merge_bed import MergeBed, task_of

#: So large that the JVM takes them as long, as the column is.
KEYS = [1 << 40 | number for number in range(60)]
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "s", StringType()), NestedField(3, "ok", BooleanType())
)
BLOOM = "write.parquet.bloom-filter-enabled.column."


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def row(key: int, text: str = "old") -> dict[str, Any]:
    return {"id": key, "s": f"{text} {key}", "ok": True}


def chunks(bed: MergeBed) -> dict[str, list[pq.ColumnChunkMetaData]]:
    """The column chunks of all live files by column."""
    groups = [pq.read_metadata(path).row_group(0) for path in sorted(bed.paths())]
    return {name: [group.column(position) for group in groups] for position, name in enumerate(("id", "s", "ok"))}


def may_hold(path: str, column: str, value: int) -> bool:
    """What Java finds in the bloom filter of a column of the first row group."""
    SparkContext._ensure_initialized()
    apache = SparkContext._jvm.org.apache  # type: ignore[union-attr]
    source = apache.parquet.hadoop.util.HadoopInputFile.fromPath(
        apache.hadoop.fs.Path(f"file://{path}"), apache.hadoop.conf.Configuration()
    )
    reader = apache.parquet.hadoop.ParquetFileReader.open(source)
    try:
        block = reader.getFooter().getBlocks()[0]
        chunk = next(one for one in block.getColumns() if one.getPath().toDotString() == column)
        found = reader.getBloomFilterDataReader(block).readBloomFilter(chunk)
        return bool(found.findHash(found.hash(value)))
    finally:
        reader.close()


def test_bloom_filters_are_written_and_stay_when_files_are_rewritten(bed: MergeBed) -> None:
    bed.create(SCHEMA, **{f"{BLOOM}id": "true", f"{BLOOM}ok": "true", f"{BLOOM}gone": "true"})
    bed.append([row(key) for key in KEYS])
    before = bed.paths()
    report = bed.merge(task_of(bed.source([row(KEYS[3], "new")])))  # the ids are copied, not encoded again
    assert (report.outcome, bed.paths() & before) == (RunOutcome.COMMITTED, set())
    (path,) = bed.paths()
    assert all(may_hold(path, "id", key) for key in KEYS)
    assert sum(may_hold(path, "id", key + 1000) for key in KEYS) < 10
    assert [chunk.bloom_filter_offset for chunk in chunks(bed)["s"]] == [None]


def test_filters_follow_the_property(bed: MergeBed) -> None:
    bed.create(SCHEMA, **{f"{BLOOM}id": "true"})
    bed.append([row(key) for key in KEYS])
    with bed.table().transaction() as change:
        change.remove_properties(f"{BLOOM}id")
        change.set_properties({f"{BLOOM}s": "true"})
    bed.merge(task_of(bed.source([{**row(KEYS[3]), "ok": False}])))
    assert {name: found[0].bloom_filter_length is not None for name, found in chunks(bed).items()} == {
        "id": False,
        "s": True,
        "ok": False,
    }


def test_the_size_of_dictionaries_is_limited(bed: MergeBed) -> None:
    bed.create(SCHEMA, **{"write.parquet.dict-size-bytes": "100"})
    bed.append([row(key) for key in KEYS for _ in range(50)])
    with bed.table().transaction() as change:
        change.remove_properties("write.parquet.dict-size-bytes")
    bed.append([row(key) for key in KEYS for _ in range(50)])
    sizes = sorted(found.total_uncompressed_size for found in chunks(bed)["s"])
    assert sizes[1] > 2 * sizes[0]


def test_only_the_first_columns_have_metrics_by_default(bed: MergeBed) -> None:
    mine = {"write.metadata.metrics.max-inferred-column-defaults": "1", "write.metadata.metrics.column.ok": "counts"}
    bed.create(SCHEMA, **mine)
    bed.append([row(KEYS[0])])
    (task,) = bed.table().scan().plan_files()
    assert (set(task.file.lower_bounds), set(task.file.value_counts)) == ({1}, {1, 3})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("write.merge.mode", "merge_on_read", "'merge_on_read' is not known: write copy-on-write or merge-on-read"),
        ("write.parquet.row-group-limit", "banana", "'banana' is not a whole number from 1 to"),
        ("write.parquet.compression-codec", "lzo", "'lzo' is not known: write zstd"),
    ],
)
def test_a_merge_refuses_what_it_does_not_know(bed: MergeBed, name: str, value: str, said: str) -> None:
    """Whoever set it: another engine may."""
    bed.create(SCHEMA, **{name: value})
    with pytest.raises(BadSpec, match=f"the property '{name}' of ns.t cannot be used: {said}"):
        bed.merge(task_of(bed.source([row(1)])))


def test_what_other_engines_ignore_is_no_obstacle(bed: MergeBed) -> None:
    foreign = {
        "write.parquet.compression-codec": "snappy",
        "write.parquet.compression-level": "3",
        "write.metadata.metrics.default": "some",
        "write.distribution-mode": "hash",
    }
    bed.create(SCHEMA, **foreign)
    assert write_spec(bed.table(), "run").codec_level is None
    assert bed.merge(task_of(bed.source([row(1)]))).outcome is RunOutcome.COMMITTED


def test_what_a_table_accepts_its_writer_takes(bed: MergeBed) -> None:
    """Least and greatest values."""
    accepted = {
        "write.parquet.row-group-limit": "1",
        "write.parquet.page-row-limit": "1",
        "write.parquet.page-size-bytes": "1",
        "write.parquet.dict-size-bytes": "1",
        "write.parquet.row-group-size-bytes": "1",
        "write.target-file-size-bytes": str(1 << 40),
        "write.parquet.compression-codec": "brotli",
        "write.parquet.compression-level": "11",
    }
    assert list(find_problems(accepted, {})) == []
    bed.create(SCHEMA, **accepted)
    bed.append([row(key) for key in KEYS[:3]])
    assert len(bed.rows()) == 3
