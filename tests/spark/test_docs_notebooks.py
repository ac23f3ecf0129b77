"""The page for notebook users, run block by block on a small lake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.index_bed import Lake, index_on

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "notebooks.md"
#: Printed between two blocks.
NEXT = "-- next --"
BY_TAILNUM = index_on("tailnum", name="by-tailnum")


def blocks() -> list[str]:
    """The Python of the page; only the places that depend on the machine are changed."""
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [text.replace("nyc.flights", "ns.flights") for text in found]


def flights(month: int) -> pa.Table:
    numbers = range(month * 100, month * 100 + 100)
    return pa.table(
        {
            "carrier": ["UA" if n % 2 else "AA" for n in numbers],
            "flight": pa.array([1545 if n % 10 == 1 else n for n in numbers], pa.int32()),
            "tailnum": ["N14228" if n == 123 else f"N{n}" for n in numbers],
            "origin": ["EWR"] * 100,
            "dest": ["IAH"] * 100,
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
    script = f'print("{NEXT}")\n'.join(blocks()).replace("/skipstone/flights", str(lake.root))
    script = re.sub(r"^PACKAGES = .*$", 'PACKAGES = ""', script, flags=re.MULTILINE)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=800, check=False)
    assert ended.returncode == 0, ended.stderr
    _, enabled, by_sql, by_frame, explained, by_source = ended.stdout.split(NEXT)
    assert enabled.count("IAH") == 1
    assert by_sql.count("IAH") == 1
    assert by_frame.count("EWR") == 1
    assert "by_tailnum" in explained
    assert by_source.count("N14228") == 1
