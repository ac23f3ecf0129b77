"""Rows of which a change is missing: random feeds in random runs, compared with applying what was let through."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import ContractViolation
from skipstone_core.merging.holds import (
    Decision,
    HeldRow,
    HoldsRecord,
    RowChange,
    decode_holds,
    encode_holds,
    judge_changes,
)

COLUMNS = ("a", "b")


@dataclass(frozen=True)
class Written:
    """A change of one row: None deletes it. ``bad``: it does not fit in its first run."""

    number: int
    values: dict[str, int] | None
    bad: bool

    @property
    def change(self) -> RowChange:
        sets = frozenset(self.values or COLUMNS)
        return RowChange(place=str(self.number), sets=sets, is_delete=self.values is None, fault=self.bad)


Row = dict[str, int | None] | None


def applied(row: Row, written: Written, *, recreates: bool = False) -> Row:
    if written.values is None:
        return None
    kept = {} if row is None or recreates else row
    return {name: written.values.get(name, kept.get(name)) for name in COLUMNS}


@st.composite
def feeds(draw: st.DrawFn) -> list[list[Written]]:
    """Runs of one feed of one row."""
    runs, number = [], 0
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        run = []
        for _ in range(size):
            number += 1
            sets = draw(st.sampled_from([None, ("a",), ("b",), COLUMNS]))
            values = None if sets is None else dict.fromkeys(sets, number)
            run.append(Written(number, values, bad=draw(st.integers(0, 2)) == 0))
        runs.append(run)
    return runs


@given(feeds())
def test_a_row_is_as_the_database_had_it_at_some_moment_and_repaired_as_it_has_it_now(
    runs: list[list[Written]],
) -> None:
    history: list[Row] = [{"a": 0, "b": 0}]
    row: Row = history[0]
    held, kept = HeldRow(), []
    for run in runs:
        for written in run:
            history.append(applied(history[-1], written))
        judged = judge_changes(held, tuple(written.change for written in run))
        for written, decision, recreates in zip(run, judged.decisions, judged.recreates, strict=True):
            if decision is Decision.APPLY:
                row = applied(row, written, recreates=recreates)
                assert row == history[written.number]
            else:
                kept.append(written)
        held = judged.row
        assert set(held.missing) <= {str(written.number) for written in kept}
    repaired = tuple(Written(one.number, one.values, bad=False) for one in kept if str(one.number) in held.missing)
    judged = judge_changes(held, tuple(written.change for written in repaired))
    for written, decision, recreates in zip(repaired, judged.decisions, judged.recreates, strict=True):
        assert decision is Decision.APPLY
        row = applied(row, written, recreates=recreates)
    assert row == history[-1]
    assert judged.row == HeldRow()


def test_nothing_after_a_change_that_does_not_fit_is_applied_in_its_run() -> None:
    whole = frozenset(COLUMNS)
    changes = tuple(RowChange(place=name, sets=whole, fault=name == "2") for name in "1234")
    judged = judge_changes(HeldRow(), changes)
    assert judged.decisions == (Decision.APPLY, Decision.REJECT, Decision.REJECT, Decision.REJECT)
    assert judged.row.missing == ("2", "3", "4")
    # A repair of the first alone is no repair of those after it.
    first = judge_changes(judged.row, (RowChange(place="2", sets=whole),))
    assert first.decisions == (Decision.APPLY,)
    assert first.row.missing == ("3", "4")


def test_a_record_of_held_rows_is_read_as_it_was_written() -> None:
    row = HeldRow(missing=("x", "y"), lost=frozenset("ab"), is_gone=True)
    record = HoldsRecord(table_uuid="u", rows={'["id"]': {"[1]": row}})
    assert decode_holds(encode_holds(record)) == record
    for content in (b"{}", b"x", encode_holds(record).replace(b'"version":1', b'"version":2')):
        with pytest.raises(ContractViolation, match="held rows"):
            decode_holds(content)
