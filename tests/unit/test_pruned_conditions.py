"""Whatever a condition is made of, a file that its bounds prune holds no row on which it can be true.

Files of a few rows each say what they hold as tightly as writers may, so that as many as possible are pruned; the
condition is judged row by row by its plain definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from skipstone.indexes.keytests import plan_test
from skipstone.indexes.ranges import bounds_columns, files_that_may_match
from skipstone.tables.filesets import ColumnBounds
from skipstone_core.keys import float_order
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import Node, Predicate, Value, check_types

from tests.examples import cases
from tests.unit.scalar_predicates import evaluate
from tests.unit.test_predicates_arrow import COLUMNS, VALUES, nodes

KINDS: dict[str, IcebergType] = {
    "long": LongType(),
    "int": IntegerType(),
    "decimal(9, 2)": DecimalType(9, 2),
    "decimal(38, 10)": DecimalType(38, 10),
    "double": DoubleType(),
    "float": FloatType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
}
Row = dict[str, Value | None]


class TightFiles:
    """Files that tell the least and the greatest value of each column of one side."""

    def __init__(self, files: Sequence[Sequence[Row]], names: Sequence[str]) -> None:
        self._files, self._names = files, names

    def __len__(self) -> int:
        return len(self._files)

    def bounds(self, field_id: int) -> ColumnBounds:
        name = self._names[field_id - 1]
        kind = COLUMNS[name][1]
        columns = [[row[name] for row in rows] for rows in self._files]
        ends = [_ends([value for value in column if value is not None]) for column in columns]
        return ColumnBounds(
            pa.array([lower for lower, _ in ends], kind),
            pa.array([upper for _, upper in ends], kind),
            pa.array([column.count(None) for column in columns]),
            pa.array([sum(isinstance(value, float) and math.isnan(value) for value in column) for column in columns]),
            pa.array([len(column) for column in columns]),
        )


def _ends(values: Sequence[Any]) -> tuple[Any, Any]:
    """The bounds of a file; not known if it has none, or a NaN, which bounds leave out."""
    if not values or any(isinstance(value, float) and math.isnan(value) for value in values):
        return None, None
    key: Any = float_order if isinstance(values[0], float) else (lambda text: text.encode() if _is_text(text) else text)
    return min(values, key=key), max(values, key=key)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def may_match(root: Node, side: str, files: Sequence[Sequence[Row]]) -> list[bool]:
    """For each file, whether bounds of the columns of ``side`` leave it."""
    names = [name for name in COLUMNS if name.startswith(f"{side}.")]
    fields = [
        NestedField(number, name.removeprefix(f"{side}."), KINDS[COLUMNS[name][0]], required=False)
        for number, name in enumerate(names, start=1)
    ]
    schema = Schema(*fields)
    test = plan_test(root, schema, side=side)
    return [bool(kept) for kept in files_that_may_match(test, TightFiles(files, names), bounds_columns(schema))]


rows = st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, values in VALUES.items()})


@settings(deadline=None, max_examples=cases(300, 20000))
@given(nodes, st.lists(st.lists(rows, min_size=1, max_size=2), min_size=1, max_size=6))
def test_a_pruned_file_holds_no_row_that_a_condition_takes(root: Node, files: list[list[Row]]) -> None:
    predicate = check_types(Predicate(root, ""), {name: kind for name, (kind, _) in COLUMNS.items()})
    for side in ("source", "target"):
        for kept, held in zip(may_match(predicate.root, side, files), files, strict=True):
            event("kept" if kept else "pruned")
            assert kept or not any(evaluate(predicate, row) is True for row in held), (side, predicate, held)


ROWS: list[list[Row]] = [
    [dict.fromkeys(COLUMNS) | {"target.j": number, "target.t": text, "target.y": float_}]
    for number, text, float_ in (
        (1, "ab", 0.0),
        (5, "b", -0.0),
        (None, None, math.nan),
        (-2, "a", -1.5),
    )
]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("target.j <=> 1", [True, False, False, False]),
        ("target.j <=> null", [False, False, True, False]),
        ("not (target.j <=> null)", [True, True, False, True]),
        ("target.j = null", [False, False, False, False]),
        ("not (target.j in (1, null))", [False, False, False, False]),
        ("target.j in (1, null)", [True, False, False, False]),
        ("target.j = 1 or null", [True, False, False, False]),
        ("target.j == 5 and target.j % 2 = 0", [False, True, False, False]),
        ("target.j % 2 = 0", [True, True, True, True]),
        ("coalesce(target.j, 5) = 5", [True, True, True, True]),
        ("target.t like 'a%'", [True, False, False, True]),
        ("target.t like 'a_%b'", [True, False, False, True]),
        ("target.t like '%b'", [True, True, True, True]),
        ("target.t like 'b'", [False, True, False, False]),
        ("target.y <=> 0.0", [True, True, True, False]),
        ("target.j > source.i", [True, True, True, True]),
        ("target.j > 1 and source.i > 3", [False, True, False, False]),
        ("source.i > 3", [True, True, True, True]),
    ],
)
def test_what_of_a_condition_prunes(text: str, kept: list[bool]) -> None:
    predicate = check_types(parse_predicate(text), {name: kind for name, (kind, _) in COLUMNS.items()})
    assert may_match(predicate.root, "target", ROWS) == kept
