"""What the plan of an unchanged table asks of the storage, once a server has planned it: nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import requests
from skipstone.indexes.found import IndexHeads
from skipstone.query.residuals import CLIENT_HEADER
from skipstone.serving.front.reading import ReadingSqlCatalog
from skipstone.tables import filesets
from skipstone.tables.catalogs import open_known_catalog
from skipstone.tasks.share import DriverShare
from skipstone_core.contract.planning import METRICS_PATH

from tests.spark.index_bed import Lake, index_on
from tests.spark.planning_bed import planned_files
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


def asked(address: str, condition: object, client: str = "") -> dict[str, Any]:
    """The answer to a plan of the rows that pass ``condition``. ``client``: how the caller calls itself."""
    answer = requests.post(
        f"{address}/v1/namespaces/ns/tables/t/plan",
        json={"filter": condition},
        headers={"authorization": f"Bearer {TOKEN}", CLIENT_HEADER: client},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def planned(address: str, value: int) -> list[str]:
    """The paths of the files that a plan leaves."""
    answer = asked(address, {"type": "eq", "term": "id", "value": value})
    return [task["data-file"]["file-path"] for task in answer["file-scan-tasks"]]


def answers_made(address: str) -> int:
    """How many answers were described, and not remembered."""
    text = requests.get(address + METRICS_PATH, timeout=60).text
    (line,) = (line for line in text.splitlines() if 'planning_seconds_count{part="describe"}' in line)
    return int(float(line.split()[-1]))


@pytest.mark.parametrize("is_large", [False, True], ids=["few files", "as of many files"])
def test_a_warm_plan_of_an_unchanged_table_reads_no_file(
    lake: Lake, rows: int, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(filesets, "MANY_FILES", 1)
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


def test_an_equal_question_is_answered_from_memory_and_counts(lake: Lake, rows: int) -> None:
    with serving(sql_settings(lake.root), (TOKEN,)) as address:
        first = planned(address, 5)
        assert {tuple(planned(address, 5)) for _ in range(3)} == {tuple(first)}
        assert answers_made(address) == 1
        assert planned_files(address) == (4 * FILES, 4)
        assert planned(address, rows * FILES) == []
        assert answers_made(address) == 2


def test_an_answer_is_not_remembered_for_another_client(lake: Lake) -> None:
    """Iceberg's Java library wants bounds of all columns where none is named, and PyIceberg none."""
    clients = ("Apache Iceberg 1.12.0", "PyIceberg 0.12.0")
    with serving(sql_settings(lake.root), (TOKEN,)) as address:
        for _ in range(2):
            files = {client: asked(address, True, client)["file-scan-tasks"][0]["data-file"] for client in clients}
            assert ["lower-bounds" in files[client] for client in clients] == [True, False]
        assert answers_made(address) == 2


def test_an_answer_is_forgotten_when_an_index_knows_more(lake: Lake, rows: int) -> None:
    """Which indexes there are is asked again after a second: nobody says when, so it is asked until it is seen."""
    new = rows * FILES
    with serving(sql_settings(lake.root), (TOKEN,)) as address:
        table = lake.table()
        for base in (0, 1):  # bounds leave out none of both
            ids = [new + base, new + 10 - base]
            table.append(pa.table({"id": ids, "s": ["new", "new"]}, schema=table.schema().as_arrow()))
        assert len(planned(address, new + 5)) == 2
        made = answers_made(address)
        assert len(planned(address, new + 5)) == 2
        assert answers_made(address) == made
        lake.reindex(index_on("id"))
        for _ in range(3000):
            if not planned(address, new + 5):
                break
        assert planned(address, new + 5) == []
        assert answers_made(address) > made
