"""How many requests it takes to read an object as a file: each of them costs money, and tens of milliseconds."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.storage.buckets.objectfiles import ObjectFile, ReadAhead
from skipstone.storage.port import READ_AHEAD

MIB = 1 << 20


@dataclass
class Counted:
    """An object in memory, with what was asked for. ``known_size``: None until the first answer."""

    content: bytes
    known_size: int | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)
    heads: int = 0

    def size(self) -> int:
        if self.known_size is None:
            self.heads += 1
            self.known_size = len(self.content)
        return self.known_size

    def fetch(self, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        self.known_size = len(self.content)
        return self.content[start:end]


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(rows), "v": range(rows)}), sink, row_group_size=rows // 2, compression="none")
    return sink.getvalue()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("buffering", [0, READ_AHEAD])
def test_all_of_an_object_is_read_by_few_requests(*, known: bool, buffering: int) -> None:
    content = Counted(b"x" * (20 * MIB))
    content.known_size = len(content.content) if known else None
    raw = ObjectFile(content)
    assert (ReadAhead(raw, buffering) if buffering else raw).read() == content.content
    assert len(content.asked) == 2
    assert content.heads == 0


def test_lines_are_read_by_large_parts() -> None:
    content = Counted(b"line\n" * (MIB // 5))
    lines = io.TextIOWrapper(ReadAhead(ObjectFile(content), MIB // 4))
    assert sum(1 for _ in lines) == MIB // 5
    assert len(content.asked) <= 5


def test_the_first_line_of_a_large_object_takes_one_request() -> None:
    content = Counted(b"a,b\n" + b"1,2\n" * MIB)
    assert next(io.TextIOWrapper(ReadAhead(ObjectFile(content), 64 << 10))) == "a,b\n"
    assert content.asked == [(0, 64 << 10)]


def test_a_column_of_a_row_group_takes_a_footer_and_a_range() -> None:
    content = Counted(parquet(100_000))
    content.known_size = len(content.content)
    with pq.ParquetFile(ObjectFile(content)) as file:
        footer = len(content.asked)
        assert file.read_row_group(1, columns=["v"]).num_rows == 50_000
    assert footer <= 2
    assert len(content.asked) - footer == 1


def test_nothing_is_asked_for_behind_the_end() -> None:
    content = Counted(b"abc", known_size=3)
    raw = ObjectFile(content)
    assert (raw.seek(3), raw.read(5), raw.read()) == (3, b"", b"")
    assert (raw.seek(1), raw.read(5)) == (1, b"bc")
    assert content.asked == [(1, 3)]
    with pytest.raises(ValueError, match="before the beginning"):
        raw.seek(-4, io.SEEK_END)
