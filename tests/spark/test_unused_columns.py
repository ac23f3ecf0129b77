"""No column and no row of a source vanishes in silence: a likely slip is refused, the rest is told and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone.sources.plain import PlainLimits
from skipstone.tables.committing.commits import CommitPorts, NoHooks
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import JobReport, RunOutcome, UnusedColumn
from skipstone_core.contract.requests import ColumnMapping, DuplicatesPolicy, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.avrofiles import avro_file
from tests.spark.formats import WRITERS, Rows
from tests.spark.load_bed import Bed, ListSink, bad, csv, source

pytestmark = pytest.mark.usefixtures("spark")
TABLE = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
#: Every format, and the reader: Spark's, or the driver's for those that it reads.
READERS = [
    *(pytest.param(kind, NO_SHARE, id=f"{kind.value}-spark") for kind in WRITERS),
    *(pytest.param(kind, USUAL_SHARE, id=f"{kind.value}-driver") for kind in (SourceFormat.PARQUET, SourceFormat.AVRO)),
]


@pytest.fixture
def bed(spark: SparkSession, tmp_path: Path) -> Bed:
    found = Bed(tmp_path)
    found.create(TABLE)
    return found


def load(bed: Bed, kind: SourceFormat, rows: Rows, share: DriverShare = USUAL_SHARE, **fields: Any) -> JobReport:
    """A load of ``rows``; its report as it is delivered."""
    path = bed.put(f"in/{kind}.{kind.lower()}", WRITERS[kind](rows))
    given = csv(path, **fields) if kind is SourceFormat.CSV else source(kind, path, **fields)
    request = bed.request(given, bad_records=bad(BadRecordPolicy.DROP))
    sink = ListSink()
    reporter = Reporter(request, sink)
    reporter.finish(run_load(request, reporter, None, share))
    return JobReport.from_json(sink.last)


@pytest.mark.parametrize(("kind", "share"), READERS)
def test_a_source_of_which_no_column_is_used_is_refused_and_may_be_loaded_once_it_is_mapped(
    bed: Bed, kind: SourceFormat, share: DriverShare
) -> None:
    rows = [{"a": 1, "b": "a"}, {"a": 2, "b": None}]
    with pytest.raises(BadData, match=r"none of them feeds a column of the table") as caught:
        load(bed, kind, rows, share)
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED
    assert '{column: "id", from: "a"}' in str(caught.value)
    assert not bed.rows()
    mapping = (ColumnMapping(column="id", from_="a"), ColumnMapping(column="name", from_="b"))
    report = load(bed, kind, rows, share, mapping=mapping)
    assert report.counts["rowsLoaded"] == 2
    assert bed.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.mark.parametrize(("kind", "share"), READERS)
def test_what_nothing_uses_is_told_with_the_rows_that_have_a_value_and_all_rows_add_up(
    bed: Bed, kind: SourceFormat, share: DriverShare
) -> None:
    rows = [
        {"id": 1, "more": "x", "none": None},
        {"id": 2, "more": None, "none": None},
        {"id": 3, "more": "y", "none": None},
    ]
    report = load(bed, kind, rows, share)
    assert report.unused_columns == (UnusedColumn(name="more", rows=2), UnusedColumn(name="none", rows=0))
    assert report.unused_total == 2
    assert report.message == (
        "Nothing uses 2 columns of the source: 'more' (2 rows have a value), 'none' (no row has a value). "
        "The source has no value for 1 column of the table: 'name'."
    )
    assert report.counts["rowsRead"] == report.counts["rowsLoaded"] + report.counts["rowsRejected"] == 3


def test_of_columns_whose_values_are_not_counted_no_number_is_told(bed: Bed) -> None:
    columns = {"id": [1, 2], "a": [{"b": 1}, None], "a.b": ["x", None], "a.c": ["x", None]}
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out)
    bed.put("in/a.parquet", bytes(out.getvalue()))
    told = bed.load(source(SourceFormat.PARQUET, "in/a.parquet")).unused_columns
    assert told == (UnusedColumn(name="a"), UnusedColumn(name="a.b"), UnusedColumn(name="a.c", rows=1))
    fields = [{"name": "id", "type": "long"}, {"name": "q", "type": ["null", "long", "string"]}]
    content = avro_file({"type": "record", "name": "r", "fields": fields}, [{"id": 1, "q": 5}, {"id": 2, "q": "x"}])
    bed.put("in/a.avro", content)
    assert bed.load(source(SourceFormat.AVRO, "in/a.avro")).unused_columns == (UnusedColumn(name="q"),)


@pytest.mark.parametrize(
    ("kind", "name"), [(k, "Name") for k in WRITERS] + [(k, " name") for k in WRITERS if k is not SourceFormat.AVRO]
)
def test_a_column_that_differs_in_case_or_blanks_is_refused_with_the_mapping_that_takes_it(
    bed: Bed, kind: SourceFormat, name: str
) -> None:
    with pytest.raises(BadData) as caught:
        load(bed, kind, [{"id": 1, name: "a"}])
    assert f"'{name}' and the table has 'name'" in str(caught.value)
    assert f'{{column: "name", from: "{name}"}}' in str(caught.value)
    load(bed, kind, [{"id": 1, name: "a"}], mapping=(ColumnMapping(column="name", from_=name),))
    assert bed.rows() == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}], ids=["lines", "document"])
@pytest.mark.parametrize("mapping", [(), (ColumnMapping(column="name", from_="Name"),)])
def test_records_with_one_of_two_like_names_are_refused(
    bed: Bed, options: dict[str, str], mapping: tuple[ColumnMapping, ...]
) -> None:
    written = ['{"id": 1, "name": "a"}', '{"id": 2, "Name": "b"}', '{"id": 3, "name": "c", "Name": "d"}']
    bed.put("in/a.json", "[" + ",".join(written) + "]" if options else "\n".join(written))
    given = source(SourceFormat.JSON, "in/a.json", options=options, mapping=mapping)
    said = "'name' and not 'Name'" if mapping else "'Name' and not 'name'"
    with pytest.raises(BadData, match=rf"some records of 'in/a\.json' have {said}, and names are exact") as caught:
        bed.load(given)
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED
    one_name = [line.replace("Name", "name") for line in written[:2]]  # what the message says
    bed.put("in/a.json", "[" + ",".join(one_name) + "]" if options else "\n".join(one_name))
    bed.load(source(SourceFormat.JSON, "in/a.json", options=options))
    assert bed.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_like_names_of_the_same_records_are_told(bed: Bed) -> None:
    records = (
        '{"id": 1, "name": "a", "Name": "b"}',
        '{"id": 2, "name": "c", "Name": null}',
        '{"id": 3, "name": null, "Name": "d"}',
        '{"id": 4}',
    )
    bed.put("in/a.json", "\n".join(records))
    assert bed.load(source(SourceFormat.JSON, "in/a.json")).unused_columns == (UnusedColumn(name="Name", rows=2),)


def test_rejected_rows_add_up(bed: Bed) -> None:
    report = load(bed, SourceFormat.CSV, [{"id": "x", "name": "a"}, {"id": 2, "name": "b"}])
    assert [report.counts[name] for name in ("rowsRead", "rowsLoaded", "rowsRejected")] == [2, 1, 1]


@pytest.mark.parametrize("header", ["id;name", "id|name", "id\tname", "x;y", "id;name,extra"])
def test_a_header_that_another_delimiter_cuts_is_refused_with_that_delimiter(bed: Bed, header: str) -> None:
    bed.put("in/a.csv", f"{header}\n1;a\n")
    with pytest.raises(BadData, match=r"source.options.delimiter") as caught:
        bed.load(csv("in/a.csv"))
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED
    if header == "id;name":
        bed.load(csv("in/a.csv", options={"delimiter": ";"}))
        assert bed.rows() == [{"id": 1, "name": "a"}]


def test_a_column_without_a_name_is_told_and_may_be_mapped(bed: Bed) -> None:
    bed.put("in/a.csv", ",id\nx,1\ny,2\n")
    assert bed.load(csv("in/a.csv")).unused_columns == (UnusedColumn(name="_c0", rows=2),)
    bed.put("in/b.csv", ",id\nx,1\n")
    bed.load(csv("in/b.csv", mapping=(ColumnMapping(column="name", from_="_c0"),)))
    assert {"id": 1, "name": "x"} in bed.rows()


def test_one_file_of_several_with_other_names_is_refused(bed: Bed) -> None:
    bed.put("in/a.csv", "id,name\n1,a\n")
    bed.put("in/b.csv", "id,NAME\n2,b\n")
    with pytest.raises(BadData, match=r"'in/b.csv' has the column 'NAME' and the table has 'name'"):
        bed.load(csv("in"))


def test_a_column_without_a_name_is_told_beside_one_with_the_name_that_it_would_have(bed: Bed) -> None:
    bed.put("in/a.csv", "id,,_c1\n1,p,q\n2,r,\n")
    assert bed.load(csv("in/a.csv")).counts["rowsLoaded"] == 2
    mapped = (ColumnMapping(column="name", from_="__c1"),)
    bed.load(csv("in/a.csv", mapping=mapped, duplicates=DuplicatesPolicy.ALLOW))
    assert {row["name"] for row in bed.rows()} == {None, "p", "r"}


@pytest.mark.parametrize("kind", [SourceFormat.PARQUET, SourceFormat.ORC])
def test_a_file_with_neither_columns_nor_rows_is_read_as_the_empty_one_that_it_is(bed: Bed, kind: SourceFormat) -> None:
    bed.put("in/a", WRITERS[kind]([{"id": 1, "name": "a"}]))
    bed.put("in/b", WRITERS[kind]([]))
    assert bed.load(source(kind, "in")).counts["rowsRead"] == 1
    assert bed.rows() == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize("name", ["_file", "_POS", "_row_id", "", "_skipstone_error"])
def test_no_column_is_added_by_whose_name_the_table_could_not_be_read(bed: Bed, name: str) -> None:
    rows = [{"id": 1, name: "x"}]
    with pytest.raises(
        BadSpec, match=rf"a new column '{name}' has .*: rename it in the source, or let this job add no"
    ):
        load(bed, SourceFormat.PARQUET, rows, unknown_columns=UnknownColumns.ADD)
    assert load(bed, SourceFormat.PARQUET, rows).unused_columns == (UnusedColumn(name=name, rows=1),)


@pytest.mark.parametrize("kind", [SourceFormat.JSON, SourceFormat.PARQUET])
def test_columns_of_names_of_ours_are_left_out_and_feed_none(bed: Bed, kind: SourceFormat) -> None:
    """Also in Spark, whose frames have columns of such names beside those of the files."""
    names = ["_skipstone_error", "_skipstone_fault", "_skipstone_value_0", "_skipstone__value_0"]
    bed.put("in/a", WRITERS[kind]([{"id": 1, "name": None, **dict.fromkeys(names, "x")}]))
    report = bed.load(source(kind, "in"), limits=PlainLimits(0, 0))
    assert {*report.unused_columns} == {UnusedColumn(name=name, rows=1) for name in names}
    assert bed.rows() == [{"id": 1, "name": None}]
    mapping = (ColumnMapping(column="name", from_=names[0]),)
    with pytest.raises(BadSpec, match=r"mapping: column '_skipstone_error' has a name that Skipstone keeps"):
        bed.load(source(kind, "in", mapping=mapping, duplicates=DuplicatesPolicy.ALLOW))


def test_a_table_with_a_column_of_a_name_of_ours_is_refused_in_a_sentence(bed: Bed) -> None:
    bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "_skipstone_error", StringType())), "odd")
    bed.put("in/a.csv", "id,_skipstone_error\n1,x\n")
    with pytest.raises(
        BadSpec, match="'_skipstone_error' has a name that Skipstone keeps for columns of its own: rename"
    ):
        bed.load(csv("in/a.csv"), "odd")


def test_records_without_a_name_are_refused_and_no_record_is_none(bed: Bed) -> None:
    bed.put("in/a.json", "{}\n{}\n")
    with pytest.raises(BadData, match="rows of nulls"):
        bed.load(source(SourceFormat.JSON, "in"))
    bed.put("empty/a.json", "")
    assert bed.load(source(SourceFormat.JSON, "empty")).counts["rowsRead"] == 0


def test_a_load_of_a_change_feed_names_its_tool(bed: Bed) -> None:
    envelope = {"before": None, "after": {"id": 1}, "op": "c", "source": {"lsn": 1}, "ts_ms": 1}
    with pytest.raises(BadData, match=r"change feed of Debezium, so merge it by a MergeJob with source.changeFormat"):
        load(bed, SourceFormat.JSON, [envelope])


@pytest.mark.parametrize("share", [USUAL_SHARE, NO_SHARE], ids=["driver", "spark"])
def test_a_load_that_adds_columns_adds_them_in_its_commit_with_the_types_of_the_files(
    bed: Bed, share: DriverShare
) -> None:
    report = load(
        bed, SourceFormat.PARQUET, [{"id": 1, "more": "x", "n": 7}], share, unknown_columns=UnknownColumns.ADD
    )
    assert (report.unused_columns, report.counts["rowsLoaded"]) == ((), 1)
    assert bed.rows() == [{"id": 1, "name": None, "more": "x", "n": 7}]
    assert [str(field.field_type) for field in bed.table().schema().fields] == ["long", "string", "string", "long"]
    assert len(bed.table().history()) == 1


def test_a_load_that_refuses_unknown_columns_names_them_and_goes_on_once_they_are_ignored(bed: Bed) -> None:
    rows = [{"id": 1, "more": "x"}]
    with pytest.raises(BadData, match=r"the table does not have 1 column \('more'\) of the source"):
        load(bed, SourceFormat.PARQUET, rows, unknown_columns=UnknownColumns.REFUSE)
    assert load(bed, SourceFormat.PARQUET, rows, unknown_columns=UnknownColumns.IGNORE).counts["rowsLoaded"] == 1


class Killed(BaseException):
    """Stands for the end of a process."""


def _killed(bed: Bed, given: SourceSpec, uid: str, *, after: bool) -> None:
    """An attempt that ends right before the catalog swaps, or right after."""

    class Hooks(NoHooks):
        def before_swap(self, table: Table) -> None:
            if not after:
                raise Killed

        def after_swap(self, table: Table) -> None:
            raise Killed

    with pytest.raises(Killed):
        bed.load(given, uid=uid, ports=CommitPorts(hooks=Hooks()))


@pytest.mark.parametrize("after", [False, True], ids=["before-the-swap", "after-the-swap"])
def test_a_load_that_adds_a_column_is_applied_once_wherever_it_ends(bed: Bed, after: bool) -> None:
    uid = "00000000-0000-0000-0000-00000000abcd"
    bed.put("in/a.parquet", WRITERS[SourceFormat.PARQUET]([{"id": 1, "more": "x"}]))
    given = source(SourceFormat.PARQUET, "in/a.parquet", unknown_columns=UnknownColumns.ADD)
    _killed(bed, given, uid, after=after)
    assert ("more" in bed.table().schema().column_names) is after
    report = bed.load(given, uid=uid, attempt=2)
    assert report.outcome is (RunOutcome.ALREADY_COMMITTED if after else RunOutcome.COMMITTED)
    assert bed.rows() == [{"id": 1, "name": None, "more": "x"}]


def test_a_column_that_another_writer_adds_meanwhile_is_not_added_again(bed: Bed) -> None:
    class Hooks(NoHooks):
        done = False

        def before_swap(self, table: Table) -> None:
            if not self.done:
                self.done = True
                with bed.table().update_schema() as update:
                    update.add_column("more", StringType())

    bed.put("in/a.parquet", WRITERS[SourceFormat.PARQUET]([{"id": 1, "more": "x"}]))
    given = source(SourceFormat.PARQUET, "in/a.parquet", unknown_columns=UnknownColumns.ADD)
    assert bed.load(given, ports=CommitPorts(hooks=Hooks())).counts["rowsLoaded"] == 1
    assert bed.rows() == [{"id": 1, "name": None, "more": "x"}]


def test_an_attempt_that_finds_its_job_committed_tells_what_was_left_out(bed: Bed) -> None:
    bed.put("in/a.parquet", WRITERS[SourceFormat.PARQUET]([{"id": 1, "more": "x"}]))
    given, uid = source(SourceFormat.PARQUET, "in/a.parquet"), "00000000-0000-0000-0000-00000000abce"
    bed.load(given, uid=uid)
    again = bed.load(given, uid=uid, attempt=2)
    assert again.outcome is RunOutcome.ALREADY_COMMITTED
    assert again.unused_columns == (UnusedColumn(name="more", rows=1),)
