"""Tables of metadata alone, for the benchmark of planning servers: one with an index, and one of a million files.

No data file stands behind them. Kept under ``.cache/bench``; complete when they say so.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile, write_manifest_list
from skipstone.indexes.building import entries
from skipstone.indexes.building.entries import EntryColumns, EntrySource, Stretch
from skipstone.indexes.building.sorting import Origin
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import open_catalog
from skipstone.tasks.share import DriverShare
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    IndexRef,
    JobRequest,
    ReindexTask,
    RunKind,
    TableRef,
    WarehouseRef,
)

from tests.bench.planning import CACHE, KEYS, generated_metadata

#: Entries of each file, of random keys: the first of them is ``KEY`` in every thousandth file.
ENTRIES, KEY, EVERY = 10, 12345, 1000
#: Of how many files the table is whose manifests are copied.
COPIED = 100_000
TABLE = "ns.t"


def warehouse_of(root: Path) -> WarehouseRef:
    """As requests carry it."""
    return WarehouseRef(name="bench", root=str(root), catalog=CatalogRef(type=CatalogType.SQL, name="bench"))


def indexed_metadata(files: int) -> Path:
    """A warehouse with a table of so many files, none of which bounds rule out, and an index of its first column."""
    root = generated_metadata(files, wide=True)
    if not (root / "indexed").exists():
        process = get_context("spawn").Process(target=_index, args=(root,))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"the index of {files} files was not built")
        (root / "indexed").touch()
    return root


def _index(root: Path) -> None:
    """A reindex run that makes up what it would read of the data files."""
    entries.file_stretches = _made_up
    index = IndexRef(name="by-c1", uid="00000001-0000-0000", columns=("c1",))
    request = JobRequest(
        kind=RunKind.REINDEX,
        run_id="bench-by-c1-1",
        attempt=1,
        warehouse=warehouse_of(root),
        owner_kind="SecondaryIndex",
        owner_name=index.name,
        owner_uid=index.uid,
        table=TableRef(namespace="ns", name="t", uid="11111111-aaaa-bbbb-cccc-000000000000"),
        indexes=(index,),
        reindex=ReindexTask(index=index),
    )
    open_catalog(request.warehouse).close()
    run_reindex(request, Reporter(request), share=DriverShare(indexed_rows=1 << 62))


def _made_up(source: EntrySource, columns: EntryColumns) -> Iterator[Stretch]:
    keys = np.random.default_rng(source.file_id).integers(0, KEYS, ENTRIES)
    if source.file_id % EVERY == 0:
        keys[0] = KEY
    yield Stretch((pa.array(keys, pa.int64()),), Origin(source.file_id, 0, 0, ENTRIES))


def million_files(files: int) -> Path:
    """A warehouse with a table of so many files, in copies of the manifests of a smaller one: it lists paths again."""
    source, root = generated_metadata(COPIED), CACHE / f"copies-{files}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with SqlCatalog("bench", uri=f"sqlite:///{source}/catalog.db") as own:
        table = own.load_table(TABLE)
        snapshot = table.current_snapshot()
        listed = snapshot.manifests(table.io) if snapshot else []
    copies = [_copied(manifest, root, number) for number in range(files // COPIED) for manifest in listed]
    io, told = PyArrowFileIO(), json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    place = f"{root}/list.avro"
    last = told["snapshots"][-1]
    parent, number = last.get("parent-snapshot-id"), last["sequence-number"]
    with write_manifest_list(2, io.new_output(place), last["snapshot-id"], parent, number, "null") as writer:
        writer.add_manifests(copies)
    last["manifest-list"] = place
    last["summary"]["total-data-files"] = str(files)
    told["snapshots"] = [last]
    metadata = root / "00001-11111111-1111-1111-1111-111111111111.metadata.json"
    metadata.write_text(json.dumps(told))
    with SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}") as catalog:
        catalog.create_namespace("ns")
        catalog.register_table(TABLE, str(metadata))
    (root / "complete").touch()
    return root


def _copied(manifest: ManifestFile, root: Path, number: int) -> ManifestFile:
    name = Path(manifest.manifest_path).name
    path = root / f"{number}-{name}"
    shutil.copyfile(manifest.manifest_path.removeprefix("file://"), path)
    return ManifestFile(str(path), *manifest._data[1:])
