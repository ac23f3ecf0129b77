"""Scans planned for engines through indexes: no file with a row that PyIceberg keeps is left out, synced or not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyiceberg.expressions.visitors import expression_evaluator, rewrite_not
from pyiceberg.typedef import Record
from skipstone.query.scans import ScanRequest, plan_scan
from skipstone.tables import filesets

from tests.examples import cases
from tests.spark.index_bed import Lake, index_on
from tests.unit.filter_cases import KINDS, Column, Kind, stored
from tests.unit.test_filters_random import sent_filters

FILES, ROWS = 6, 12
#: Of types that Arrow makes Iceberg's of, and that indexes take.
INDEXED = tuple(kind for kind in KINDS if kind.name.partition("(")[0] not in ("uuid", "fixed[2]", "boolean"))
NULLS = 0.2


def _file(random: Random, columns: list[Column]) -> list[list[Any]]:
    """Rows of few values of each type, so that files differ."""
    pools = [random.sample(column.kind.values, min(2, len(column.kind.values))) for column in columns]
    return [[None if random.random() < NULLS else random.choice(pool) for pool in pools] for _ in range(ROWS)]


def _arrow(columns: list[Column], data: list[list[Any]]) -> pa.Table:
    return pa.table(
        [pa.array([row[place] for row in data], column.kind.arrow) for place, column in enumerate(columns)],
        names=[column.name for column in columns],
    )


def _lake(folder: Path, random: Random, columns: list[Column]) -> tuple[Lake, list[list[list[Any]]]]:
    """A table, and an index on each column, of which each covers some of the files."""
    lake = Lake(folder)
    files = [_file(random, columns) for _ in range(FILES)]
    table = lake.create(_arrow(columns, []).schema)
    for data in files:
        table.append(_arrow(columns, data))
    for column in columns:
        index = index_on(column.name, name=f"by-{column.name}")
        lake.reindex(index, max_segments=0)
        lake.reindex(index, max_segments=random.choice([2, FILES, FILES]))
    return lake, files


@pytest.mark.parametrize("seed", range(cases(2, 40)))
def test_no_file_with_a_row_that_passes_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    if seed % 2:  # as of a table of very many files
        monkeypatch.setattr(filesets, "MANY_FILES", 1)
    random, seen = Random(seed), Counter[str]()
    kinds: list[Kind] = random.sample(INDEXED, 3)
    columns = [Column(number + 1, f"c{number + 1}", kind) for number, kind in enumerate(kinds)]
    lake, files = _lake(tmp_path, random, columns)
    table = lake.table()
    values = [row for data in files for row in data]

    @settings(max_examples=cases(40, 200))
    @given(sent_filters(columns, values))
    def check(sent: tuple[Any, Any]) -> None:
        expression, tree = sent
        try:
            keeps = expression_evaluator(table.schema(), rewrite_not(expression), case_sensitive=True)
        except (TypeError, ValueError, ArithmeticError):
            return
        scan = plan_scan(table, ScanRequest(filter=tree), lake.options)
        assert len(scan.ordinals) + sum(scan.left_out.values()) == FILES
        seen.update(scan.left_out)
        kept = set(scan.files.files.column("path").take(scan.ordinals).to_pylist())
        for path, data in zip(_paths(table, files, columns), files, strict=True):
            if path not in kept:
                lost = [row for row in data if keeps(Record(*map(stored, row)))]
                assert not lost, (json.dumps(tree), lost)

    check()
    lake.catalog.close()
    print(f"\nseed {seed}: {[kind.name for kind in kinds]} {dict(seen)}")


def _paths(table: Any, files: list[Any], columns: list[Column]) -> list[str]:
    """The path of each file, in the order in which they were written."""
    entries = table.inspect.entries().to_pylist()
    ordered = sorted(entries, key=lambda entry: entry["sequence_number"])
    assert len(ordered) == len(files), columns
    return [entry["data_file"]["file_path"] for entry in ordered]
