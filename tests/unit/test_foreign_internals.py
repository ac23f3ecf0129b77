"""Every private name of PyIceberg, PySpark and the Kubernetes client that Skipstone uses, one case each.

`make early-warning` runs this module against the newest releases and pre-releases.
"""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.java_gateway
import pyspark.sql.classic.dataframe
import pyspark.sql.session
import pytest
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject
from pyiceberg import manifest as manifests
from pyiceberg.avro import STRUCT_DOUBLE
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.reader import DoubleReader, Reader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io import pyarrow as arrow_io
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    snapshot,
    update_table_metadata,
)
from pyiceberg.typedef import Properties
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    GeometryType,
    IcebergType,
    LongType,
    NestedField,
    StructType,
    TimestamptzType,
    UnknownType,
)
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from skipstone.compat import pyiceberg as ours
from skipstone.compat.avro import doubles
from skipstone.compat.lineage.metadata import writable
from skipstone.compat.lineage.opaque import Opaque, opaque_fields
from skipstone.compat.rowdelta import DeleteFiles, RowDelta
from skipstone.tables.decoding.metadatatexts import KnownTexts, metadata_text
from sqlalchemy import Engine

#: Where each method of ours that PyIceberg calls, or that we call of PyIceberg's, is, with the arguments we count on.
METHODS = {
    (SqlCatalog, "_convert_orm_to_iceberg"): ["self", "orm_table"],
    (SqlCatalog, "_iceberg_type_filter"): ["self"],
    (SqlCatalog, "_load_file_io"): ["self", "properties", "location"],
    (RestCatalog, "_load_file_io"): ["self", "properties", "location"],
    (RestCatalog, "_create_session"): ["self"],
    (RestCatalog, "_init_sigv4"): ["self", "session"],
    (RestCatalog, "_response_to_table"): ["self", "identifier_tuple", "table_response"],
    (arrow_io.PyArrowFileIO, "parse_location"): ["location", "properties"],
    (arrow_io.PyArrowFileIO, "_initialize_fs"): ["self", "scheme", "netloc"],
    (SqlCatalog, "_update_and_stage_table"): [
        "self",
        "current_table",
        "table_identifier",
        "requirements",
        "updates",
    ],
    (SqlCatalog, "_init_catalog"): ["self"],
    (SqlCatalog, "_write_metadata"): ["metadata", "io", "metadata_path"],
    (Catalog, "_delete_old_metadata"): ["io", "base", "metadata"],
    (arrow_io.PyArrowFileIO, "_initialize_local_fs"): ["self"],
    (arrow_io.PyArrowFileIO, "_initialize_s3_fs"): ["self", "netloc"],
    (snapshot._OverwriteFiles, "_deleted_entries"): ["self"],
    (snapshot._OverwriteFiles, "_existing_manifests"): ["self"],
    (snapshot._SnapshotProducer, "_manifests"): ["self"],
    (snapshot._SnapshotProducer, "_build_delete_files_partition_predicate"): ["self"],
    (snapshot._SnapshotProducer, "_build_manifest_evaluator"): ["self", "spec_id"],
    (snapshot._SnapshotProducer, "_summary"): ["self", "snapshot_properties"],
    (snapshot._SnapshotProducer, "_clean_all_uncommitted"): ["self"],
    (snapshot._SnapshotProducer, "_commit"): ["self"],
    (snapshot._OverwriteFiles, "_validate_required_deletes"): ["self", "deleted_entries"],
    (manifests.ManifestWriterV2, "_with_partition"): ["self", "format_version"],
}
FUNCTIONS = {
    snapshot._new_manifest_list_file_name: ["snapshot_id", "attempt", "commit_uuid"],
    manifests._inherit_from_manifest: ["entry", "manifest"],
    arrow_io._to_requested_schema: ["requested_schema", "file_schema", "batch", "downcast_ns_timestamp_to_us"],
}
ATTRIBUTES = {
    "_transaction",
    "_io",
    "_snapshot_id",
    "_parent_snapshot_id",
    "_target_branch",
    "_compression",
    "_operation",
    "_added_data_files",
    "_deleted_data_files",
}


class Unhooked(ours.HookedSqlCatalog):
    """A catalog that adds nothing."""

    def watch(self, engine: Engine) -> None:
        """Asked for before the first statement."""
        assert engine is self.engine

    def file_io(self, properties: Properties, location: str | None) -> FileIO:
        """PyIceberg's."""
        return load_file_io({**self.properties, **properties}, location)

    @staticmethod
    def metadata_in(file: InputFile) -> TableMetadata:
        """As PyIceberg reads it."""
        return FromInputFile.table_metadata(file)

    @staticmethod
    def put_metadata(metadata: TableMetadata, base: TableMetadata | None, file: OutputFile) -> None:
        """As PyIceberg writes it."""
        assert base is not None
        assert base.snapshots[0] is metadata.snapshots[0]
        ToOutputFile.table_metadata(metadata, file)

    def before_change(self, table: Table) -> None:
        """Lets it be changed."""

    def adjusted(self, before: TableMetadata, after: TableMetadata) -> TableMetadata:
        """As it is."""
        assert type(after) is type(before)
        assert after.snapshots[0] is before.snapshots[0]
        return after

    @staticmethod
    def writable(metadata: TableMetadata) -> TableMetadata:
        """As it is."""
        return metadata

    @staticmethod
    def writing(io: FileIO, path: str) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("sales")
    made = catalog.create_table("sales.orders", Schema(NestedField(1, "id", LongType(), required=False)))
    made.append(pa.table({"id": [1, 2]}))
    return made


def arguments(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_methods_take_what_we_give_them(kind: type, name: str) -> None:
    found = arguments(getattr(kind, name))
    assert found[: len(METHODS[kind, name])] == METHODS[kind, name]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions_take_what_we_give_them(function: Any) -> None:
    assert set(FUNCTIONS[function]) <= set(arguments(function))


def test_a_transaction_tells_its_table_updates_and_requirements(table: Table) -> None:
    transaction = Transaction(table)
    transaction.set_properties({"a": "1"})
    assert ours.transaction_table(transaction) is table
    assert [update.action for update in ours.staged_updates(transaction)] == ["set-properties"]
    assert isinstance(ours.staged_requirements(transaction), tuple)
    ours.change_updates(transaction, lambda update: update.model_copy(update={"updates": {"a": "2"}}))
    assert transaction.table_metadata.properties["a"] == "2"


UPDATES: dict[str, tuple[TableUpdate, ...]] = {
    "nothing": (),
    "properties": (SetPropertiesUpdate(updates={"a": "2"}), RemovePropertiesUpdate(removals=["b"])),
    "a snapshot": (
        AddSnapshotUpdate(
            snapshot=Snapshot(
                snapshot_id=77,
                parent_snapshot_id=None,
                sequence_number=78,
                timestamp_ms=10**13,
                manifest_list="list.avro",
                summary=Summary(Operation.APPEND, **{"added-records": "1"}),
                first_row_id=1_000,
                added_rows=1,
            )
        ),
        SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=77),
    ),
    "a column": (
        AddSchemaUpdate(
            schema_=Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "b", LongType()))
        ),
        SetCurrentSchemaUpdate(schema_id=-1),
    ),
    "a location": (SetLocationUpdate(location="file:///elsewhere"),),
}


def metadata_with_snapshots(table: Table, version: int) -> TableMetadata:
    """That of ``table`` after two commits, in the format ``version``."""
    table.append(pa.table({"id": [3]}))
    with table.transaction() as change:
        change.set_properties({"a": "1", "b": "1"})
    return TableMetadataUtil.parse_obj(
        {**json.loads(table.metadata.model_dump_json()), "format-version": version, "next-row-id": 10}
    )


@pytest.mark.parametrize("updates", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("version", [2, 3])
def test_updates_of_shared_metadata_make_what_pyiceberg_makes(
    table: Table, version: int, updates: tuple[TableUpdate, ...]
) -> None:
    before = metadata_with_snapshots(table, version)
    as_it_was = before.model_copy(deep=True)
    expected = update_table_metadata(before, updates, metadata_location="there.json")
    found = update_table_metadata(ours.sharing(before), updates, metadata_location="there.json")
    changed = {"last_updated_ms": 0}  # PyIceberg reads the clock
    assert type(found) is type(before)
    assert found.model_copy(update=changed) == expected.model_copy(update=changed)
    assert list(vars(found)) == list(vars(expected))
    assert found.model_fields_set == expected.model_fields_set
    assert all(one is other for one, other in zip(before.snapshots, found.snapshots, strict=False))
    assert len(found.snapshots) >= 2

    found.properties["c"] = "1"
    for held in (found.snapshots, found.snapshot_log, found.metadata_log, found.schemas, found.refs):
        held.clear()
    assert before == as_it_was
    assert expected.snapshots


@pytest.mark.parametrize("updates", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("version", [2, 3])
def test_metadata_of_a_known_base_is_reread_as_its_file_is(
    table: Table, version: int, updates: tuple[TableUpdate, ...]
) -> None:
    base = TableMetadataUtil.parse_raw(writable(metadata_with_snapshots(table, version)).model_dump_json())
    made = writable(update_table_metadata(ours.sharing(base), updates, metadata_location="there.json"))
    before = metadata_text(writable(base), base, KnownTexts())
    text = metadata_text(made, base, before.known())
    found = text.read()
    assert json.loads(text.text()) == json.loads(made.model_dump_json())
    assert found == TableMetadataUtil.parse_raw(text.text()) == TableMetadataUtil.parse_raw(made.model_dump_json())
    assert found.snapshots[0] is base.snapshots[0]
    assert type(found) is type(base)
    assert metadata_text(writable(base), base, text.known()).text() == before.text()
    assert metadata_text(writable(found), found, text.known()).text() == text.text()
    fewer = writable(made.model_copy(update={"snapshots": made.snapshots[1:], "snapshot_log": made.snapshot_log[::-2]}))
    assert json.loads(metadata_text(fewer, base, text.known()).text()) == json.loads(fewer.model_dump_json())


def test_a_snapshot_without_a_sequence_number_is_reread_as_its_file_is(table: Table) -> None:
    """Other writers may say null; a file that is written again does not say it."""
    told = json.loads(metadata_with_snapshots(table, 2).model_dump_json())
    told["snapshots"][0]["sequence-number"] = None
    base = TableMetadataUtil.parse_raw(json.dumps(told))
    made = update_table_metadata(ours.sharing(base), UPDATES["properties"], metadata_location="there.json")
    found = metadata_text(made, base, KnownTexts()).read()
    assert found == TableMetadataUtil.parse_raw(made.model_dump_json())
    assert found.snapshots[1] is base.snapshots[1]


@pytest.mark.parametrize("told_as", [{"sequence-number": None}, {}], ids=["null", "absent"])
def test_a_snapshot_that_is_read_with_a_sequence_number_is_written_with_it_next_time(
    table: Table, told_as: dict[str, None]
) -> None:
    told = json.loads(metadata_with_snapshots(table, 2).model_dump_json())
    del told["snapshots"][0]["sequence-number"]
    told["snapshots"][0] |= told_as
    made, known = TableMetadataUtil.parse_raw(json.dumps(told)), KnownTexts()
    for _ in range(3):
        text = metadata_text(made, made, known)
        assert json.loads(text.text()) == json.loads(made.model_dump_json())
        made, known = text.read(), text.known()


def test_a_snapshot_that_nobody_could_read_is_refused_as_metadata_is(table: Table) -> None:
    base = metadata_with_snapshots(table, 2)
    unnamed = base.snapshots[0].model_copy(update={"manifest_list": None})
    made = base.model_copy(update={"snapshots": [*base.snapshots, unnamed]})
    with pytest.raises(ValidationError, match="manifest-list"):
        TableMetadataUtil.parse_raw(made.model_dump_json())
    with pytest.raises(ValidationError, match="manifest-list"):
        metadata_text(made, base, KnownTexts())


def test_a_summary_says_what_pyiceberg_reads_in_it(table: Table) -> None:
    for one in table.metadata.snapshots:
        assert one.summary is not None
        assert ours.summary_of(one) == one.summary.additional_properties != {}
        assert ours.summary_of(Snapshot.model_validate_json(one.model_dump_json())) == ours.summary_of(one)
        assert ours.summary_of(one.model_copy(update={"summary": None})) == {}


def test_each_snapshot_is_found_by_its_id(table: Table) -> None:
    table.append(pa.table({"id": [3]}))
    assert len(table.metadata.snapshots) == 2
    assert [table.snapshot_by_id(one.snapshot_id) for one in table.metadata.snapshots] == table.metadata.snapshots
    assert table.snapshot_by_id(1) is None


def test_metadata_of_format_version_1_is_copied_as_pyiceberg_does(table: Table) -> None:
    told = {**json.loads(table.metadata.model_dump_json()), "format-version": 1}
    first = TableMetadataUtil.parse_obj({**told, "schema": told["schemas"][0], "partition-spec": []})
    assert ours.sharing(first) is first


def test_commits_share_the_snapshots_of_the_table_that_they_change(tmp_path: Path, table: Table) -> None:
    transaction = ours.CachingTransaction(table)
    transaction.set_properties({"a": "1"})
    assert transaction.table_metadata.snapshots[0] is table.metadata.snapshots[0]
    assert "a" not in table.metadata.properties

    catalog = Unhooked("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    answer = catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "2"}),))
    assert "a" not in table.metadata.properties
    assert catalog.load_table("sales.orders").metadata == answer.metadata
    assert answer.metadata.properties["a"] == "2"


def test_a_producer_has_what_a_row_delta_uses_and_takes_its_manifests_back(table: Table) -> None:
    producer = RowDelta(ours.CachingTransaction(table), DeleteFiles((), ()), {}, lambda _: True)
    assert ATTRIBUTES - set(vars(producer)) == set()
    assert {"_meta"} <= set(dir(manifests.ManifestWriterV2))
    before = set(Path(table.location().removeprefix("file://")).rglob("*.avro"))
    producer.delete_data_file(next(iter(table.scan().plan_files())).file)
    producer.commit()
    assert set(Path(table.location().removeprefix("file://")).rglob("*.avro")) - before
    ours.discard_manifests(producer)
    assert set(Path(table.location().removeprefix("file://")).rglob("*.avro")) == before


def test_manifests_are_written_by_a_pool_that_tells_its_size() -> None:
    pool, workers = ours.manifest_workers()
    assert isinstance(pool, ThreadPoolExecutor)
    assert workers > 1


def test_data_files_hold_the_fields_that_have_no_name(table: Table) -> None:
    file = next(iter(table.scan().plan_files())).file
    assert ours.optional_value(file, 1) == file.file_path
    assert ours.optional_value(file, 99) is None


def test_schemas_know_the_ids_of_nested_fields() -> None:
    nested = StructType(NestedField(2, "b", LongType(), required=False))
    assert set(ours.field_ids(Schema(NestedField(1, "a", nested, required=False)))) == {1, 2}


#: As Iceberg 1.12 writes them, as PyIceberg does, and as the table specification does.
OPAQUE = ("variant", "unknown", "geometry", "geometry(OGC:CRS84)", "geometry(srid:3857)", "geometry('EPSG:4326')",
          "geography", "geography(OGC:CRS84, spherical)", "geography(srid:4269, karney)")  # fmt: skip


@pytest.mark.parametrize("text", OPAQUE)
def test_types_that_are_moved_keep_their_text_wherever_they_stand(table: Table, text: str) -> None:
    below = {"type": "struct", "fields": [{"id": 12, "name": "s", "required": False, "type": text}]}
    fields: list[Any] = [
        {"id": 2, "name": "plain", "required": False, "type": text},
        {"id": 3, "name": "struct", "required": False, "type": below},
        {"id": 4, "name": "list", "required": False,
         "type": {"type": "list", "element-id": 5, "element": text, "element-required": False}},
        {"id": 6, "name": "map", "required": False,
         "type": {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": text, "value-required": False}},
    ]  # fmt: skip
    told = json.loads(writable(metadata_with_snapshots(table, 3)).model_dump_json())
    told["schemas"] = [told["schemas"][0], {**told["schemas"][0], "schema-id": 1, "fields": fields}]
    found = TableMetadataUtil.parse_raw(json.dumps(told))
    assert json.loads(writable(found).model_dump_json())["schemas"] == told["schemas"]
    schema = found.schemas[1]
    assert dict(opaque_fields(schema)) == dict.fromkeys((2, 12, 5, 8), Opaque(text))
    assert pickle.loads(pickle.dumps(schema)) == schema == Schema.model_validate_json(schema.model_dump_json())
    assert arrow_io.schema_to_pyarrow(Opaque(text)) == Opaque(text).arrow


def test_other_types_are_what_pyiceberg_makes_of_them() -> None:
    for kind in (LongType(), DoubleType(), TimestamptzType(), FixedType(3), DecimalType(9, 2), UnknownType()):
        assert type(kind) is type(IcebergType.model_validate(str(kind))) or isinstance(kind, UnknownType)
    assert str(GeometryType("EPSG:4326")) == "geometry('EPSG:4326')"
    for text in ("blob", "variants", "struct"):
        with pytest.raises(ValueError, match="not recognized"):
            IcebergType.model_validate(text)


def test_batches_are_read_in_a_requested_schema() -> None:
    schema = Schema(NestedField(1, "at", TimestamptzType(), required=False))
    batch = pa.record_batch({"at": pa.array([1_000], pa.timestamp("ns", "UTC"))})
    assert ours.to_requested_schema(schema, schema, batch).column(0).type == pa.timestamp("us", "UTC")


def test_doubles_are_read_exactly_by_readers_of_ours_and_by_all_who_are_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def inexact(_: DoubleReader, decoder: Any) -> float:
        return float(decoder.read_double())

    def read(reader: Reader) -> object:
        return reader.read(new_decoder(STRUCT_DOUBLE.pack(0.1)))

    monkeypatch.setattr(DoubleReader, "read", inexact)
    as_shipped = read(construct_reader(DoubleType()))
    assert read(doubles.exact_reader(DoubleType())) == 0.1
    assert read(construct_reader(DoubleType())) == as_shipped
    doubles.read_doubles_exactly()
    assert read(construct_reader(DoubleType())) == 0.1


def test_the_kubernetes_client_sends_requests_as_we_give_them() -> None:
    """The client has no page on these: they are what its generated calls are made of."""
    assert arguments(ApiClient.param_serialize)[1:3] == ["method", "resource_path"]
    assert {"query_params", "header_params", "auth_settings"} <= set(arguments(ApiClient.param_serialize))
    assert arguments(RESTClientObject.request)[1:3] == ["method", "url"]
    assert {"headers", "body", "_request_timeout"} <= set(arguments(RESTClientObject.request))
    assert arguments(Configuration.get_api_key_with_prefix)[1] == "identifier"
    known = {"host", "ssl_ca_cert", "verify_ssl", "cert_file", "key_file", "connection_pool_maxsize"}
    assert known - set(dir(Configuration())) == set()
    assert "self.rest_client" in inspect.getsource(ApiClient.__init__)


def test_pyspark_tells_its_gateway() -> None:
    """Its ``proc`` is the JVM that PySpark started."""
    assert "_gateway" in vars(SparkContext)
    assert SparkContext.__module__ == "pyspark.core.context"
    assert "gateway.proc = " in inspect.getsource(pyspark.java_gateway.launch_gateway)


def test_errors_of_pyspark_bring_the_stack_of_the_jvm() -> None:
    assert "self._stackTrace = " in inspect.getsource(CapturedException.__init__)


def test_pyspark_hands_out_its_java_objects() -> None:
    session: Mapping[str, Any] = vars(pyspark.sql.session.SparkSession)
    source = inspect.getsource(pyspark.sql.session.SparkSession.__init__)
    assert "_jvm" in session or "self._jvm" in source
    assert "self._jsparkSession" in source
    assert "self._jdf" in inspect.getsource(pyspark.sql.classic.dataframe.DataFrame.__init__)
