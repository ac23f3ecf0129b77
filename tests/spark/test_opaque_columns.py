"""Tables of Spark's with columns that are moved as they are: variants, geometries, and those of an unknown type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone.compat.pyspark import java_frame, running_frame
from skipstone.runs.drop import run_drop
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.states import table_state
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import DropTask, RunKind
from skipstone_core.errors import BadData
from skipstone_core.ids import OWNER_PROPERTY
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.index_bed import Lake, index_on
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, task_of
from tests.spark.secondengine import second_spark

NAME = "skipstone.ns.t"
BY_NAME = index_on("name", name="by_name")
#: A point as WKB.
POINT = "0101000000000000000000F03F0000000000000040"
#: A row of a table: all columns, as text where they are opaque.
Row = tuple[object, ...]


@dataclass
class OpaqueBed:
    """A warehouse, its table ``t`` as Spark made it, and a plain Spark session."""

    merges: MaintainBed
    lake: Lake
    spark: SparkSession
    shown: str = "to_json(v), st.a, to_json(st.w), x"

    def sql(self, text: str) -> None:
        """Run a statement in plain Spark."""
        self.spark.sql(text)

    def rows(self) -> Mapping[int, Row]:
        """All rows as plain Spark reads them, by id."""
        self.spark.sql(f"refresh table {NAME}")
        return {
            row[0]: tuple(row[1:]) for row in self.spark.sql(f"select id, name, {self.shown} from {NAME}").collect()
        }

    def schemas(self) -> object:
        """What the metadata file says of the fields of the table's schemas, old ones too."""
        table = self.merges.table()
        told = json.loads(table.io.new_input(table.metadata_location).open().read())
        return [schema["fields"] for schema in told["schemas"]]

    def merge(self, *rows: Mapping[str, object]) -> None:
        """Merge rows with an ``op``, in which D deletes."""
        feed = self.merges.source(pa.Table.from_pylist([dict(row) for row in rows]), f"merge{len(rows)}")
        report = self.merges.merge(task_of(feed, when_matched=(DELETE_D, UPDATE)))
        assert report.outcome is RunOutcome.COMMITTED, report.message

    def assert_found(self, name: str) -> None:
        """Whole rows come through the index as plain Spark reads them."""
        kept = "(v is null or variant_get(v, '$.a', 'int') >= 0)"
        text = f"select id, name, {self.shown} from {NAME} where name = '{name}' and {kept}"
        found = skipstone.rewrite(self.spark.sql(text))
        plan = str(java_frame(running_frame(found)).queryExecution().executedPlan().toString())
        assert "IcebergStagedScan" in plan, str(skipstone.explain(found))
        assert sorted(map(str, found.collect())) == sorted(map(str, self.spark.sql(text).collect()))
        assert found.collect()


@pytest.fixture
def bed(tmp_path: Path, spark: SparkSession) -> Iterator[OpaqueBed]:
    merges = MaintainBed(tmp_path)
    plain = second_spark(spark, merges.warehouse)
    plain.conf.set("spark.sql.geospatial.enabled", "true")
    yield OpaqueBed(merges, Lake(tmp_path), plain)
    merges.catalog.close()


def make(bed: OpaqueBed, mode: MergeMode, **properties: str) -> None:
    """A table of two files, with a column that was a geometry once."""
    told = {"format-version": "3", MERGE_MODE: mode.value, **properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in told.items())
    columns = "id bigint not null, name string, v variant, st struct<a: int, w: variant>, x void, old geometry(4326)"
    bed.sql(f"create table {NAME} ({columns}) using iceberg tblproperties ({listed})")
    bed.sql(f"alter table {NAME} drop column old")
    for start in (0, 20):
        bed.sql(
            f"insert into {NAME} select /*+ coalesce(1) */ id, 'n' || (id * 7 % 40), "
            'case when id % 3 = 0 then null else parse_json(\'{"a": \' || id || \', "b": [1, null, "x"]}\') end, '
            "if(id % 5 = 0, null, named_struct('a', cast(id as int), 'w', parse_json('[' || id || ']'))), "
            f"null from range({start}, {start + 20})"
        )


@pytest.mark.parametrize("mode", MergeMode)
def test_a_table_with_variants_goes_through_every_kind_of_run(bed: OpaqueBed, mode: MergeMode) -> None:
    make(bed, mode)
    schemas, expected = bed.schemas(), dict(bed.rows())
    assert len(expected) == 40
    state = table_state(bed.merges.catalog, bed.merges.ref).state
    assert (state.problem, state.columns["v"]) == (None, "variant")
    bed.lake.reindex(BY_NAME)
    bed.assert_found("n7")

    bed.merge(
        {"id": 3, "op": "D", "name": ""}, {"id": 7, "op": "U", "name": "n23x"}, {"id": 90, "op": "I", "name": "n24x"}
    )
    del expected[3]
    expected[7] = ("n23x", *expected[7][1:])
    expected[90] = ("n24x", None, None, None, None)
    assert bed.rows() == expected
    bed.lake.reindex(BY_NAME)
    bed.assert_found("n23x")

    step = bed.merges.compact()
    assert step.is_done, step
    assert step.counts["filesWritten"] >= 1
    assert bed.rows() == expected

    bed.sql(f"update {NAME} set v = parse_json('1') where id = 90")
    expected[90] = ("n24x", "1", None, None, None)
    bed.merge({"id": 11, "op": "D", "name": ""}, {"id": 12, "op": "U", "name": "twelve"})
    del expected[11]
    expected[12] = ("twelve", *expected[12][1:])
    assert bed.rows() == expected
    assert bed.schemas() == schemas

    expiry = MaintenancePolicy(snapshots=SnapshotPolicy(max_age_seconds=0))
    report = bed.merges.run(bed.merges.maintenance((MaintenanceStep.SNAPSHOTS,), expiry))
    assert report.outcome is RunOutcome.COMMITTED, report.message
    assert (bed.rows(), bed.schemas()) == (expected, schemas)

    table = bed.merges.table()
    request = bed.merges.request(task_of("none"))
    request = replace(request, kind=RunKind.DROP, owner_kind="Table", txn="", merge=None, drop=DropTask(index=None))
    bed.sql(f"alter table {NAME} set tblproperties ('{OWNER_PROPERTY}' = '{bed.merges.ref.uid}')")
    report = run_drop(request, Reporter(request))
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.DATA_DELETED), report.message
    assert not bed.merges.catalog.table_exists(("ns", "t"))
    assert not [path for path in bed.merges.on_disk() if "/ns/t/" in path], table.location()


def test_variants_in_lists_maps_and_partitions_are_moved_as_they_are(bed: OpaqueBed) -> None:
    bed.shown = "transform(l, x -> to_json(x)), transform_values(m, (k, x) -> to_json(x)), to_json(`a.b`)"
    columns = "id bigint not null, name string, l array<variant>, m map<string, variant>, `a.b` variant"
    told = "'format-version' = '3'"
    bed.sql(f"create table {NAME} ({columns}) using iceberg partitioned by (bucket(2, id)) tblproperties ({told})")
    bed.sql(
        f"insert into {NAME} select id, 'n' || id, array(parse_json('1'), null, parse_json('[' || id || ']')), "
        "map('k', parse_json('[1]')), if(id % 2 = 0, parse_json('{\"z\": ' || id || '}'), null) from range(40)"
    )
    expected = dict(bed.rows())
    bed.merge({"id": 3, "op": "D", "name": ""}, {"id": 7, "op": "U", "name": "seven"})
    del expected[3]
    expected[7] = ("seven", *expected[7][1:])
    assert bed.rows() == expected
    bed.sql(f"alter table {NAME} set tblproperties ('{MERGE_MODE}' = 'merge-on-read')")
    bed.merge(*({"id": number, "op": "D" if number < 20 else "U", "name": "x"} for number in range(10, 22)))
    expected = {
        number: ("x", *row[1:]) if number in (20, 21) else row
        for number, row in expected.items()
        if number not in range(10, 20)
    }
    assert bed.rows() == expected
    step = bed.merges.compact()
    assert (step.is_done, step.counts["filesRewritten"]) == (True, 2)
    assert bed.rows() == expected


def test_geometries_are_moved_as_they_are(bed: OpaqueBed) -> None:
    bed.shown = "hex(st_asbinary(g)), st_srid(g), hex(st_asbinary(h))"
    columns = "id bigint not null, name string, g geometry(4326), h geography(4326)"
    bed.sql(f"create table {NAME} ({columns}) using iceberg tblproperties ('format-version' = '3')")
    bed.sql(
        f"insert into {NAME} select /*+ coalesce(1) */ id, 'n' || id, st_setsrid(st_geomfromwkb(X'{POINT}'), 4326), "
        f"st_geogfromwkb(X'{POINT}') from range(20)"
    )
    schemas, expected = bed.schemas(), dict(bed.rows())
    assert expected[3] == ("n3", POINT, 4326, POINT)
    bed.merge(
        {"id": 3, "op": "D", "name": ""}, {"id": 7, "op": "U", "name": "seven"}, {"id": 90, "op": "I", "name": "n"}
    )
    del expected[3]
    expected[7] = ("seven", *expected[7][1:])
    expected[90] = ("n", None, None, None)
    assert bed.rows() == expected
    assert bed.merges.compact().is_done
    assert (bed.rows(), bed.schemas()) == (expected, schemas)


def test_a_shredded_variant_is_copied_and_not_taken_apart(bed: OpaqueBed) -> None:
    bed.shown = "to_json(v)"
    told = "'format-version' = '3', 'write.parquet.shred-variants' = 'true'"
    bed.sql(f"create table {NAME} (id bigint not null, name string, v variant) using iceberg tblproperties ({told})")
    bed.sql(
        f"insert into {NAME} select /*+ coalesce(1) */ id, 'n' || id, "
        "parse_json('{\"a\": ' || id || ', \"b\": \"x' || id || '\"}') from range(20)"
    )
    schemas, expected = bed.schemas(), dict(bed.rows())
    bed.merge({"id": 7, "op": "U", "name": "seven"}, {"id": 90, "op": "I", "name": "n"})
    expected[7] = ("seven", *expected[7][1:])
    expected[90] = ("n", None)
    assert (bed.rows(), bed.schemas()) == (expected, schemas)

    gone = [{"id": number, "op": "D"} for number in range(10, 16)]
    deletion = task_of(bed.merges.source(gone, "deletion"), when_matched=(DELETE_D,))
    with pytest.raises(BadData, match="the variant column 'v' shredded") as refused:
        bed.merges.merge(deletion)
    assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    bed.sql(f"alter table {NAME} set tblproperties ('{MERGE_MODE}' = 'merge-on-read')")
    bed.merges.merge(deletion)
    for row in gone:
        del expected[row["id"]]
    assert bed.rows() == expected
    step = bed.merges.compact()
    assert "the variant column 'v' shredded" in step.message
    assert bed.rows() == expected

    way_out = ("write.parquet.shred-variants", "read.parquet.vectorization.enabled")
    assert all(name in step.message for name in (*way_out, "rewrite_data_files", "rewrite-all"))
    told = ", ".join(f"'{name}' = 'false'" for name in way_out)
    bed.sql(f"alter table {NAME} set tblproperties ({told}, '{MERGE_MODE}' = 'copy-on-write')")
    bed.sql("call skipstone.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))")
    assert bed.rows() == expected
    bed.merge(
        {"id": 4, "op": "D", "name": ""}, {"id": 8, "op": "U", "name": "eight"}, {"id": 91, "op": "I", "name": "n"}
    )
    del expected[4]
    expected[8] = ("eight", *expected[8][1:])
    expected[91] = ("n", None)
    assert bed.rows() == expected
    assert bed.merges.compact().is_done
    assert bed.rows() == expected
