"""What the plan of an unchanged table asks of the storage, once a server has planned it: nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import requests
from skipstone.indexes.found import IndexHeads
from skipstone.serving.front.reading import ReadingSqlCatalog
from skipstone.tables.catalogs import open_known_catalog
from skipstone.tasks.share import DriverShare

from tests.spark.index_bed import Lake, index_on
from tests.unit.serving_bed import serving, sql_settings

TOKEN = "the-token-of-a-reader"
FILES = 3
#: One row group that is read whole, and several of which single pages are.
SIZES = (5_000, 60_000)


@pytest.fixture(scope="module", params=SIZES)
def rows(request: pytest.FixtureRequest) -> int:
    """Rows in each file."""
    count: int = request.param
    return count


@pytest.fixture
def lake(tmp_path: Path, rows: int) -> Iterator[Lake]:
    """A table whose ids are anywhere, with an index on them."""
    found = Lake(tmp_path, share=DriverShare(indexed_rows=10**9))
    ids = list(range(rows * FILES))
    Random(rows).shuffle(ids)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("s", pa.string())])
    table = found.create(schema)
    for number in range(FILES):
        part = ids[number * rows : (number + 1) * rows]
        table.append(pa.table({"id": part, "s": ["x"] * rows}, schema=schema))
    found.reindex(index_on("id"))
    yield found
    found.catalog.close()


def planned(address: str, value: int) -> list[str]:
    """The paths of the files that a plan leaves."""
    answer = requests.post(
        f"{address}/v1/namespaces/ns/tables/t/plan",
        json={"filter": {"type": "eq", "term": "id", "value": value}},
        headers={"authorization": f"Bearer {TOKEN}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return [task["data-file"]["file-path"] for task in answer.json()["file-scan-tasks"]]


def test_a_warm_plan_of_an_unchanged_table_reads_no_file(lake: Lake, rows: int) -> None:
    values = [0, 1, rows, rows * FILES - 1]
    with serving(sql_settings(lake.root), (TOKEN,)) as address:
        before = {value: planned(address, value) for value in values}
        assert {len(paths) for paths in before.values()} == {1}
        hidden = lake.root / "hidden"
        hidden.mkdir()
        for folder in (lake.root / "ns").iterdir():
            shutil.move(folder, hidden / folder.name)
        assert {value: planned(address, value) for value in values} == before
        # which indexes there are is asked again after a second
        again = open_known_catalog(lake.warehouse, ReadingSqlCatalog)
        assert [head.error for head in IndexHeads(1).load(again, ("ns", "t"), None)] == [None]
        again.close()
        for folder in hidden.iterdir():
            shutil.move(folder, lake.root / "ns" / folder.name)


def test_a_commit_is_seen_by_the_next_plan(lake: Lake, rows: int) -> None:
    new = rows * FILES
    with serving(sql_settings(lake.root), (TOKEN,)) as address:
        assert planned(address, new) == []
        lake.table().append(pa.table({"id": [new], "s": ["new"]}, schema=lake.table().schema().as_arrow()))
        assert len(planned(address, new)) == 1
        lake.reindex(index_on("id"))
        assert len(planned(address, new)) == 1
