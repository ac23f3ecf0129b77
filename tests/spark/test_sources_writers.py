"""Parquet of tools that name types as Arrow does: it is read as Parquet says, in the driver and in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, ListType, LongType, NestedField, StringType, StructType
from skipstone.sources.listing import list_source
from skipstone.sources.plain import PlainLimits, find_plain_rows
from skipstone_core.contract.requests import ChangeFormat, SourceFormat, SourceSpec
from skipstone_core.errors import BadSpec

from tests.spark.lake import read_all
from tests.spark.load_bed import Bed
from tests.spark.merge_bed import MergeBed, task_of

RECORDED = Path(__file__).parent / "recorded"
TAGS = ListType(10, StringType(), element_required=False)
STRUCT = StructType(NestedField(11, "a", LongType()), NestedField(12, "b", StringType()))
LIMITS = PlainLimits(1000, 1 << 20)
NOTHING_HERE = PlainLimits(0, 0)
NAMES, RAW = ["a", None, "é"], [b"\x00\xff", None, b""]


def schema(**types: IcebergType) -> Schema:
    return Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(types.items(), 1)))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.catalog.close()


def loaded(bed: Bed, name: str, schema: Schema, limits: PlainLimits) -> dict[str, list[object]]:
    """The columns of the table that the file ``name`` becomes."""
    bed.create(schema, name=f"t{limits.rows}")
    bed.load(SourceSpec(format=SourceFormat.PARQUET, paths=(name,)), name=f"t{limits.rows}", limits=limits)
    table = read_all(bed.table(f"t{limits.rows}")).sort_by("id")
    found: dict[str, list[object]] = table.to_pydict()
    return found


def test_polars(bed: Bed) -> None:
    bed.put("in.parquet", (RECORDED / "polars-2.1.0.parquet").read_bytes())
    plain = schema(id=LongType(), name=StringType(), raw=BinaryType(), cat=StringType(), kind=StringType())
    expected = {"id": [1, 2, 3], "name": NAMES, "raw": RAW, "cat": ["x", "y", None], "kind": ["u", "v", None]}
    assert loaded(bed, "in.parquet", plain, LIMITS) == expected
    nested = Schema(*plain.fields, NestedField(6, "tags", TAGS), NestedField(7, "st", STRUCT))
    structs = [{"a": 1, "b": "s"}, None, {"a": None, "b": None}]
    assert loaded(bed, "in.parquet", nested, NOTHING_HERE) == expected | {
        "tags": [["p", None], None, []],
        "st": structs,
    }


def test_datafusion(bed: Bed) -> None:
    bed.put("in.parquet", (RECORDED / "datafusion-55.0.0.parquet").read_bytes())
    table = schema(id=LongType(), name=StringType(), raw=BinaryType(), cat=StringType(), tags=TAGS)
    expected = {"id": [1, 2, 3], "name": NAMES, "raw": RAW, "cat": ["k1", "k2", "k3"], "tags": [["p", None], None, []]}
    assert loaded(bed, "in.parquet", table, LIMITS) == expected


def test_every_type_of_arrow_for_text_and_bytes(bed: Bed) -> None:
    arrays = {
        "view": pa.array(NAMES, pa.string_view()),
        "large": pa.array(NAMES, pa.large_string()),
        "words": pa.array(NAMES).dictionary_encode(),
        "large_words": pa.DictionaryArray.from_arrays(
            pa.array([0, None, 1], pa.uint8()), pa.array(["a", "é"], pa.large_string())
        ),
        "json": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(NAMES)),
    }
    raw = {"raw_view": pa.binary_view(), "raw_large": pa.large_binary()}
    table = {
        "id": [1, 2, 3],
        **arrays,
        **{name: pa.array(RAW, kind) for name, kind in raw.items()},
        "spent": pa.array([1, None, 3], pa.duration("us")),
    }
    pq.write_table(pa.table(table), bed.root / "in.parquet")
    wanted = schema(
        id=LongType(), **dict.fromkeys(arrays, StringType()), **dict.fromkeys(raw, BinaryType()), spent=LongType()
    )
    expected = {"id": [1, 2, 3], **dict.fromkeys(arrays, NAMES), **dict.fromkeys(raw, RAW), "spent": [1, None, 3]}
    source = SourceSpec(format=SourceFormat.PARQUET, paths=("in.parquet",))
    assert find_plain_rows(list_source(bed.warehouse, source), source, wanted, LIMITS) is not None
    for limits in (LIMITS, NOTHING_HERE):
        assert loaded(bed, "in.parquet", wanted, limits) == expected


def test_every_list_of_arrow(bed: Bed) -> None:
    lists = [["p"], None, ["q"]]
    kinds = {
        "views": pa.list_view(pa.string_view()),
        "large": pa.large_list(pa.large_string()),
        "one": pa.list_(pa.string(), 1),
    }
    table = {"id": [1, 2, 3], **{name: pa.array(lists, kind) for name, kind in kinds.items()}}
    pq.write_table(pa.table(table), bed.root / "in.parquet")
    fields = [
        NestedField(at, name, ListType(at + 10, StringType(), element_required=False))
        for at, name in enumerate(kinds, 2)
    ]
    found = loaded(bed, "in.parquet", Schema(NestedField(1, "id", LongType()), *fields), LIMITS)
    assert found == {"id": [1, 2, 3], **dict.fromkeys(kinds, lists)}


def test_a_type_that_is_not_loaded_is_named(bed: Bed) -> None:
    pq.write_table(pa.table({"id": [1], "v": pa.array([1], pa.time64("ns"))}), bed.root / "in.parquet")
    with pytest.raises(
        BadSpec, match=r"is of the type time64\[ns\], which is not loaded, and cannot feed 'v' \(long\)"
    ):
        loaded(bed, "in.parquet", schema(id=LongType(), v=LongType()), LIMITS)


def test_feeds_in_arrows_words(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    bed.create(schema(id=LongType(), name=StringType(), raw=BinaryType()))
    folder = bed.root / "feeds" / "dms"
    folder.mkdir(parents=True)
    views = {"Op": pa.array(["I"] * 3, pa.string_view()), "id": [1, 2, 3], "name": pa.array(NAMES, pa.string_view())}
    pq.write_table(pa.table({**views, "raw": pa.array(RAW, pa.binary_view())}), folder / "1.parquet")
    words = pa.table(
        {"Op": pa.array(["U"]).dictionary_encode(), "id": [1], "name": pa.array(["z"]).dictionary_encode()}
    )
    pq.write_table(words, folder / "2.parquet")
    source = SourceSpec(format=SourceFormat.PARQUET, paths=("feeds/dms",), change_format=ChangeFormat.DMS)
    bed.merge(task_of("", source=source, when_matched=(), when_not_matched=()))
    found = read_all(bed.table()).sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3], "name": ["z", None, "é"], "raw": RAW}
    bed.catalog.close()
