"""Equality deletes of another writer, resolved through manifests, whoever is killed meanwhile: each row once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from skipstone.tables.filesets import read_file_set
from skipstone_core.indexing.snapshots import DeleteKind

from tests.local.lake import CLAIM, Lake, load, table, wait_for, warehouse
from tests.local.test_kills import strike
from tests.spark.lake import read_all
from tests.spark.rawdeletes import add_equality_delete

RESOLVING = {"resolveEqualityDeletes": {"minFiles": 1}}
#: The other writer's upserts: a price, and the ids that get it.
UPSERTS = {2: range(0, 1000, 10), 3: range(0, 1000, 50)}
#: Ids that it deletes at the end; one is in no row.
DELETED = (7, 5000)
ROWS = {
    number: 3 if number in UPSERTS[3] else 2 if number in UPSERTS[2] else 1
    for number in range(1000)
    if number not in DELETED
}
#: Runs before the maintain run: the check of the Warehouse, the table, the load.
EARLIER = 3


def opened(lake: Lake) -> Table:
    """The table as another program opens it."""
    place = {"uri": f"sqlite:///{lake.claim}/catalog.db", "warehouse": f"file://{lake.claim}"}
    return load_catalog("skipstone", type="sql", **place).load_table(("sales", "orders"))


def upserted(lake: Lake) -> None:
    """The table of a load, and the equality deletes and rows of another writer."""
    lake.write_parquet("landing/orders.parquet", "select range as id, 1::bigint as price from range(0, 1000)")
    lake.run_once(CLAIM, warehouse(), table(), load("a-load", "landing/*.parquet"))
    for price, ids in UPSERTS.items():
        add_equality_delete(opened(lake), {"id": list(ids)})
        rows = [{"id": number, "price": price} for number in ids]
        opened(lake).append(pa.Table.from_pylist(rows, schema=opened(lake).schema().as_arrow()))
    add_equality_delete(opened(lake), {"id": list(DELETED)})


def held(lake: Lake) -> dict[int, int]:
    """The rows with deletes of all kinds applied: one for each id, or this fails."""
    rows = read_all(opened(lake), ["id", "price"])
    assert len(set(rows["id"].to_pylist())) == len(rows)
    return dict(zip(rows["id"].to_pylist(), rows["price"].to_pylist(), strict=True))


def equality_files(lake: Lake) -> int:
    files = read_file_set(opened(lake))
    return sum(delete.kind is DeleteKind.EQUALITY for delete in files.delete_files)


def check(lake: Lake) -> None:
    """Let another process go on until no equality delete is left: a run that died is tried again after a while."""
    with lake.serving() as process:
        wait_for(lambda: not equality_files(lake), "the commit", process)
    assert lake.rows() == held(lake) == ROWS


def has(lake: Lake, pattern: str, more_than: int = 0) -> bool:
    return len(list(lake.root.path.glob(pattern))) > more_than


#: The second argument: metadata files before the run.
MOMENTS: dict[str, Callable[[Lake, int], bool]] = {
    "the run is intended": lambda lake, _: bool((lake.get("Table", "orders").get("status") or {}).get("writer")),
    "the run has begun": lambda lake, _: has(lake, "pods/*/process.json", EARLIER),
    "it has written": lambda lake, _: any(lake.claim.glob("**/orders/data/**/*-deletes.parquet")),
    "it has committed": lambda lake, before: len(lake.metadata_files()) > before,
    "it has reported": lambda lake, _: has(lake, "pods/*/termination", EARLIER),
}


@pytest.mark.parametrize("moment", [pytest.param(name, marks=pytest.mark.soak) for name in MOMENTS])
@pytest.mark.parametrize("victim", ["up", "driver", "supervisor"])
def test_a_death_while_equality_deletes_are_resolved_leaves_the_rows(lake: Lake, victim: str, moment: str) -> None:
    upserted(lake)
    before = len(lake.metadata_files())
    with lake.serving(table(maintenance=RESOLVING)) as process:
        wait_for(lambda: MOMENTS[moment](lake, before), moment, process)
        strike(lake, victim, process)
        assert held(lake) == ROWS
    assert held(lake) == ROWS
    check(lake)


def test_equality_deletes_are_resolved_by_the_policy_of_a_manifest(lake: Lake) -> None:
    upserted(lake)
    with pytest.raises(ValueError, match="equality deletes"):
        lake.rows()
    lake.run_once(table(maintenance=RESOLVING))
    with lake.serving() as process:
        shown = wait_for(lambda: lake.get("Table", "orders"), "the table", process)
    (step,) = shown["status"]["lastMaintenance"]
    assert (step["step"], step["counts"]["equalityDeletesResolved"]) == ("ResolveEqualityDeletes", 3), step
    assert lake.rows() == held(lake) == ROWS
