"""Keys with fewer rows than before, of rows that are divided into files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.query.changing import leftrows
from skipstone.query.changing.dividing import part_of_rows
from skipstone.query.changing.leftrows import DividedRows

Keys = list[tuple[int | None, str | None]]
KEYS = st.lists(st.tuples(st.none() | st.integers(0, 4), st.none() | st.sampled_from("ab")), max_size=12)


def divided(folder: Path, name: str, keys: Keys, parts: int) -> list[Path]:
    """Files of rows with such keys, in batches of three."""
    columns = {
        "k": pa.array([key for key, _ in keys], pa.int64()),
        "t": pa.array([text for _, text in keys], pa.string()),
    }
    rows = pa.table({"v": pa.nulls(len(keys), pa.int8()), **columns})
    of_rows = part_of_rows(rows, ["k", "t"], parts)
    paths = [folder / f"{name}-{part}" for part in range(parts)]
    for part, path in enumerate(paths):
        with pa.ipc.new_file(str(path), rows.schema) as file:
            file.write_table(rows.filter(pa.array(of_rows == part)), max_chunksize=3)
    return paths


@settings(max_examples=60, deadline=None)
@given(
    before=KEYS, after=KEYS, parts=st.integers(1, 3), most_bytes=st.sampled_from([20, 1 << 20]), most=st.integers(1, 9)
)
def test_keys_with_fewer_rows_are_found_once(before: Keys, after: Keys, parts: int, most_bytes: int, most: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftrows, "MOST_KEYS", most)
        sides = (divided(Path(folder), name, keys, parts) for name, keys in (("old", before), ("new", after)))
        tables = [*DividedRows(*sides, ("k", "t"), most_bytes).fewer()]
    assert all(0 < len(table) <= most for table in tables)
    keys = [(row["k"], row["t"]) for table in tables for row in table.to_pylist()]
    expected = {key for key in Counter(before) - Counter(after) if None not in key}
    assert Counter(keys) == Counter(expected)
