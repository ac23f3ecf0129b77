"""Python of the pages for those who read tables, run block by block on a small lake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.index_bed import Lake, index_on

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
#: Printed between two blocks.
NEXT = "-- next --"
BY_TAILNUM = index_on("tailnum", name="by-tailnum")


def blocks(page: str) -> list[str]:
    """The Python of ``page``; only the places that depend on the machine are changed."""
    found = re.findall(r"^```python\n(.*?)^```", (GUIDE / page).read_text(), re.MULTILINE | re.DOTALL)
    return [
        re.sub(r"(lake\.lake|skipstone\.nyc)\.flights", "skipstone.ns.flights", text).replace(
            "nyc.flights", "ns.flights"
        )
        for text in found
    ]


def flights(month: int) -> pa.Table:
    numbers = range(month * 100, month * 100 + 100)
    return pa.table(
        {
            "carrier": ["UA" if n % 2 else "AA" for n in numbers],
            "flight": pa.array([1545 if n % 10 == 1 else n for n in numbers], pa.int32()),
            "tailnum": ["N14228" if n == 123 else f"N{n}" for n in numbers],
            "origin": ["EWR"] * 100,
            "dest": ["IAH"] * 100,
            "month": pa.array([month + 1] * 100, pa.int32()),
            "distance": pa.array([1400] * 100, pa.int32()),
            "arr_delay": pa.array([n % 120 for n in numbers], pa.int32()),
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    table = made.create(flights(0).schema, "flights")
    for month in range(3):
        table.append(flights(month))
    made.reindex(BY_TAILNUM, name="flights")
    return made


def test_the_page_works_as_it_is_written(lake: Lake) -> None:
    """In a process of its own, as a notebook is; the conftest's arguments name the jars that the page would fetch."""
    *_, in_sql, with_hints, without_a_rule = blocks("indexes.md")
    with_hints = with_hints.replace("flights-tailnum", BY_TAILNUM.name)
    script = f'print("{NEXT}")\n'.join([*blocks("notebooks.md"), in_sql, with_hints, f"{without_a_rule}{in_sql}"])
    script = script.replace("/skipstone/flights", str(lake.root))
    script = re.sub(r"^PACKAGES = .*$", 'PACKAGES = ""', script, flags=re.MULTILINE)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=800, check=False)
    assert ended.returncode == 0, ended.stderr
    _, enabled, by_sql, by_frame, explained, by_source, changed, on_indexes, hinted, without = ended.stdout.split(NEXT)
    assert enabled.count("IAH") == 1
    assert by_sql.count("IAH") == 1
    assert by_frame.count("EWR") == 1
    assert "by_tailnum" in explained
    assert by_source.count("N14228") == 1
    assert "[{'_change_type': 'INSERT', 'count_all': 100}]" in changed
    assert "by_tailnum" in on_indexes
    assert "|N14228|" in on_indexes.replace(" ", "")
    assert "|N14228|" in without.replace(" ", "")
    assert "chosen: a hint names it" in hinted
    assert "Hinted" in hinted
    assert "JoinKeys" not in on_indexes
    assert "JoinKeys" in without


def test_reads_without_spark_work_as_the_page_on_indexes_writes_them(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    *reads, _, _, _ = blocks("indexes.md")
    assert len(reads) == 2
    names: dict[str, object] = {"catalog": lake.catalog}
    exec("\n".join(reads).replace("lake.flights", "ns.flights"), names)
    rows = names["rows"]
    assert isinstance(rows, pa.Table)
    assert (rows.num_rows, rows.column_names) == (1, ["flight", "origin"])
    assert "by_tailnum" in capsys.readouterr().out
