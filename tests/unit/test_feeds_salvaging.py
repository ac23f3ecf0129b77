"""Messages that cannot be applied, found among those that can."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from skipstone.sources.feeds.rejecting.salvaging import salvaged
from skipstone.sources.feeds.shapes import UnfitRecord

#: Rows of a message, and whether it cannot be applied.
MESSAGES = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 9).map(lambda drawn: drawn == 0)), min_size=1)


@given(MESSAGES, st.integers(1, 60))
def test_each_message_is_in_one_batch_and_its_faults_are_its_own(messages: list[tuple[int, bool]], times: int) -> None:
    repeated = messages * times
    lines = [number for number, (rows, _) in enumerate(repeated) for _ in range(rows)]
    bad = {number for number, (_, is_bad) in enumerate(repeated) if is_bad}

    def make(start: int, stop: int) -> pa.RecordBatch:
        if found := [line for line in lines[start:stop] if line in bad]:
            raise UnfitRecord("f", found[0], f"line {found[0]}")
        return batch(start, stop, "")

    def batch(start: int, stop: int, fault: str) -> pa.RecordBatch:
        assert start == 0 or lines[start] != lines[start - 1]
        rows = {"row": list(range(start, stop)), "fault": [fault] * (stop - start)}
        return pa.RecordBatch.from_pydict(rows)

    rows = pa.Table.from_batches(salvaged(lines, make, batch)).to_pylist()
    assert [row["row"] for row in rows] == list(range(len(lines)))
    assert [row["fault"] for row in rows] == [f"line {line}" if line in bad else "" for line in lines]
