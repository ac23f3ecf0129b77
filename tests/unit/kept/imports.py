"""Runs a load and merges as a kept driver does, and prints which modules they import that it has not imported before.

Arguments: a folder for the lake, and ``prepare`` to make the table there, which is done in another process.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        import skipstone.apps.preload  # noqa: F401 - as a kept driver does
        from skipstone.runs.load import run_load
        from skipstone.runs.main import run_app
        from skipstone.runs.merging.merge import run_merge
        from skipstone_core.contract.requests import (
            CatalogRef,
            CatalogType,
            DuplicatesPolicy,
            JobRequest,
            LoadTask,
            MergeAction,
            MergeClause,
            MergeKey,
            MergeTask,
            RunKind,
            SourceFormat,
            SourceSpec,
            TableRef,
            WarehouseRef,
        )
        from skipstone_core.contract.spark import SparkRef

    known = set(sys.modules)
    folder = Path(sys.argv[1])
    lake = WarehouseRef(name="lake", root=str(folder), catalog=CatalogRef(type=CatalogType.SQL))
    feeds = {
        SourceFormat.PARQUET: (folder / "feed.parquet", {}),
        SourceFormat.CSV: (folder / "feed.csv", {"header": "true"}),
        SourceFormat.JSON: (folder / "feed.json", {}),
    }
    if "prepare" in sys.argv:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField, StringType
        from skipstone.tables.catalogs import open_catalog

        catalog = open_catalog(lake)
        catalog.create_namespace("ns")
        catalog.create_table("ns.t", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType())))
        rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
        pq.write_table(rows, feeds[SourceFormat.PARQUET][0])
        feeds[SourceFormat.CSV][0].write_text("id,v\n1,a\n4,d\n")
        feeds[SourceFormat.JSON][0].write_text('{"id": 2, "v": "x"}\n{"id": 5, "v": "y"}\n')
        sys.exit(0)
    clauses = MergeClause(action=MergeAction.UPDATE), MergeClause(action=MergeAction.INSERT)
    for number, (kind, source_format) in enumerate(itertools.product((RunKind.MERGE, RunKind.LOAD), feeds)):
        path, options = feeds[source_format]
        source = SourceSpec(
            format=source_format, paths=(path.name,), options=options, duplicates=DuplicatesPolicy.ALLOW
        )
        uid = f"{number:08d}-0000-0000-0000-000000000000"
        request = JobRequest(
            kind=kind,
            run_id=f"{uid[:8]}-{number:08d}-1",
            attempt=1,
            warehouse=lake,
            owner_kind=f"{kind}Job",
            owner_name="j",
            owner_uid=uid,
            txn=uid,
            table=TableRef(namespace="ns", name="t", uid="11111111-aaaa-bbbb-cccc-000000000000"),
            load=LoadTask(source=source) if kind is RunKind.LOAD else None,
            merge=MergeTask(
                source=source,
                keys=(MergeKey(target="id", source="id"),),
                when_matched=clauses[:1],
                when_not_matched=clauses[1:],
            )
            if kind is RunKind.MERGE
            else None,
            spark=SparkRef(driver_cores=1),
        )
        (folder / "request.json").write_text(request.to_json())
        names = {"REQUEST": "request.json", "REPORT": "report", "TERMINATION_LOG": "termination-log"}
        places = {f"SKIPSTONE_{name}": str(folder / file) for name, file in names.items()}
        run = run_load if kind is RunKind.LOAD else run_merge
        code = run_app(kind, run, {**os.environ, **places})
        if code:
            sys.exit(f"{kind} of {source_format} ends with {code}: {(folder / 'report').read_text()}")
    print("\n".join(sorted(set(sys.modules) - known)))
