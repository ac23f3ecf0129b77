"""Tasks reach the files of a table on S3 by what its catalog told the driver, and by nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from skipstone.files.deletions import POSITION_CONTENT, DeleteDescription
from skipstone.files.positions import write_deletes
from skipstone.files.reader import DataFileDescription, describe_files, read_data_file
from skipstone.files.writer import DataFileWriter, WriteSpec, write_spec
from skipstone.tables.filesets import read_file_set
from skipstone.tables.storage import CATALOG_PROPERTIES, ON_VOLUMES, FileAccess, file_access
from skipstone_core.errors import ContractViolation

from tests.s3client import S3Client, values
from tests.s3server import OWNER
from tests.storages import credentials

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
ROWS = pa.table({"id": pa.array(range(10), pa.int64())}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
Sent = TypeVar("Sent", WriteSpec, DataFileDescription, FileAccess)


@pytest.fixture
def table(bucket: S3Client, tmp_path: Path) -> Iterator[Table]:
    """A table in ``bucket`` whose catalog alone knows the credentials, as one that vends them does."""
    catalog = SqlCatalog(
        "lake",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://{bucket.bucket}/lake",
        **CATALOG_PROPERTIES,
        **{
            "s3.endpoint": bucket.endpoint,
            "s3.region": bucket.region,
            "s3.access-key-id": OWNER.access,
            "s3.secret-access-key": OWNER.secret,
            "credential": "of the catalog",
        },
    )
    with credentials(None):
        catalog.create_namespace("ns")
        yield catalog.create_table("ns.t", SCHEMA)
        catalog.close()


def sent(value: Sent) -> Sent:
    """As a task gets it."""
    return pickle.loads(pickle.dumps(value))  # type: ignore[no-any-return]


def ids(file: DataFileDescription) -> list[int]:
    return [one for batch in read_data_file(file, ["id"]) for one in batch.column(0).to_pylist()]


def test_a_task_writes_and_reads_files_by_what_the_table_told(table: Table) -> None:
    writer = DataFileWriter(sent(write_spec(table, "run")), "task-1")
    writer.write(ROWS)
    (written,) = writer.close()
    table.append(ROWS)
    (described,) = describe_files(table, read_file_set(table), [0])
    mine = sent(replace(described, path=written.path, size=written.size))
    assert [ids(sent(described)), ids(mine)] == [list(range(10))] * 2


def test_a_task_writes_and_applies_deletes_by_what_the_table_told(table: Table) -> None:
    table.append(ROWS)
    (described,) = describe_files(table, read_file_set(table), [0])
    path = f"{table.location()}/data/deletes.parquet"
    write_deletes(sent(write_spec(table, "run")), path, described, np.array([2, 7]))
    for is_own in (True, False):
        delete = DeleteDescription(path, POSITION_CONTENT, "PARQUET", is_own=is_own, access=described.access)
        assert ids(sent(replace(described, deletes=(delete,)))) == [0, 1, 3, 4, 5, 6, 8, 9]


def test_only_what_reaches_the_storage_goes_to_tasks_and_nothing_of_it_is_shown(table: Table) -> None:
    access = file_access(table)
    assert {name for name, _ in access.properties or ()} >= {"s3.access-key-id", "s3.secret-access-key", "s3.endpoint"}
    assert "of the catalog" not in dict(access.properties or ()).values()
    (described,) = _with_rows(table)
    for shown in (repr(access), str(access), repr(described), repr(write_spec(table, "run"))):
        assert OWNER.secret not in shown
        assert OWNER.access not in shown


def _with_rows(table: Table) -> list[DataFileDescription]:
    table.append(ROWS)
    return describe_files(table, read_file_set(table), [0])


@pytest.mark.parametrize("location", ["s3://bucket/key", "gs://bucket/key", "abfss://c@a/key", "hdfs://host/key"])
def test_what_comes_from_no_table_reaches_volumes_only(location: str) -> None:
    with pytest.raises(ContractViolation, match="needs the properties of the loaded table"):
        sent(ON_VOLUMES).open(location)


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_files_on_volumes_need_nothing(tmp_path: Path, scheme: str) -> None:
    place = f"{scheme}{tmp_path}/file"
    with ON_VOLUMES.open(place).new_output(place).create() as file:
        file.write(b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


NAMES = ("a#b.parquet", "a?b.parquet", "a?b#c", "p=1#2/c", "tab\there", "a%23b", "a;b", "ü b")


def _taken_whole(io: FileIO, folder: str) -> set[str]:
    """Write files with these names, and read one; those that are left when all others were deleted again."""
    for name in ("a", *NAMES):
        with io.new_output(f"{folder}/{name}").create() as file:
            file.write(name.encode())
    for name in ("a", *NAMES):
        found = io.new_input(f"{folder}/{name}")
        with found.open() as content:
            assert content.read() == name.encode()
        assert (found.exists(), len(found)) == (True, len(name.encode()))
    for name in NAMES[1:]:
        io.delete(f"{folder}/{name}")
    return {name for name in ("a", *NAMES) if io.new_input(f"{folder}/{name}").exists()}


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_names_on_volumes_are_taken_whole(tmp_path: Path, scheme: str) -> None:
    assert _taken_whole(ON_VOLUMES.open("/"), f"{scheme}{tmp_path}/d#1") == {"a", NAMES[0]}
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"d#1/a", f"d#1/{NAMES[0]}"}


def test_names_in_buckets_are_taken_whole(table: Table, bucket: S3Client) -> None:
    place = f"{table.location()}/data/d#1"
    assert _taken_whole(table.io, place) == {"a", NAMES[0]}
    prefix = place.removeprefix(f"s3://{bucket.bucket}/")
    keys = values(bucket.send("GET", list_type="2", prefix=f"{prefix}/"), "Key")
    assert {key for key in keys if not key.endswith("/")} == {f"{prefix}/a", f"{prefix}/{NAMES[0]}"}
