"""Random histories of a table, told by each tool in files of any order: a merge leaves what replaying them leaves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.contract.requests import ChangeFormat, SourceFormat

from tests.examples import cases
from tests.unit.feed_bed import KEPT, MISSING, FeedBed
from tests.unit.feed_histories import SCHEMA, TOOLS, History, State


def merged(bed: FeedBed, state: State) -> State:
    """What is left of ``state``."""
    is_truncated = any(op == "T" for op in bed.changes()["_skipstone_op"].to_pylist())
    found = {} if is_truncated else dict(state)
    for one in bed.left():
        if isinstance(one, str):
            found.pop(int(one.removeprefix("deleted ")), None)
            continue
        old = state.get(one["id"])
        assert old is not None or MISSING not in one.values(), "it cannot be inserted"
        found[one["id"]] = {
            name: old[name] if old and value in (KEPT, MISSING) else value for name, value in one.items()
        }
    return found


@pytest.mark.parametrize("tool", TOOLS)
@settings(max_examples=cases(25, 400), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_history_told_by_a_tool_is_replayed(tool: str, seed: int) -> None:
    kind, tell, truncates = TOOLS[tool]
    random = Random(seed)
    history = History(random)
    table: State = {}
    for _ in range(random.randint(1, 3)):
        history.events = []
        for _ in range(random.randint(1, 5)):
            history.transaction()
        events = [event for event in history.events if truncates or event.op != "t"]
        if len(events) < len(history.events):
            return  # a tool that does not tell of truncates
        with tempfile.TemporaryDirectory() as folder:
            bed = FeedBed(Path(folder), kind, SourceFormat.JSON, SCHEMA)
            bed.source = {"allow_truncate": True} if truncates else {}
            if kind in (ChangeFormat.DEBEZIUM, ChangeFormat.DEBEZIUM_FLAT):
                bed.source = {**bed.source, "replica_identity": bed.keys}  # some keys are 0
            lines = tell(events, table, random)
            cut = random.randint(0, len(lines))
            for number, part in enumerate((lines[:cut], lines[cut:])):
                bed.text("\n".join(part) + "\n", f"{number}.json")
            table = merged(bed, table)
        assert table == history.state


@settings(max_examples=cases(25, 400), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_history_in_files_of_dms_is_replayed(seed: int) -> None:
    random = Random(seed)
    history = History(random)
    for _ in range(random.randint(1, 6)):
        history.transaction()
    rows = []
    for event in history.events:
        if event.op == "t":
            return
        if event.op == "d" or (event.before and event.after):
            rows.append(("D", event.before))
        if event.after:
            rows.append(("U" if event.op == "u" else "I", event.after))
    cuts = sorted(random.sample(range(len(rows) + 1), min(2, len(rows))))
    with tempfile.TemporaryDirectory() as folder:
        bed = FeedBed(Path(folder), ChangeFormat.DMS, SourceFormat.CSV, SCHEMA)
        for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
            columns = random.sample(["id", "a", "b"], 3)
            lines = [",".join([op, *(str(row[c]) if row and row[c] is not None else "NULL" for c in columns)])
                     for op, row in rows[start:stop]]  # fmt: skip
            bed.text("\n".join([",".join(["Op", *columns]), *lines]) + "\n", f"2024050{number}.csv")
        assert merged(bed, {}) == history.state
