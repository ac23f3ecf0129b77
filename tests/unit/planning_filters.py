"""Filters as people write them, drawn by chance, with what they mean: for rows, for PyIceberg and for SQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.planning_history import GROUPS, KEYS


@dataclass(frozen=True)
class Test:
    """One test of a column."""

    column: str
    operator: str
    values: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """As PyIceberg reads it."""
        told = [repr(value) for value in self.values]
        match self.operator:
            case "in" | "not in":
                return f"{self.column} {self.operator} ({', '.join(told)})"
            case "like":
                return f"{self.column} like '{self.values[0]}%'"
            case "is null" | "is not null":
                return f"{self.column} {self.operator}"
            case _:
                return f"{self.column} {self.operator} {told[0]}"

    def passes(self, row: Mapping[str, Any]) -> bool:
        """Whether the answer is true: SQL's, but that PyIceberg takes null for what is not in a list."""
        value = row[self.column]
        if self.operator == "not in":
            return value not in self.values
        if self.operator in ("is null", "is not null"):
            return (value is None) is (self.operator == "is null")
        if value is None:
            return False
        (first, *_) = self.values
        answers: dict[str, Callable[[], bool]] = {
            "=": lambda: value == first,
            "!=": lambda: value != first,
            "<": lambda: value < first,
            ">=": lambda: value >= first,
            "in": lambda: value in self.values,
            "like": lambda: str(value).startswith(first),
        }
        return answers[self.operator]()


@dataclass(frozen=True)
class Condition:
    """Tests that are all wanted, or any of them. No tests: all rows."""

    tests: tuple[Test, ...]
    is_any: bool

    @property
    def text(self) -> str:
        """As PyIceberg reads it."""
        return self._joined([test.text for test in self.tests])

    @property
    def sql(self) -> str:
        """As SQL that means the same."""
        nulls = [f"({test.text} or {test.column} is null)" for test in self.tests]
        return self._joined(
            [null if test.operator == "not in" else test.text for test, null in zip(self.tests, nulls, strict=True)]
        )

    def _joined(self, texts: Sequence[str]) -> str:
        return (" or " if self.is_any else " and ").join(texts)

    def passes(self, row: Mapping[str, Any]) -> bool:
        """Whether the answer is true."""
        answers = [test.passes(row) for test in self.tests]
        return not answers or (any(answers) if self.is_any else all(answers))


def draw_condition(chance: random.Random) -> Condition:
    """A filter as people write them."""
    key, group = (lambda: chance.randrange(KEYS)), (lambda: chance.randrange(GROUPS))
    text = lambda: f"{chance.choice('abc')}{chance.randrange(9)}"  # noqa: E731
    kinds: Sequence[Callable[[], Test]] = (
        lambda: Test("k", "=", (key(),)),
        lambda: Test("k", "in", tuple(key() for _ in range(3))),
        lambda: Test("k", chance.choice(["<", ">="]), (key(),)),
        lambda: Test("k", chance.choice(["!=", "is not null"]), (key(),)),
        lambda: Test("s", "=", (text(),)),
        lambda: Test("s", "like", (text()[: chance.choice([1, 2])],)),
        lambda: Test("s", chance.choice(["is null", "is not null"])),
        lambda: Test("g", "=", (group(),)),
        lambda: Test("g", chance.choice(["in", "not in"]), tuple(chance.sample(range(GROUPS + 1), 2))),
        lambda: Test("g", "is null"),
    )
    count = chance.choice([0, 1, 1, 1, 1, 2, 2])
    return Condition(tuple(chance.choice(kinds)() for _ in range(count)), chance.random() < 0.4)
