"""What calls of a lake give back and warn of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from skipstone_local.lake.results import load_result, merge_result

RESULTS = pytest.mark.parametrize("result", [load_result, merge_result])


def job(names: list[str], total: int, **source: str) -> dict[str, Any]:
    """A job that left out columns."""
    status = {"unusedColumns": [{"name": name, "rows": 3} for name in names], "unusedColumnsTotal": total}
    return {"metadata": {"name": "orders-load"}, "spec": {"source": source}, "status": status}


class Lake:
    """Calls a result as a lake does."""

    def load(self, result: Callable[[Any], object], given: dict[str, Any]) -> object:
        """The result."""
        return result(given)


@RESULTS
def test_a_column_that_was_left_out_is_warned_of_where_the_program_calls(result: Callable[[Any], object]) -> None:
    with pytest.warns(UserWarning, match="nothing used the source's columns 'prise': name them as") as seen:
        Lake().load(result, job(["prise"], 1))
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="columns 'a', 'b' and others: "):
        Lake().load(result, job(["a", "b"], 40))


@RESULTS
@pytest.mark.parametrize("given", [job([], 0), job(["prise"], 1, unknownColumns="Ignore")], ids=["none", "meant"])
def test_nothing_is_warned_of_if_nothing_was_left_out_or_it_is_meant(
    result: Callable[[Any], object], given: dict[str, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Lake().load(result, given)
