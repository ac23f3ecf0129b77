"""Rows of which a change is missing: random feeds in random runs, compared with applying what was let through."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    place_of,
)

COLUMNS = ("a", "b")


@dataclass(frozen=True)
class Written:
    """A change of one row: None deletes it. ``bad``: it does not fit in its first run."""

    number: int
    values: dict[str, int] | None
    bad: bool

    @property
    def place(self) -> str:
        return place_of("log", f"{self.number:04d}")

    @property
    def change(self) -> RowChange:
        sets = frozenset(self.values or COLUMNS)
        return RowChange(place=self.place, sets=sets, is_delete=self.values is None, fault=self.bad)


Row = dict[str, int | None] | None


def applied(row: Row, written: Written, *, recreates: bool = False) -> Row:
    if written.values is None:
        return None
    kept = {} if row is None or recreates else row
    return {name: written.values.get(name, kept.get(name)) for name in COLUMNS}


@st.composite
def feeds(draw: st.DrawFn) -> list[list[Written]]:
    """Runs of one feed of one row; a run may begin with changes of those before it, which come again."""
    runs: list[list[Written]] = []
    log: list[Written] = []
    for size in draw(st.lists(st.integers(0, 3), min_size=1, max_size=5)):
        before = len(log)
        for _ in range(size):
            sets = draw(st.sampled_from([None, ("a",), ("b",), COLUMNS]))
            number = len(log) + 1
            values = None if sets is None else dict.fromkeys(sets, number)
            log.append(Written(number, values, bad=draw(st.integers(0, 2)) == 0))
        runs.append(log[draw(st.integers(0, before)) if draw(st.booleans()) else before :])
    return runs


@given(feeds())
def test_a_row_is_as_it_was_before_what_is_missing_and_as_it_is_once_that_is_merged(runs: list[list[Written]]) -> None:
    history: list[Row] = [{"a": 0, "b": 0}]
    row: Row = history[0]
    held, log = HeldRow(), {}
    for run in runs:
        for written in run:
            if written.number == len(history):
                history.append(applied(history[-1], written))
            log[written.place] = written
        judged = judge_changes(held, tuple(written.change for written in run))
        for written, decision, recreates in zip(run, judged.decisions, judged.recreates, strict=True):
            if decision is Decision.APPLY:
                row = applied(row, written, recreates=recreates)
        held = judged.row
        assert row == history[log[held.missing[0]].number - 1 if held.missing else -1]
        assert list(held.missing) == sorted(held.missing)
    repaired = tuple(replace(log[place], bad=False) for place in held.missing)
    judged = judge_changes(held, tuple(written.change for written in repaired))
    for written, decision, recreates in zip(repaired, judged.decisions, judged.recreates, strict=True):
        assert decision is Decision.APPLY
        row = applied(row, written, recreates=recreates)
    assert row == history[-1]
    assert not judged.row.missing and not judged.row.lost


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
    row = HeldRow(missing=("x", "y"), lost=frozenset("ab"), is_gone=True, through="z")
    record = HoldsRecord(table_uuid="u", rows={'["id"]': {"[1]": row}})
    assert decode_holds(encode_holds(record)) == record
    for content in (b"{}", b"x", encode_holds(record).replace(b'"version":1', b'"version":2')):
        with pytest.raises(ContractViolation, match="held rows"):
            decode_holds(content)
