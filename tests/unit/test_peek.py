"""What a script knows of its request before it imports anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from skipstone.peek import may_do_without_spark
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ChangeFormat,
    JobRequest,
    LoadTask,
    MergeKey,
    MergeTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
    WarehouseRef,
)
from skipstone_core.contract.spark import SmallWork, SparkRef


@pytest.mark.parametrize("run", [RunKind.LOAD, RunKind.MERGE])
@pytest.mark.parametrize("kind", SourceFormat)
def test_all_formats_but_orc_may_be_loaded_and_merged_without_spark(
    tmp_path: Path, kind: SourceFormat, run: RunKind
) -> None:
    source = SourceSpec(format=kind, paths=("feeds",))
    request = JobRequest(
        kind=run,
        run_id="one",
        attempt=1,
        warehouse=WarehouseRef(name="wh", root="/data", catalog=CatalogRef(type=CatalogType.SQL)),
        owner_kind="MergeJob",
        owner_name="m",
        owner_uid="1",
        table=TableRef(namespace="ns", name="t", uid="2"),
        load=LoadTask(source=source) if run is RunKind.LOAD else None,
        merge=MergeTask(source=source, keys=(MergeKey(target="id", source="id"),)) if run is RunKind.MERGE else None,
    )
    path = tmp_path / "request.json"
    path.write_text(request.to_json())
    assert may_do_without_spark({"SKIPSTONE_REQUEST": str(path)}) is (kind is not SourceFormat.ORC)
    if run is RunKind.MERGE:
        feed = MergeTask(source=replace(source, change_format=ChangeFormat.DEBEZIUM), keys=())
        path.write_text(replace(request, merge=feed).to_json())
        assert may_do_without_spark({"SKIPSTONE_REQUEST": str(path)})
    path.write_text(replace(request, spark=SparkRef(small_work=SmallWork.SPARK)).to_json())
    assert not may_do_without_spark({"SKIPSTONE_REQUEST": str(path)})


def test_files_that_are_registered_never_need_spark(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text('{"load": {"mode": "Register", "source": {"format": "Parquet"}}, "spark": {"smallWork": "Spark"}}')
    assert may_do_without_spark({"SKIPSTONE_REQUEST": str(path)})


@pytest.mark.parametrize("content", [None, "", "{", "[]", "7", '{"merge": null}', '{"merge": {"source": []}}'])
def test_a_request_that_cannot_be_read_is_the_runs_to_tell(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "request.json"
    if content is not None:
        path.write_text(content)
    assert not may_do_without_spark({"SKIPSTONE_REQUEST": str(path)})
