"""Ways out that messages of runs name: each is followed as it is printed, and leads where the message says.

A table of cases: what provokes the message, the words that name the way out, and for each way what a user does and what
comes of it. Sources, mappings, files to register, records of jobs; `tests/unit/test_ways_out.py` has the operator's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from skipstone.sources.typed.filetypes import feed, file_type, is_copied
from skipstone.tables.records.archive import TxnArchive
from skipstone.tables.storage import plain_location
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import (
    ColumnMapping,
    ColumnSpec,
    ConsumePolicy,
    DuplicatesPolicy,
    LoadMode,
    MergeTask,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import SkipstoneError
from skipstone_core.history.commits import TxnRecord
from skipstone_core.ids import ARCHIVE_PROPERTY, CONSUMED_PROPERTY_PREFIX

from tests.spark.load_bed import Bed, csv, source
from tests.spark.merge_bed import INSERT, UPDATE, MergeBed, task_of
from tests.spark.rawdeletes import upgrade
from tests.spark.secondengine import second_spark

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
ROW = {"id": 1, "name": "x"}
Rows = list[dict[str, Any]]
Act = Callable[[Bed, "Try"], "Try"]


@dataclass(frozen=True)
class Try:
    """A load as a user asks for it."""

    source: SourceSpec
    mode: LoadMode = LoadMode.COPY

    def run(self, bed: Bed) -> None:
        """Run the load. Raises SkipstoneError with the message that a user sees when it does not commit."""
        report = bed.load(self.source, mode=self.mode)
        if report.outcome is not RunOutcome.COMMITTED:
            raise SkipstoneError(report.message)

    def having(self, **changes: Any) -> Try:
        return replace(self, source=replace(self.source, **changes))


@dataclass(frozen=True)
class Case:
    """A message and its ways out. ``begin`` makes the table and the files and returns the load that is refused.

    ``ways``: the words of the message that name each way, what the user then does, and the rows that the table has in
    the end. ``never``: words for doors that are shut here.
    """

    begin: Callable[[Bed], Try]
    ways: Mapping[str, tuple[Act, Rows]]
    never: tuple[str, ...] = ()


def parquet(bed: Bed, file: str = "in/a.parquet", /, **columns: pa.Array) -> str:
    path = bed.root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return file


def to_register(name: str = "in/a.parquet") -> Try:
    return Try(source(SourceFormat.PARQUET, name), LoadMode.REGISTER)


def copied(_: Bed, attempt: Try) -> Try:
    return replace(attempt, mode=LoadMode.COPY)


def rewritten(path: str = "in/a.parquet", /, **columns: pa.Array) -> Act:
    """The user writes the file again with these columns."""

    def act(bed: Bed, attempt: Try) -> Try:
        parquet(bed, path, **columns)
        return attempt

    return act


def text(name: str, content: str) -> Act:
    """The user writes the file again with this text."""

    def act(bed: Bed, attempt: Try) -> Try:
        bed.put(name, content)
        return attempt

    return act


def asked(**changes: Any) -> Act:
    """The user changes these fields of the source."""
    return lambda _, attempt: attempt.having(**changes)


def moved(old: str, new: str) -> Act:
    """The user moves a file, and names it by its new place."""

    def act(bed: Bed, attempt: Try) -> Try:
        (bed.root / new).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(bed.root / old, bed.root / new)
        return attempt.having(paths=(new,))

    return act


def added_column(bed: Bed, attempt: Try) -> Try:
    with bed.table().update_schema() as update:
        update.add_column("note", StringType())
    return attempt


def registering(schema: Schema = SCHEMA, **columns: pa.Array) -> Callable[[Bed], Try]:
    """A file with these columns is to be registered in a table of ``schema``."""

    def begin(bed: Bed) -> Try:
        bed.create(schema)
        parquet(bed, **columns)
        return to_register()

    return begin


def loading(content: str, name: str = "in/a.csv", **changes: Any) -> Callable[[Bed], Try]:
    """A text file is to be loaded."""

    def begin(bed: Bed) -> Try:
        bed.create(SCHEMA)
        bed.put(name, content)
        return Try(csv(name)).having(**changes)

    return begin


def in_folder(folder: str, *, partitioned: bool, **columns: pa.Array) -> Callable[[Bed], Try]:
    """A file in a folder that tells a column is to be registered."""

    def begin(bed: Bed) -> Try:
        bed.create(SCHEMA, **({"partition_spec": BY_NAME} if partitioned else {}))
        return to_register(parquet(bed, f"in/{folder}/a.parquet", **columns))

    return begin


def loaded_before(mode: LoadMode) -> Callable[[Bed], Try]:
    """A file that a job took before."""

    def begin(bed: Bed) -> Try:
        bed.create(SCHEMA)
        parquet(bed, id=IDS, name=NAMES)
        attempt = replace(to_register(), mode=mode)
        attempt.run(bed)
        return attempt

    return begin


def consumed_and_lost(bed: Bed) -> Try:
    """A folder that a job consumed, whose record somebody lost."""
    bed.create(SCHEMA)
    parquet(bed, "feed/a.parquet", id=IDS, name=NAMES)
    attempt = Try(source(SourceFormat.PARQUET, "feed", consume=ConsumePolicy.NEW, consumer="MergeSchedule ns/feed"))
    attempt.run(bed)
    (bed.root / ".skipstone" / "consumed").rename(bed.root / "backup")
    return attempt


def utf16(bed: Bed) -> Try:
    bed.create(SCHEMA)
    bed.put("in/a.csv", "id,name\n1,x\n".encode("utf-16"))
    return Try(csv("in/a.csv")).having(options=UTF16)


def archived_and_lost(bed: Bed) -> Try:
    """A table whose records of earlier jobs are in files, which somebody lost."""
    bed.create(SCHEMA)
    records = {"job-1": TxnRecord(time_ms=1, source_digest="digest")}
    set_property(bed, TxnArchive(bed.table()).extended(records, ()))
    (bed.root / ".skipstone" / "txns").rename(bed.root / "backup")
    parquet(bed, id=IDS, name=NAMES)
    return Try(source(SourceFormat.PARQUET, "in/a.parquet"))


def ahead_of_time(bed: Bed) -> Try:
    """A table whose last change has a time to come."""
    bed.create(SCHEMA)
    with bed.table().transaction() as change:
        change.set_properties({"some": "change"})
    place = Path(plain_location(bed.table().metadata_location))
    metadata = json.loads(place.read_text())
    place.write_text(json.dumps({**metadata, "last-updated-ms": metadata["last-updated-ms"] + 10**9}))
    parquet(bed, id=IDS, name=NAMES)
    return Try(source(SourceFormat.PARQUET, "in/a.parquet"))


def registered_again(bed: Bed, attempt: Try) -> Try:
    older = bed.table().metadata.metadata_log[-1].metadata_file
    bed.catalog.drop_table(("ns", "t"))
    bed.catalog.register_table(("ns", "t"), older)
    return attempt


def set_property(bed: Bed, text: str) -> None:
    with bed.table().transaction() as change:
        change.set_properties({ARCHIVE_PROPERTY: text})


def found_again(bed: Bed, attempt: Try) -> Try:
    shutil.copytree(bed.root / "backup", bed.root / ".skipstone" / "txns", dirs_exist_ok=True)
    return attempt


def forgotten(bed: Bed, attempt: Try) -> Try:
    with bed.table().transaction() as change:
        change.remove_properties(ARCHIVE_PROPERTY)
    return attempt


def restored(bed: Bed, attempt: Try) -> Try:
    shutil.copytree(bed.root / "backup", bed.root / ".skipstone" / "consumed", dirs_exist_ok=True)
    parquet(bed, "feed/b.parquet", id=pa.array([2]), name=NAMES)
    return attempt


def without_pointer(bed: Bed, attempt: Try) -> Try:
    named = [name for name in bed.table().properties if name.startswith(CONSUMED_PROPERTY_PREFIX)]
    assert named, bed.table().properties
    with bed.table().transaction() as change:
        change.remove_properties(*named)
    return attempt


IDS, NAMES, NOTES = pa.array([1], pa.int64()), pa.array(["x"]), pa.array(["n"])
NARROW = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))
INSIDE = StructType(NestedField(4, "a", LongType()))
NESTED = Schema(NestedField(1, "id", LongType()), NestedField(3, "s", INSIDE))
WITH_IDS = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"}), pa.field("name", pa.string())])
COPY = "load the file with the mode Copy"
GIVEN = {"header": "true"}
UTF16 = {**GIVEN, "encoding": "UTF-16"}


def with_field_ids(bed: Bed) -> Try:
    bed.create(SCHEMA)
    path = bed.root / "in/a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_arrays([IDS, NAMES], schema=WITH_IDS), path)
    return to_register()


def several_partitions(bed: Bed) -> Try:
    bed.create(SCHEMA, partition_spec=BY_NAME)
    parquet(bed, id=pa.array([1, 2], pa.int64()), name=pa.array(["x", "y"]))
    return to_register()


def one_file_each(bed: Bed, attempt: Try) -> Try:
    first = parquet(bed, "in/1.parquet", id=IDS, name=NAMES)
    second = parquet(bed, "in/2.parquet", id=pa.array([2], pa.int64()), name=pa.array(["y"]))
    return attempt.having(paths=(first, second))


LABEL = (ColumnMapping(column="name", from_="label"),)
TWO = [ROW, {"id": 2, "name": "y"}]
CASES = {
    "register: a type that copying converts": Case(
        registering(NARROW, id=IDS, name=NAMES),
        {
            "write the file with that type": (rewritten(id=pa.array([1], pa.int32()), name=NAMES), [ROW]),
            f"{COPY}, which converts values that lose nothing by it": (copied, [ROW]),
        },
    ),
    "register: a type that nothing converts": Case(
        registering(id=pa.array(["1"]), name=NAMES),
        {"write the file with that type": (rewritten(id=IDS, name=NAMES), [ROW])},
        never=("Copy",),
    ),
    "register: a struct for a number": Case(
        registering(id=pa.array([{"a": 1}]), name=NAMES),
        {"write the file with that type": (rewritten(id=IDS, name=NAMES), [ROW])},
        never=("Copy",),
    ),
    "register: a name in another case": Case(
        registering(ID=IDS, name=NAMES),
        {
            "differs from the table's column 'id' in case: name it in source.mapping": (
                asked(mapping=(ColumnMapping(column="id", from_="ID"),)),
                [ROW],
            )
        },
        never=("Copy",),
    ),
    "register: a column that the table lacks": Case(
        registering(id=IDS, name=NAMES, note=NOTES),
        {
            "add it to the table": (added_column, [{**ROW, "note": "n"}]),
            f"{COPY}, which leaves out what the table does not have": (copied, [ROW]),
        },
    ),
    "register: no column of the table": Case(
        registering(nr=IDS, label=NAMES),
        {
            "name what feeds which column in source.mapping": (
                asked(
                    mapping=(
                        ColumnMapping(column="id", from_="nr"),
                        ColumnMapping(column="name", from_="label"),
                    )
                ),
                [ROW],
            )
        },
        never=("Copy", "add it"),
    ),
    "register: a column beside the one that the mapping names": Case(
        lambda bed: registering(id=IDS, name=NOTES, label=NAMES)(bed).having(mapping=LABEL),
        {
            "write the file without it": (rewritten(id=IDS, label=NAMES), [ROW]),
            f"{COPY}, which leaves it out": (copied, [ROW]),
        },
        never=("not in the table",),
    ),
    "register: a folder in another case": Case(
        in_folder("Name=x", partitioned=True, id=IDS),
        {"Rename the folder": (moved("in/Name=x/a.parquet", "in/name=x/a.parquet"), [ROW])},
        never=("Copy",),
    ),
    "register: a field that the table's struct lacks": Case(
        registering(NESTED, id=IDS, s=pa.array([{"a": 1, "b": 2}])),
        {"write the file without it": (rewritten(id=IDS, s=pa.array([{"a": 1}])), [{"id": 1, "s": {"a": 1}}])},
        never=("Copy", "add it to the table"),
    ),
    "register: a field of the table's struct in another case": Case(
        registering(NESTED, id=IDS, s=pa.array([{"A": 1}])),
        {
            "write the file with the table's name": (
                rewritten(id=IDS, s=pa.array([{"a": 1}])),
                [{"id": 1, "s": {"a": 1}}],
            )
        },
        never=("Copy", "add it to the table", "mapping"),
    ),
    "register: the lineage of another table": Case(
        registering(id=IDS, name=NAMES, _row_id=IDS),
        {"write the file without it": (rewritten(id=IDS, name=NAMES), [ROW]), COPY: (copied, [ROW])},
    ),
    "register: field ids of another table": Case(
        with_field_ids,
        {"Write it without field ids": (rewritten(id=IDS, name=NAMES), [ROW]), COPY: (copied, [ROW])},
    ),
    "register: several partitions": Case(
        several_partitions, {"write a file for each": (one_file_each, TWO), COPY: (copied, TWO)}
    ),
    "register: a folder tells a column by which the table is not partitioned": Case(
        in_folder("name=x", partitioned=False, id=IDS),
        {"Write the file with the column": (rewritten("in/name=x/a.parquet", id=IDS, name=NAMES), [ROW])},
        never=("Copy",),
    ),
    "register: no folder tells the partition": Case(
        in_folder("plain", partitioned=True, id=IDS),
        {
            "Move the file to such a folder": (moved("in/plain/a.parquet", "in/name=x/a.parquet"), [ROW]),
            "write it with the column": (rewritten("in/plain/a.parquet", id=IDS, name=NAMES), [ROW]),
            f"{COPY}, which takes it for null": (copied, [{"id": 1, "name": None}]),
        },
    ),
    "register: the folder and the rows differ": Case(
        in_folder("name=y", partitioned=True, id=IDS, name=NAMES),
        {
            "Move it to its folder": (moved("in/name=y/a.parquet", "in/name=x/a.parquet"), [ROW]),
            f"{COPY}, which believes the rows": (copied, [ROW]),
        },
    ),
    "register: files that the table has": Case(
        loaded_before(LoadMode.REGISTER),
        {"source.duplicates to Allow": (asked(duplicates=DuplicatesPolicy.ALLOW), [ROW])},
    ),
    "load: a source that another job applied": Case(
        loaded_before(LoadMode.COPY),
        {"set source.duplicates to Allow": (asked(duplicates=DuplicatesPolicy.ALLOW), [ROW, ROW])},
    ),
    "load: the record of consumed files is lost": Case(
        consumed_and_lost,
        {
            "restore it from a backup of .skipstone/consumed": (restored, [ROW, {"id": 2, "name": "x"}]),
            "remove the table property": (without_pointer, [ROW, ROW]),
        },
    ),
    "load: a header without names": Case(
        loading(" , \n1,x\n"),
        {"write the names into the first line": (text("in/a.csv", "id,name\n1,x\n"), [ROW])},
    ),
    "load: a first line that is not a header": Case(
        loading(",\n1,x\n"),
        {"or set header to false": (asked(options={"header": "false"}), [ROW, {"id": None, "name": None}])},
    ),
    "load: UTF-16 line by line": Case(
        utf16,
        {"needs the option multiLine: set it to true": (asked(options={**UTF16, "multiLine": "true"}), [ROW])},
    ),
    "load: the records of earlier jobs are lost": Case(
        archived_and_lost,
        {"restore it": (found_again, [ROW]), "or remove the table property": (forgotten, [ROW])},
    ),
    "load: a table that was changed in time to come": Case(
        ahead_of_time, {"register the table with an older metadata file": (registered_again, [ROW])}
    ),
    "load: one name twice": Case(
        loading("id,id\n1,x\n"),
        {"give each column its own name": (text("in/a.csv", "id,name\n1,x\n"), [ROW])},
    ),
    "load: an option that is not known": Case(
        loading("id;name\n1;x\n", options={**GIVEN, "sep": ";"}),
        {"delimiter": (asked(options={**GIVEN, "delimiter": ";"}), [ROW])},
    ),
    "load: an option of another format": Case(
        loading('{"id": 1, "name": "x"}\n', "in/a.json", format=SourceFormat.JSON, options={"delimiter": ";"}),
        {"is for the format Csv only: remove it": (asked(options={}), [ROW])},
    ),
    "load: several documents": Case(
        loading(
            '{"id": 1, "name": "x"}\n{"id": 2, "name": "y"}\n',
            "in/a.json",
            format=SourceFormat.JSON,
            options={"multiLine": "true"},
        ),
        {"set multiLine to false": (asked(options={"multiLine": "false"}), TWO)},
    ),
    "load: a delimiter that is the quote": Case(
        loading("id;name\n1;x\n", options={**GIVEN, "delimiter": ";", "quote": ";"}),
        {"choose another": (asked(options={**GIVEN, "delimiter": ";"}), [ROW])},
    ),
    "load: a file that is not there": Case(
        loading("id,name\n1,x\n", paths=("in/b.csv",)),
        {
            "put the file there": (text("in/b.csv", "id,name\n1,x\n"), [ROW]),
            "fix the path": (asked(paths=("in/a.csv",)), [ROW]),
        },
    ),
    "load: a hidden file": Case(
        loading("id,name\n1,x\n", "in/_a.csv"),
        {"rename it to read it": (moved("in/_a.csv", "in/a.csv"), [ROW])},
    ),
    "load: a folder within a folder": Case(
        loading("id,name\n1,x\n", "in/more/a.csv", paths=("in",)),
        {"name the folders to read one by one": (asked(paths=("in/more",)), [ROW])},
    ),
    "load: a path that leads out": Case(
        loading("id,name\n1,x\n", paths=("in/../../a.csv",)),
        {"name files below its root": (asked(paths=("in/a.csv",)), [ROW])},
    ),
    "load: the folder of records": Case(
        loading("id,name\n1,x\n", paths=(".skipstone/a.csv",)),
        {"use another folder": (asked(paths=("in/a.csv",)), [ROW])},
    ),
    "load: a mapping to no column": Case(
        loading("nr,name\n1,x\n", mapping=(ColumnMapping(column="Id", from_="nr"),)),
        {"write it as the table does": (asked(mapping=(ColumnMapping(column="id", from_="nr"),)), [ROW])},
    ),
    "load: a column mapped twice": Case(
        loading(
            "nr,name\n1,x\n",
            mapping=(ColumnMapping(column="id", from_="nr"), ColumnMapping(column="id", from_="name")),
        ),
        {"keep one": (asked(mapping=(ColumnMapping(column="id", from_="nr"),)), [ROW])},
    ),
    "load: types declared for typed files": Case(
        lambda bed: replace(registering(id=IDS, name=NAMES)(bed), mode=LoadMode.COPY).having(
            columns=(ColumnSpec(name="id", type="long"),)
        ),
        {"files carry their own types: remove it": (asked(columns=()), [ROW])},
    ),
}
WAYS = [(name, way) for name, case in CASES.items() for way in case.ways]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.catalog.close()


@pytest.mark.parametrize(("name", "way"), WAYS, ids=[f"{name}: {way[:40]}" for name, way in WAYS])
def test_what_a_message_tells_to_do_works(bed: Bed, name: str, way: str) -> None:
    case = CASES[name]
    attempt = case.begin(bed)
    before = bed.rows()
    with pytest.raises(SkipstoneError) as refused:
        attempt.run(bed)
    said = str(refused.value)
    assert way in said
    assert not [word for word in case.never if word in said], said
    assert bed.rows() == before
    act, rows = case.ways[way]
    act(bed, attempt).run(bed)
    assert bed.rows() == rows


def test_a_column_with_a_name_of_row_lineage_is_renamed_by_another_engine(bed: Bed, spark: SparkSession) -> None:
    bed.create(Schema(*SCHEMA.fields, NestedField(3, "_row_id", LongType())))
    upgrade(bed.table())
    parquet(bed, id=IDS, name=NAMES)
    attempt = Try(source(SourceFormat.PARQUET, "in/a.parquet"))
    with pytest.raises(SkipstoneError, match="a name that row lineage takes; rename the column"):
        attempt.run(bed)
    session = second_spark(spark, bed.warehouse)
    session.sql(f"alter table {bed.warehouse.catalog.name}.ns.t rename column _row_id to row_number")
    attempt.run(bed)
    assert bed.rows() == [{**ROW, "row_number": None}]


FOUND = [
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.decimal128(9, 2), pa.string(), pa.binary(), pa.binary(16), pa.binary(3), pa.date32(), pa.time64("us")),
    *(pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("ns"), pa.timestamp("ms")),
]
WANTED: list[IcebergType] = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 2), DecimalType(20, 0)),
    *(StringType(), BinaryType(), FixedType(16), FixedType(3), UUIDType(), DateType(), TimeType()),
    *(TimestampType(), TimestamptzType()),
]


@pytest.mark.usefixtures("spark")
def test_people_are_sent_to_the_mode_copy_exactly_where_it_converts() -> None:
    for found in FOUND:
        kind = file_type(found)
        assert kind is not None
        for wanted in WANTED:
            fed = feed(kind, F.lit(None).cast(kind.spark), wanted, "UTC")
            assert is_copied(found, wanted) is (fed is not None), f"{found} for {wanted}"


@dataclass(frozen=True)
class Merge:
    """A merge of a Csv feed that is refused, the words of its way out, and the merge that follows them."""

    feed: str
    task: Callable[[str], MergeTask]
    words: str
    corrected: Callable[[str], MergeTask]


def changes(path: str, **fields: Any) -> MergeTask:
    declared = fields.pop("columns", ())
    asked_for = SourceSpec(format=SourceFormat.CSV, paths=(path,), options=GIVEN, columns=declared)
    return task_of(path, source=asked_for, when_matched=(UPDATE,), when_not_matched=(INSERT,), **fields)


SEQUENCE = (ColumnSpec(name="seq", type="long"),)
MERGES = {
    "two rows of one key": Merge(
        "id,name,seq\n1,x,1\n1,y,2\n",
        changes,
        "name the column that orders them in spec.sequenceBy",
        lambda path: changes(path, sequence_by="seq", columns=SEQUENCE),
    ),
    "an order of unknown type": Merge(
        "id,name,seq\n1,x,9\n1,y,10\n",
        lambda path: changes(path, sequence_by="seq"),
        "declare it in spec.source.columns",
        lambda path: changes(path, sequence_by="seq", columns=SEQUENCE),
    ),
    "a key of another type": Merge(
        "nr,name\n1,y\n",
        lambda path: changes(path, keys=(("id", "nr"),)),
        "declare it in spec.source.columns as long",
        lambda path: changes(path, keys=(("id", "nr"),), columns=(ColumnSpec(name="nr", type="long"),)),
    ),
}


@pytest.mark.parametrize("case", MERGES.values(), ids=MERGES.keys())
def test_what_a_merge_tells_to_do_works(tmp_path: Path, case: Merge) -> None:
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA)
    bed.append([{"id": 1, "name": "old"}])
    path = bed.text("feed.csv", case.feed)
    with pytest.raises(SkipstoneError) as refused:
        bed.merge(case.task(path))
    assert case.words in str(refused.value)
    assert bed.merge(case.corrected(path)).outcome is RunOutcome.COMMITTED
    assert bed.table().scan().to_arrow().to_pylist() == [{"id": 1, "name": "y"}]
    bed.catalog.close()
