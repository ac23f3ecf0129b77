"""Rows of which a change is missing: random feeds in random runs, compared with applying what was let through."""

from __future__ import annotations

from collections.abc import Sequence
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
def feeds(draw: st.DrawFn) -> list[tuple[list[Written], bool]]:
    """Runs of one feed of one row, and whether what is missing is merged after each.

    A run may begin with changes of those before it, which come again.
    """
    runs: list[tuple[list[Written], bool]] = []
    log: list[Written] = []
    for size in draw(st.lists(st.integers(0, 3), min_size=1, max_size=5)):
        before = len(log)
        for _ in range(size):
            sets = draw(st.sampled_from([None, ("a",), ("b",), COLUMNS]))
            number = len(log) + 1
            values = None if sets is None else dict.fromkeys(sets, number)
            log.append(Written(number, values, bad=draw(st.integers(0, 2)) == 0))
        run = log[draw(st.integers(0, before)) if draw(st.booleans()) else before :]
        runs.append((run, draw(st.booleans())))
    return runs


def merged(row: Row, held: HeldRow, run: Sequence[Written]) -> tuple[Row, HeldRow, set[Decision]]:
    judged = judge_changes(held, tuple(written.change for written in run))
    for written, decision, recreates in zip(run, judged.decisions, judged.recreates, strict=True):
        if decision is Decision.APPLY:
            row = applied(row, written, recreates=recreates)
    return row, judged.row, set(judged.decisions)


@given(feeds())
def test_a_row_is_as_it_was_before_what_is_missing_and_as_it_is_once_that_is_merged(
    runs: list[tuple[list[Written], bool]],
) -> None:
    history: list[Row] = [{"a": 0, "b": 0}]
    row: Row = history[0]
    held, log, was_repaired = HeldRow(), {}, False
    for run, is_repaired in [*runs, ([], True)]:
        for written in run:
            if written.number == len(history):
                history.append(applied(history[-1], written))
            log[written.place] = written
        row, held, _ = merged(row, held, run)
        # What comes again after it was repaired may find newer values in other columns
        if not (held.missing and was_repaired):
            assert row == history[log[held.missing[0]].number - 1 if held.missing else -1]
        assert list(held.missing) == sorted(held.missing)
        if is_repaired:
            row, held, decisions = merged(row, held, [replace(log[place], bad=False) for place in held.missing])
            assert decisions <= {Decision.APPLY}
            assert row == history[-1]
            assert not held.missing and not held.lost
        was_repaired |= is_repaired


def test_a_repaired_change_that_comes_again_is_missing_if_the_row_went_back_before_it() -> None:
    """A connector writes a delete and a create again, in two runs."""
    delete, create = (
        RowChange(place=place_of("log", "1"), is_delete=True),
        RowChange(place=place_of("log", "2"), sets=frozenset(COLUMNS), fault=True),
    )
    held = judge_changes(HeldRow(), (delete, create)).row
    held = judge_changes(held, (replace(create, fault=False),)).row
    assert judge_changes(held, (create,)).decisions == (Decision.SKIP,), "the row has its values"
    assert judge_changes(held, (delete, create)).row.missing == (create.place,)
    held = judge_changes(held, (delete,)).row
    assert judge_changes(held, (create,)).row.missing == (create.place,)


def test_nothing_after_a_change_that_does_not_fit_is_applied_in_its_run() -> None:
    whole = frozenset(COLUMNS)
    changes = tuple(RowChange(place=name, sets=whole, fault=name == "2") for name in "1234")
    judged = judge_changes(HeldRow(), changes)
    assert judged.decisions == (Decision.APPLY, Decision.REJECT, Decision.REJECT, Decision.REJECT)
    assert judged.row.missing == ("2", "3", "4")
    # A repair of the first alone does not repair those after it.
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
