"""What a run that enters one new segment reads and writes: the same however many segments the table has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFile

from tests.spark.index_bed import Lake, index_on

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
K = index_on("k")


def rows(start: int) -> pa.Table:
    keys = range(start, start + 20)
    return pa.table({"k": keys, "name": [f"n{key % 7}" for key in keys]}, schema=SCHEMA)


class Opened:
    """Files that this process opens, by what they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch every open and create from now on."""
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self._watch(monkeypatch, "open", self.read)
        self._watch(monkeypatch, "create", self.written)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str, counts: Counter[str]) -> None:
        original = getattr(PyArrowFile, name)

        def counting(file: PyArrowFile, *args: Any, **kwargs: Any) -> Any:
            counts[kind_of(file.location)] += 1
            return original(file, *args, **kwargs)

        monkeypatch.setattr(PyArrowFile, name, counting)


def kind_of(location: str) -> str:
    table = "index" if "__si_" in location else "table"
    kind = next((one for one in ("kind=entry", "kind=cover", "metadata") if one in location), "data")
    return f"{table} {kind.removeprefix('kind=')}"


def cost_of_one_segment(root: Path, segments: int, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What is opened to catch up with one segment more than ``segments``."""
    root.mkdir()
    lake = Lake(root)
    table = lake.create(SCHEMA)
    for segment in range(segments):
        table.append(rows(segment * 10))
    lake.reindex(K)
    table.append(rows(5))
    with monkeypatch.context() as patched:
        opened = Opened(patched)
        report = lake.reindex(K)
    assert report.counts == {"segments": 1, "files": 1, "entries": 20}
    return opened


def test_catching_up_with_one_segment_costs_the_same_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = cost_of_one_segment(tmp_path / "few", 10, monkeypatch)
    many = cost_of_one_segment(tmp_path / "many", 40, monkeypatch)
    assert many.written == few.written
    assert (many.written["index entry"], many.written["index cover"]) == (1, 1)
    assert many.read["table data"] == few.read["table data"] == 1
    for kind in ("index entry", "index cover", "index metadata"):
        assert many.read[kind] == few.read[kind], kind
