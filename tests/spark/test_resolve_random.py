"""Histories of appends, upserts and deletes of all kinds, resolved with another writer at each point of the run.

The reference is a dictionary of rows. `make soak-maintain` takes more histories.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import cases
from tests.spark.resolve_bed import POINTS, ResolveBed

IDS = st.sampled_from([None, 0, 1, 2, 7, -3])
TEXTS = st.sampled_from([None, "", "a", "ab", "long text " * 8])
FLOATS = st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5, float("-inf")])
PARTS = st.sampled_from(["a", "b"])
ROWS = st.lists(st.fixed_dictionaries({"id": IDS, "k": TEXTS, "f": FLOATS, "p": PARTS}), min_size=1, max_size=4)
#: Columns by which rows are deleted; those of another writer leave out floats, which our reader does not compare.
NAMES = st.sampled_from([("id",), ("k",), ("f",), ("id", "k"), ("f", "id"), ("id", "k", "f")])
PLAIN_NAMES = st.sampled_from([("id",), ("k",), ("id", "k")])
Op = tuple[str, Any]


def ops(names: st.SearchStrategy[tuple[str, ...]]) -> st.SearchStrategy[Op]:
    """What a writer does."""
    return st.one_of(
        st.tuples(st.just("add"), ROWS),
        st.tuples(st.just("delete"), st.tuples(names, ROWS, PARTS)),
        st.tuples(st.just("upsert"), st.tuples(names, ROWS, PARTS)),
        st.tuples(st.just("positions"), st.integers(1, 3)),
        st.tuples(st.just("compact"), st.none()),
    )


def do(bed: ResolveBed, op: Op) -> None:
    """Do it to the table and to the model."""
    name, value = op
    match name:
        case "add":
            bed.add(*value)
        case "delete":
            bed.delete_equal(value[0], value[1], value[2])
        case "upsert":
            bed.delete_equal(value[0], value[1], value[2])
            bed.add(*value[1])
        case "positions":
            bed.delete_rows(lambda place: place % value == 0)
        case _:
            bed.compact()


@settings(max_examples=cases(12, 400))
@given(
    version=st.sampled_from([2, 3]),
    is_parted=st.booleans(),
    history=st.lists(ops(NAMES), min_size=2, max_size=6),
    others=st.lists(ops(PLAIN_NAMES), min_size=1, max_size=2),
    point=st.sampled_from(POINTS),
)
def test_rows_are_those_of_the_model_whoever_writes_meanwhile(
    version: int, is_parted: bool, history: list[Op], others: list[Op], point: str
) -> None:
    with TemporaryDirectory() as folder:
        bed = ResolveBed(Path(folder), version=version, is_parted=is_parted)
        bed.make()
        for op in [("add", [{"id": 1, "f": -0.0}, {"k": "a", "p": "b"}]), *history]:
            if op[0] != "compact":  # our reader does not compare floats
                do(bed, op)
        act: Callable[[], None] = lambda: [do(bed, op) for op in others] and None  # noqa: E731
        step = bed.resolve(point, act)
        assert step.is_done, step
        added = partial(lambda: bed.equality_files())()
        assert added <= sum(op[0] in ("delete", "upsert") for op in others)
        assert bed.numbers_held() == sorted(bed.live)
        assert bed.resolve().is_done
        assert bed.numbers_held() == sorted(bed.live)
        assert bed.equality_files() == 0
        assert bed.strays() == set()
        bed.catalog.close()
